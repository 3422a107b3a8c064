"""Spans of history as grids, from files and from memory, for rules: live, the minute that is
closed; in a rehearsal, all of a span. Runs in native threads, never on the event loop."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from ..columns.arrays import take_rows
from ..columns.arrow_columns import Table
from ..columns.grid import GpuMetricRows, HistoryGrid, TaskRows, Wanted, XidRow, seldom_part
from ..columns.layout import AT
from ..columns.task_minutes import TASK_SUMS, TASK_TOPS
from ..files.parquet import MINUTE_S, TASK_WORDS
from ..files.reading import (
    PLACE,
    fill_wide,
    held_part,
    seen_part,
    tables_in,
    wide_columns,
    wide_part,
    within,
    xid_rows,
)
from ..files.store import HistoryStore
from .memory_reads import MemoryReader
from .point_reads import STEP_S, HistoryPointReader

SELDOM_HOLDS_S = 180  # as live (fleet/frame_table.py): repeated each minute, two may be lost
HELD = (*TASK_WORDS[:4], *TASK_SUMS, *TASK_TOPS)


class RuleHistoryReader:
    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._memory = MemoryReader(store.feed)
        self._points = HistoryPointReader(store.files.cache)

    def minute(self, start: int, metrics: Wanted) -> HistoryGrid:
        """Read a minute that ended just now, which no file has yet."""
        grid = HistoryGrid(start, MINUTE_S, 1)
        with self._store.lock:
            table = self._memory.table("minutes", (start, grid.ends_at), [*metrics])
        grid.add(wide_part("minutes", metrics, table()))
        return grid

    def past(self, metrics: Wanted, grid: HistoryGrid) -> None:
        """Fill the grid: whole minutes, or seconds as long as those are kept."""
        live = {key: ends for key, ends in metrics.items() if key in AT}
        seldom: Wanted = {key: frozenset(("mean",)) for key in metrics if key not in AT}
        kind = _kind(grid.step_s)
        if live:
            self._fill_live(grid, kind, live)
        if seldom:
            self._fill(grid, "slow", (*PLACE, *wide_columns("slow", seldom)), [],
                       partial(wide_part, "slow", seldom))
        for key in seldom:
            grid.carry(key, SELDOM_HOLDS_S)

    def _fill_live(self, grid: HistoryGrid, kind: str, metrics: Wanted) -> None:
        span = grid.t0, grid.ends_at
        with self._store.reading(lambda: self._in_memory(kind, span, metrics)) as (
                files, in_memory):
            grid.make_room(files.rows(kind, *span) // max(1, grid.width))
            in_head = _inside(grid, in_memory())
            if len(in_head.t):
                grid.add(in_head)
            for runs, columns in self._points.rows(kind, files.find(kind, *span),
                                                   wide_columns(kind, metrics), span):
                part = GpuMetricRows(
                    list(zip(runs.gpus.tolist(), runs.nodes.tolist(), strict=True)),
                    np.repeat(runs.pair, runs.length), runs.times(STEP_S[kind]), {}, {})
                grid.add(fill_wide(kind, metrics, part, columns))

    def _in_memory(self, kind: str, span: tuple[int, int], metrics: Wanted
                   ) -> Callable[[], GpuMetricRows]:
        if kind == "raw":
            seconds = self._memory.seconds(span, [*metrics])
            return lambda: fill_wide(kind, metrics, *seconds())
        table = self._memory.table(kind, span, [*metrics])
        return lambda: wide_part(kind, metrics, table())

    def seen(self, grid: HistoryGrid) -> None:
        """Fill a grid of seconds with SEEN: that a GPU was heard of says nothing of what it
        reported."""
        self._fill(grid, "raw", (*PLACE, "state"), [], seen_part)

    def _fill(self, grid: HistoryGrid, kind: str, columns: Sequence[str], metrics: Sequence[str],
              part: Callable[[Table], GpuMetricRows]) -> None:
        for table in self._tables(kind, columns, (grid.t0, grid.ends_at), metrics, grid):
            rows = _inside(grid, part(table))
            if len(rows.t):
                grid.add(seldom_part(rows, grid.step_s) if kind == "slow" else rows)

    def _tables(self, kind: str, columns: Sequence[str], span: tuple[float, float],
                metrics: Sequence[str] = (), grid: HistoryGrid | None = None) -> Iterator[Table]:
        """Yield tables from memory and from files."""
        with self._store.reading(lambda: self._memory.table(kind, span, metrics)) as (
                files, in_memory):
            first, last = int(span[0]), -int(-span[1] // 1)
            if grid is not None:
                grid.make_room(files.rows(_kind(grid.step_s), first, last) // max(1, grid.width))
            yield in_memory()
            for path in files.find(kind, first, last):
                yield from tables_in(path, columns, span)

    def held(self, t0: int, t1: int, columns: Sequence[str] = HELD) -> Iterator[TaskRows]:
        """Read who held what, by the minute; `columns`: only these."""
        for table in self._tables("tasks", (*PLACE, *columns), (t0, t1)):
            yield held_part(within(table, (t0, t1)), columns)

    def xids(self, t0: float, t1: float) -> list[XidRow]:
        columns = ("t", "node", "kind", "gpu", "numbers")
        return [row for table in self._tables("events", columns, (t0, t1))
                for row in xid_rows(within(table, (t0, t1)))]

    def begins(self, step_s: int) -> int | None:
        """Return from when on there is any; None: there is none."""
        with self._store.lock:
            starts = [segment.start for segment in self._store.manifest.of_kind(_kind(step_s))]
            head = self._store.feed.head
            return min([*starts, *head.open, *head.late()], default=None)


def _inside(grid: HistoryGrid, rows: GpuMetricRows) -> GpuMetricRows:
    inside = (rows.t >= grid.t0) & (rows.t < grid.ends_at)
    return rows if inside.all() else take_rows(rows, inside)


def _kind(step_s: int) -> str:
    return "minutes" if step_s == MINUTE_S else "raw"
