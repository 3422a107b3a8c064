"""Spans of history as grids, from files and from memory, for rules: live, the minute that is
closed; in a rehearsal, all of a span. Runs in native threads, never on the event loop."""

from collections.abc import Iterator, Sequence

import numpy as np

from .columns import AT, SLOW_KEYS
from .grid import SEEN, HistoryGrid, TaskRows, Wanted, XidRow, part_of, seldom_part
from .memory import SampleRows, joined
from .parquet import MINUTE_S, tasks_table
from .reading import (
    HELD,
    held_part,
    held_parts,
    seen_parts,
    seldom_parts,
    wide_parts,
    xid_rows,
)
from .rollup import rolled_up
from .rows import SlowMetricRows
from .store import HistoryStore
from .task_minutes import held_in

SELDOM_HOLDS_S = 180  # as core/slow.py: agents say it anew every minute, two may be lost


class RuleHistoryReader:
    def __init__(self, store: HistoryStore) -> None:
        self._store = store

    def minute(self, start: int, wanted: Wanted) -> HistoryGrid:
        """One that ended just now, which no file has yet."""
        grid = HistoryGrid(start, MINUTE_S, 1)
        with self._store.lock:
            rows = self._memory(grid, wanted)
        self._add_memory(grid, wanted, rows)
        return grid

    def past(self, wanted: Wanted, grid: HistoryGrid) -> None:
        """Fills it: whole minutes, or seconds as long as those are kept."""
        kind = "minutes" if grid.step_s == MINUTE_S else "raw"
        live = {key: ends for key, ends in wanted.items() if key in AT}
        seldom = [key for key in wanted if key not in AT]
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                grid.make_room(files.rows(kind, grid.t0, grid.ends_at) // max(1, grid.width))
                rows, told = self._memory(grid, live), self._seldom_memory(grid, seldom)
            self._add_memory(grid, live, rows)
            self._add_seldom_memory(grid, seldom, told)
            for path in files.find(kind, grid.t0, grid.ends_at) if live else ():
                for part in wide_parts(path, kind, live, (grid.t0, grid.ends_at)):
                    grid.add(part)
            for path in files.find("slow", grid.t0, grid.ends_at) if seldom else ():
                for part in seldom_parts(path, seldom, (grid.t0, grid.ends_at), grid.step_s):
                    grid.add(part)
        for key in seldom:
            grid.carry(key, SELDOM_HOLDS_S)

    def held(self, t0: int, t1: int, wanted: Sequence[str] = HELD) -> Iterator[TaskRows]:
        """Who held what, by the minute; `wanted`: of its columns."""
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                feed = self._store.feed
                feed.tally.add_up()
                open_ones = held_in([*feed.tally.blocks.values(), *(
                    part for aside in feed.closed_asides.values() for part in aside.minutes)])
                memory = held_part(tasks_table(open_ones, feed.names), (t0, t1), wanted)
            yield memory
            for path in files.find("tasks", t0, t1):
                yield from held_parts(path, (t0, t1), wanted)

    def seen(self, grid: HistoryGrid) -> None:
        """Fills it with SEEN: whether a Gpu was heard of says nothing of what it told."""
        kind = "minutes" if grid.step_s == MINUTE_S else "raw"
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                grid.make_room(files.rows(kind, grid.t0, grid.ends_at) // max(1, grid.width))
                feed = self._store.feed
                rows = list(feed.head.rows(feed.slots_of(None, None), grid.t0, grid.ends_at, ()))
            self._add_seen_memory(grid, rows)
            for path in files.find(kind, grid.t0, grid.ends_at):
                for part in seen_parts(path, kind, (grid.t0, grid.ends_at)):
                    grid.add(part)

    def xids(self, t0: float, t1: float) -> list[XidRow]:
        with self._store.reading() as files:
            with self._store.lock:
                files.look()
                feed = self._store.feed
                found = [(t, key[0], event.gpu_uuid, dict(event.numbers))
                         for asides in (feed.asides, feed.closed_asides)
                         for aside in asides.values() for key, (t, event) in aside.events.items()
                         if event.kind == "xid" and event.gpu_uuid is not None and t0 <= t < t1]
            for path in files.find("events", int(t0), int(t1) + 1):
                found += xid_rows(path, (t0, t1))
        return found

    def begins(self, step_s: int) -> int | None:
        """From when on there is any; None: there is none."""
        kind = "minutes" if step_s == MINUTE_S else "raw"
        with self._store.lock:
            found = [one.start for one in self._store.manifest.segments.values()
                     if one.kind == kind]
            found += list(self._store.feed.head.open)
        return min(found, default=None)

    def _memory(self, grid: HistoryGrid, wanted: Wanted) -> list[SampleRows]:
        """Under the lock, copies: what is made of them is made outside of it."""
        feed, columns = self._store.feed, {AT[key] for key in wanted}
        return list(feed.head.rows(feed.slots_of(None, None), grid.t0, grid.ends_at, columns)
                    ) if columns else []

    def _seldom_memory(self, grid: HistoryGrid, keys: Sequence[str]) -> list[SlowMetricRows]:
        feed = self._store.feed
        return [part for asides in (feed.asides, feed.closed_asides) for aside in asides.values()
                for part in aside.slow if grid.t0 <= part.t < grid.ends_at] if keys else []

    def _add_memory(self, grid: HistoryGrid, wanted: Wanted, parts: list[SampleRows]) -> None:
        rows, names = joined(parts), self._store.feed.names
        if not len(rows):
            return
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        rolled = rolled_up(rows, grid.step_s, {AT[key] for key in wanted})
        grid.add(part_of(rolled, names.gpus, names.nodes, wanted))

    def _add_seen_memory(self, grid: HistoryGrid, parts: list[SampleRows]) -> None:
        rows, names = joined(parts), self._store.feed.names
        if not len(rows):
            return
        rows = rows.take(np.lexsort((rows.t, rows.slot)))
        rolled = rolled_up(rows, grid.step_s, ())
        part = part_of(rolled, names.gpus, names.nodes, {})
        part.n[SEEN] = rolled.seconds
        if grid.step_s == 1:
            part.values[SEEN, "mean"] = rows.state.astype(np.float32) - 1
        grid.add(part)

    def _add_seldom_memory(self, grid: HistoryGrid, keys: Sequence[str],
                           told: list[SlowMetricRows]) -> None:
        if not told:
            return
        names = self._store.feed.names
        slot = np.concatenate([part.slot for part in told])
        t = np.concatenate([np.full(len(part.slot), part.t, np.int64) for part in told])
        by = np.lexsort((t, slot))
        found = {}
        for key in keys:
            at = SLOW_KEYS.index(key)
            found[key] = np.concatenate([
                np.where(part.absent[:, at] == 0, part.values[:, at], np.nan) for part in told])[by]
        used, name_at = np.unique(slot[by], return_inverse=True)
        grid.add(seldom_part([(names.gpus[one], names.nodes[one]) for one in used.tolist()],
                             name_at, t[by], found, grid.step_s))
