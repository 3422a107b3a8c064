"""Writer of one part of history: into all its files, or into none."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from ..columns.arrays import concat_rows, take_rows
from ..columns.arrow_columns import Table
from ..columns.host_minutes import host_columns
from ..columns.memory import SampleRows
from ..columns.rollup import Rollup, coarser, roll_up
from ..columns.rows import slow_rows
from ..columns.slot_names import SlotNames
from ..columns.task_minutes import TaskMinuteRows, held_in
from ..columns.usage import usages
from ..ingest.messages import BlockExtras, HistoryIngester, event_columns
from ..storage.manifest import HistoryFile
from .file_set import HistoryFiles
from .give_up import MENDS_ITSELF
from .parquet import (
    GROUP_ROWS,
    HOUR_S,
    MINUTE_S,
    events_table,
    hosts_table,
    raw_table,
    rollup_table,
    save_rows,
    slow_table,
    tasks_table,
    usage_table,
)

log = logging.getLogger("gpudeck.history")


@dataclass(eq=False, slots=True)
class BlockWriter:
    files: HistoryFiles
    feed: HistoryIngester

    def write(self, chunks: Callable[[], Iterator[SampleRows]], aside: BlockExtras,
              stretch: tuple[int, int, int], now: float, is_last: bool) -> list[HistoryFile]:
        """`is_last`: what cannot be written is set aside, so that the rest is."""
        segments: list[HistoryFile] = []
        try:
            for kind, tables in self._tables(chunks, aside):
                try:
                    segment = self.files.write(kind, stretch, now, tables())
                except Exception as error:
                    if not is_last or isinstance(error, MENDS_ITSELF):
                        raise
                    self._set_aside(kind, stretch[0], chunks)
                    continue
                segments += [] if segment is None else [segment]
        except BaseException:
            self.files.remove(segments)
            raise
        return segments

    def _tables(self, chunks: Callable[[], Iterator[SampleRows]], aside: BlockExtras
                ) -> Iterator[tuple[str, Callable[[], Iterator[Table]]]]:
        names, rank = self.feed.names, np.argsort(self.feed.order())
        rolled: list[Rollup] = []
        minutes = cache(lambda: concat_rows(rolled))

        def raw() -> Iterator[Table]:
            for rows in chunks():
                rolled.append(roll_up(rows, MINUTE_S))
                yield raw_table(rows, names)

        @cache
        def task_minutes() -> TaskMinuteRows:
            rows = held_in(aside.minutes)
            return take_rows(rows, np.lexsort((rows.t, rank[rows.slot])))

        def usage_tables() -> Iterator[Table]:
            rows = usages(task_minutes(), minutes())
            yield usage_table(take_rows(rows, np.lexsort((rows.t, rank[rows.slot]))), names)

        yield "raw", raw
        yield "minutes", lambda: _by_gpus("minutes", minutes(), names)
        yield "hours", lambda: _by_gpus("hours", coarser(minutes(), HOUR_S), names)
        if aside.slow:
            yield "slow", lambda: iter([slow_table(slow_rows(aside.slow), names)])
        if aside.minutes:
            yield "tasks", lambda: iter([tasks_table(task_minutes(), names)])
            yield "usage", usage_tables
        if aside.events:
            yield "events", lambda: iter([events_table(event_columns(aside.events, names))])
        if aside.hosts:
            yield "hosts", lambda: iter([hosts_table(host_columns(aside.hosts, names))])

    def _set_aside(self, kind: str, start: int, chunks: Callable[[], Iterator[SampleRows]]) -> None:
        """Set seconds aside as plain arrays: what was wrong with them can still be found out."""
        log.exception("history cannot be written and was set aside kind=%s start=%d", kind, start)
        if kind == "raw":
            save_rows(self.files.manifest.aside(), start, chunks(), self.feed.names)
        self.files.manifest.quarantined.append(f"{kind}/{kind}-{start}")


def _by_gpus(kind: str, rollup: Rollup, names: SlotNames) -> Iterator[Table]:
    """Yield row groups of some GPUs each, of much the same size."""
    ends = np.append(np.flatnonzero(np.diff(rollup.slot)) + 1, len(rollup))
    pieces = max(1, round(len(rollup) / GROUP_ROWS))
    cuts = ends[np.searchsorted(ends, np.linspace(0, len(rollup), pieces + 1)[1:])]
    for first, last in pairwise([0, *np.unique(cuts).tolist()]):
        part = take_rows(rollup, np.s_[first:last])
        yield rollup_table(kind, part, names.columns(part.slot, part.t))
