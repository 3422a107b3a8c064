"""Reads of what no file has yet. Called under the store's lock."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .columns import AT, SLOW_KEYS, STORED, in_runs, missing_at, missing_words
from .frames import BucketSums, of_memory, of_slow, slow_reason
from .ingest import HistoryIngester
from .memory import SampleRows, Slots, joined
from .parquet import HOUR_S, MINUTE_S, plain_frame, usage_table
from .point_reads import NewestSamples, Words
from .protocol import Nodes
from .rollup import rolled_up
from .task_minutes import TaskMinuteRows, held_in
from .usage import NEEDED, usages

if TYPE_CHECKING:
    import pandas as pd

LAST = 2**40


class MemoryReader:
    def __init__(self, feed: HistoryIngester) -> None:
        self._feed = feed

    def rows(self, metric: str, first: int, last: int, nodes: Nodes) -> SampleRows:
        """Of all GPUs of these nodes."""
        return joined(list(self._feed.head.rows(self._feed.slots_of(None, nodes), first, last,
                                                {AT[metric]})))

    def series(self, gpus: Sequence[str], metrics: Sequence[str], span: tuple[int, int], step: int,
               nodes: Nodes) -> list[BucketSums]:
        feed = self._feed
        slots = feed.slots_of(gpus, nodes)
        number = {gpu: at for at, gpu in enumerate(gpus)}
        of_slot = {slot: number[feed.names.gpus[slot]] for slot in slots.tolist()}
        columns = {AT[metric] for metric in metrics if metric in AT}
        rows = joined(list(feed.head.rows(slots, *span, columns)))
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        slow = [part for asides in (feed.asides, feed.closed_asides)
                for aside in asides.values() for part in aside.slow
                if span[0] <= part.t < span[1]]
        return [of_memory(rolled_up(rows, step, columns), of_slot, metrics),
                *(of_slow(part, of_slot, metrics) for part in slow)]

    def newest(self, metric: str, first: int, last: int, nodes: Nodes) -> list[NewestSamples]:
        feed = self._feed
        slots = (np.arange(len(feed.names.gpus)) if nodes is None
                 else feed.slots_of(None, nodes))
        if metric not in AT:
            return [self._newest_slow(metric, first, last, set(slots.tolist()))]
        rows = joined(list(feed.head.rows(slots, first, last, {AT[metric]})))
        if not len(rows):
            return []
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        rows = rows.take(np.append(np.flatnonzero(np.diff(rows.slot)), len(rows) - 1))
        at = AT[metric]
        values = rows.units[at] * STORED[at].step
        codes, of_row = in_runs(rows.missing)
        words = np.array([missing_words(code) for code in codes.tolist()], object)
        return [NewestSamples(*self._names(rows.slot), rows.t,
                              np.where(missing_at(rows.missing, at) != 0, np.nan, values),
                              words[of_row], False)]

    def _newest_slow(self, metric: str, first: int, last: int, slots: set[int]) -> NewestSamples:
        feed, at = self._feed, SLOW_KEYS.index(metric)
        newest: dict[int, tuple[int, float, str]] = {}
        for asides in (feed.asides, feed.closed_asides):
            for part in (part for aside in asides.values() for part in aside.slow
                         if first <= part.t < last):
                for row, slot in enumerate(part.slot.tolist()):
                    if slot in slots and part.t >= newest.get(slot, (0, 0.0, ""))[0]:
                        why = int(part.absent[row, at])
                        value = np.nan if why else float(part.values[row, at])
                        newest[slot] = (part.t, value, slow_reason(metric, why))
        return NewestSamples(*self._names(np.array(list(newest), np.intp)),
                             np.array([t for t, _, _ in newest.values()], np.int64),
                             np.array([value for _, value, _ in newest.values()], np.float64),
                             np.array([words for _, _, words in newest.values()], object), False)

    def _names(self, slots: Slots) -> tuple[Words, Words]:
        names = self._feed.names
        return (np.array([names.gpus[slot] for slot in slots.tolist()], object),
                np.array([names.nodes[slot] for slot in slots.tolist()], object))

    def usage(self, nodes: Nodes, grain: int = HOUR_S) -> "pd.DataFrame":
        """What no file has yet."""
        feed = self._feed
        held = self.task_minutes(nodes)
        rows = joined(list(feed.head.rows(np.unique(held.slot), 0, LAST, NEEDED)))
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        did = rolled_up(rows, MINUTE_S, NEEDED)
        return plain_frame(usage_table(usages(held, did, grain), feed.names))

    def task_minutes(self, nodes: Nodes) -> TaskMinuteRows:
        feed = self._feed
        feed.tally.add_up()
        held = held_in([*feed.tally.blocks.values(), *(
            part for aside in feed.closed_asides.values() for part in aside.minutes)])
        if nodes is None:
            return held
        return held.take(np.flatnonzero(np.isin(held.slot, feed.slots_of(None, nodes))))
