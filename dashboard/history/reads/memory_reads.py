"""Reads of what no file has yet, as files will have it. Copied under the store's lock; what is
made of the copies is made outside of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..columns.arrays import Slots, take_rows
from ..columns.arrow_columns import Table
from ..columns.grid import GpuMetricRows
from ..columns.host_minutes import host_columns, join_hosts
from ..columns.instants import MomentSamples, seen_in_memory
from ..columns.layout import AT, STORED
from ..columns.memory import SampleRows, in_order, together
from ..columns.rollup import Rollup, roll_up, rollup_of
from ..columns.rows import SlowMetricRows, slow_rows
from ..columns.task_minutes import TaskMinuteRows, held_in
from ..columns.usage import NEEDED, usages
from ..files.parquet import (
    HOUR_S,
    MINUTE_S,
    events_table,
    hosts_table,
    plain_frame,
    raw_table,
    rollup_table,
    slow_table,
    tasks_table,
    usage_table,
)
from ..ingest.messages import HistoryIngester, event_columns
from .protocol import Nodes

if TYPE_CHECKING:
    import pandas as pd

LAST = 2**40


class MemoryReader:
    def __init__(self, feed: HistoryIngester) -> None:
        self._feed = feed

    def table(self, kind: str, span: tuple[float, float], metrics: Sequence[str] = (),
              nodes: Nodes = None) -> Callable[[], Table]:
        """Copy raw, minutes, slow, tasks, hosts or events. `metrics`: only these numbers."""
        feed, names = self._feed, self._feed.names
        first, last, slots = int(span[0]), -int(-span[1] // 1), feed.slots_of(None, nodes)
        if kind == "slow":
            slow = self._slow(slots, first, last)
            return lambda: slow_table(slow, names)
        if kind == "tasks":
            task_rows = self.task_minutes(nodes, first, last)
            return lambda: tasks_table(task_rows, names)
        if kind == "events":
            events = {key: (t, event) for aside in feed.extras()
                      for key, (t, event) in aside.events.items()
                      if span[0] <= t < span[1] and (nodes is None or key[0] in nodes)}
            return lambda: events_table(event_columns(events, names))
        if kind == "hosts":
            hosts = join_hosts(
                {key: replace(minute) for key, minute in aside.hosts.items()
                 if span[0] <= key[1] < span[1] and (nodes is None or key[0] in nodes)}
                for aside in feed.extras())
            return lambda: hosts_table(host_columns(hosts, names))
        rows = list(feed.head.rows(slots, first, last, metrics))
        if kind == "raw":
            return lambda: raw_table(together(rows, metrics), names)

        def rolled() -> Table:
            rollup = roll_up(in_order(rows), MINUTE_S, metrics)
            return rollup_table(kind, rollup, names.columns(rollup.slot, rollup.t))

        return rolled

    def seconds(self, span: tuple[int, int], metrics: Sequence[str]
                ) -> Callable[[], tuple[GpuMetricRows, dict[str, npt.NDArray[Any]]]]:
        """Copy live metrics of all GPUs: their rows, and the numbers of each metric."""
        names = self._feed.names
        parts = list(self._feed.head.rows(self._feed.slots_of(None, None), *span, metrics))

        def wide() -> tuple[GpuMetricRows, dict[str, npt.NDArray[Any]]]:
            rows = together(parts, metrics)
            slots = np.flatnonzero(np.bincount(rows.slot))
            number = np.zeros(len(names.gpus), np.intp)
            number[slots] = np.arange(len(slots))
            pairs = [(names.gpus[slot], names.nodes[slot]) for slot in slots.tolist()]
            return (GpuMetricRows(pairs, number[rows.slot], rows.t, {}, {}),
                    {metric: rows.values(metric).astype(
                        np.float64 if STORED[AT[metric]].kind == "int" else np.float32)
                     for metric in metrics})  # as files have them

        return wide

    def _slow(self, slots: Slots, first: int, last: int) -> SlowMetricRows:
        rows = slow_rows(part for aside in self._feed.extras() for part in aside.slow
                         if first <= part.t[0] < last)
        return take_rows(rows, np.isin(rows.slot, slots))

    def series(self, gpus: Mapping[str, int], metrics: Sequence[str], span: tuple[int, int],
               nodes: Nodes) -> list[Rollup]:
        """`gpus`: their numbers, which are the slots of the answer."""
        head, names, slots = self._feed.head, self._feed.names, self._feed.slots_of(gpus, nodes)
        number = np.zeros(len(names.gpus), np.intp)
        number[slots] = [gpus[names.gpus[slot]] for slot in slots.tolist()]
        live = [metric for metric in metrics if metric in AT]
        parts: list[SampleRows | SlowMetricRows] = [together(head.rows(slots, *span, live), live)]
        if len(live) < len(metrics):
            parts.append(self._slow(slots, *span))
        return [rollup_of("raw", Rollup(number[part.slot], part.t, np.ones(len(part.t), np.int64)),
                          {metric: part.values(metric) for metric in metrics
                           if (metric in AT) == isinstance(part, SampleRows)}, metrics)
                for part in parts]

    def samples_at(self, metric: str, moments: Sequence[int], back_s: int, nodes: Nodes
             ) -> MomentSamples:
        head, names, slots = self._feed.head, self._feed.names, self._feed.slots_of(None, nodes)
        span = moments[0] - back_s + 1, moments[-1] + 1
        rows: SampleRows | SlowMetricRows = (
            together(head.rows(slots, *span, (metric,)), (metric,)) if metric in AT
            else self._slow(slots, *span))
        return seen_in_memory(rows, metric, moments, back_s, names.gpus, names.nodes)

    def usage(self, nodes: Nodes, first: int, last: int, grain: int = HOUR_S) -> "pd.DataFrame":
        """Copy who used what between two multiples of `grain`."""
        task_rows = self.task_minutes(nodes, first, last)
        rows = self._feed.head.rows(np.unique(task_rows.slot), first, last, NEEDED)
        did = roll_up(in_order(rows), MINUTE_S, NEEDED)
        return plain_frame(usage_table(usages(task_rows, did, grain), self._feed.names))

    def task_minutes(self, nodes: Nodes, first: int, last: int) -> TaskMinuteRows:
        """Copy the minutes that begin in this span; those of a past that is in files cost nothing,
        however many are here."""
        feed = self._feed
        feed.tally.add_up()
        parts = [*feed.tally.blocks.values(),
                 *(part for aside in feed.closed_asides.values() for part in aside.minutes)]
        rows = held_in(part for part in parts if part.start < last and first < part.end)
        return take_rows(rows, (rows.t >= first) & (rows.t < last)
                         & np.isin(rows.slot, feed.slots_of(None, nodes)))
