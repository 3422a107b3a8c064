"""The newest seconds, in memory: one array per metric, one row per second, one column per slot.

A slot is a Gpu on a Node and is never reused while this runs. Every second of a slot is taken once:
the first that comes wins, whether it comes late, doubled or out of order. A block is open until it
is sealed into a file; what comes for it afterwards waits as rows of its own for a file beside it.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import STORED, Ints

BLOCK_S = 300
MAX_PASTS = 8
ALL = range(len(STORED))

Bools = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.intp]


@dataclass(slots=True)
class Rows:
    """One row per second and slot, in any order. `state` is 1 + the index into GPU_STATES."""

    slot: Slots
    t: Ints
    state: npt.NDArray[np.uint8]
    missing: Ints
    units: list[npt.NDArray[Any]]  # one array per stored column

    def __len__(self) -> int:
        return len(self.slot)

    def take(self, which: npt.NDArray[Any]) -> "Rows":
        return Rows(self.slot[which], self.t[which], self.state[which], self.missing[which],
                    [array[which] for array in self.units])


def no_rows() -> Rows:
    return Rows(np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0, np.uint8),
                np.zeros(0, np.int64), [np.zeros(0, column.dtype) for column in STORED])


def joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return no_rows()
    return Rows(np.concatenate([part.slot for part in parts]),
                np.concatenate([part.t for part in parts]),
                np.concatenate([part.state for part in parts]),
                np.concatenate([part.missing for part in parts]),
                [np.concatenate([part.units[at] for part in parts]) for at in range(len(STORED))])


@dataclass(slots=True)
class Batch:
    """What came at once: steps are rows x stored columns."""

    slot: Slots
    t: Ints
    state: npt.NDArray[np.uint8]  # 1 + index into GPU_STATES
    missing: Ints
    steps: npt.NDArray[np.float64]

    def take(self, which: npt.NDArray[Any]) -> "Batch":
        return Batch(self.slot[which], self.t[which], self.state[which], self.missing[which],
                     self.steps[which])

    def rows(self) -> Rows:
        return Rows(self.slot, self.t, self.state, self.missing,
                    [self.steps[:, at].astype(column.dtype) for at, column in enumerate(STORED)])


class Block:
    """Five open minutes. Seconds x slots; a state of 0 is a hole."""

    def __init__(self, start: int, room: int) -> None:
        self.start = start
        self.first_segment: int | None = None
        self._allocate(room)

    def _allocate(self, room: int) -> None:
        self.state = np.zeros((BLOCK_S, room), np.uint8)
        self.missing = np.zeros((BLOCK_S, room), np.int64)
        self.units = [np.zeros((BLOCK_S, room), column.dtype) for column in STORED]

    def grow(self, wanted: int) -> None:
        had = self.state.shape[1]
        if wanted <= had:
            return
        state, missing, units = self.state, self.missing, self.units
        self._allocate(max(wanted, 2 * had))
        self.missing[:, :had] = missing
        for new, old in zip(self.units, units, strict=True):
            new[:, :had] = old
        self.state[:, :had] = state

    def place(self, batch: Batch) -> Bools:
        """Which of them were new. The state comes last: who sees it sees the row."""
        at = batch.t - self.start
        self.grow(int(batch.slot.max(initial=-1)) + 1)
        new = _first_of_each(at * self.state.shape[1] + batch.slot)
        new &= self.state[at, batch.slot] == 0
        rows, slots = (at, batch.slot) if new.all() else (at[new], batch.slot[new])
        steps, whole = batch.steps, new.all()
        for column, array in enumerate(self.units):
            array[rows, slots] = steps[:, column] if whole else steps[new, column]
        self.missing[rows, slots] = batch.missing if whole else batch.missing[new]
        self.state[rows, slots] = batch.state if whole else batch.state[new]
        return new

    def rows(self, slots: Slots, t0: int | None = None, t1: int | None = None,
             only: Collection[int] = ALL) -> Rows:
        """By slot as given, then by second. Of columns that are not asked for, zeros."""
        first = 0 if t0 is None else min(BLOCK_S, max(0, t0 - self.start))
        last = BLOCK_S if t1 is None else min(BLOCK_S, max(0, t1 - self.start))
        slots = slots[slots < self.state.shape[1]]
        part = np.s_[first:last, slots]
        state = self.state[part].T
        there = state != 0
        at_slot, at_second = np.nonzero(there)
        none = np.broadcast_to(np.int8(0), len(at_slot))
        return Rows(slots[at_slot], at_second + (self.start + first), state[there],
                    self.missing[part].T[there],
                    [array[part].T[there] if at in only else none
                     for at, array in enumerate(self.units)])

    @property
    def seen(self) -> Bools:
        seen: Bools = self.state != 0
        return seen

    @property
    def row_count(self) -> int:
        return int(np.count_nonzero(self.state))


def _first_of_each(key: npt.NDArray[Any]) -> Bools:
    """Of rows with the same key, the first."""
    _, first = np.unique(key, return_index=True)
    new = np.zeros(len(key), bool)
    new[first] = True
    return new


@dataclass(slots=True)
class Past:
    """A block that lies in files: which seconds it has, and what came for it since."""

    seen: Bools
    late: list[Rows] = field(default_factory=list)
    first_segment: int | None = None

    def place(self, start: int, batch: Batch) -> Bools:
        if (wanted := int(batch.slot.max(initial=-1)) + 1) > self.seen.shape[1]:
            grown = np.zeros((BLOCK_S, wanted), bool)
            grown[:, : self.seen.shape[1]] = self.seen
            self.seen = grown
        at = batch.t - start
        new = _first_of_each(at * self.seen.shape[1] + batch.slot)
        new &= ~self.seen[at, batch.slot]
        if new.any():
            self.seen[at[new], batch.slot[new]] = True
            self.late.append(batch.take(new).rows())
        return new


class Head:
    """All that is not in a file yet."""

    def __init__(self, seen_in_files: Callable[[int], Bools | None]) -> None:
        """`seen_in_files`: of a block that begins there, seconds x slots; None: there is none."""
        self._seen_in_files = seen_in_files
        self.open: dict[int, Block] = {}
        self.closed: dict[int, Block] = {}  # on their way into a file
        self.pasts: OrderedDict[int, Past] = OrderedDict()
        self.doubled = 0

    def place(self, batch: Batch, now: int, segment: int) -> Bools:
        """Which rows were new. No block is opened that began before the one before that of
        `now`."""
        new = np.zeros(len(batch.slot), bool)
        starts = batch.t - batch.t % BLOCK_S
        for start in np.unique(starts).tolist():
            which = np.flatnonzero(starts == start)
            new[which] = self._place(start, batch.take(which), now, segment)
        self.doubled += len(new) - int(np.count_nonzero(new))
        return new

    def _place(self, start: int, batch: Batch, now: int, segment: int) -> Bools:
        home = self._home(start, now)
        new = home.place(batch) if isinstance(home, Block) else home.place(start, batch)
        if home.first_segment is None and new.any():
            home.first_segment = segment
        return new

    def _home(self, start: int, now: int) -> Block | Past:
        if start in self.open:
            return self.open[start]
        if start in self.pasts:
            self.pasts.move_to_end(start)
            return self.pasts[start]
        seen = self._seen_in_files(start)
        if seen is None and start >= now - now % BLOCK_S - BLOCK_S:
            room = max((block.state.shape[1] for block in self.open.values()), default=64)
            self.open[start] = Block(start, room)
            return self.open[start]
        return self._remember(start, Past(np.zeros((BLOCK_S, 64), bool) if seen is None else seen))

    def _remember(self, start: int, past: Past) -> Past:
        self.pasts[start] = past
        idle = [start for start, kept in self.pasts.items()
                if not kept.late and start not in self.closed]
        for old in idle[:-MAX_PASTS]:
            del self.pasts[old]
        return past

    def close(self, start: int) -> Block:
        """Nothing is placed in it any more."""
        block = self.closed[start] = self.open.pop(start)
        self._remember(start, Past(block.seen))
        return block

    def sealed(self, start: int) -> None:
        """It is in a file now."""
        del self.closed[start]

    def late(self) -> dict[int, list[Rows]]:
        return {start: list(past.late) for start, past in self.pasts.items() if past.late}

    def written(self, late: dict[int, list[Rows]], segment: int) -> None:
        """These late rows are in files now; what came meanwhile came with this segment or later."""
        for start, parts in late.items():
            past = self.pasts[start]
            past.late = past.late[len(parts):]
            past.first_segment = segment if past.late else None

    def first_segment(self) -> int | None:
        """Of the log, the oldest segment that holds what is in no file."""
        homes: list[Block | Past] = [*self.open.values(), *self.closed.values(),
                                      *self.pasts.values()]
        return min((home.first_segment for home in homes if home.first_segment is not None),
                   default=None)

    def rows(self, slots: Slots, t0: int, t1: int, only: Collection[int] = ALL
             ) -> Iterator[Rows]:
        wanted = np.zeros(int(slots.max(initial=-1)) + 1, bool)
        wanted[slots] = True
        for block in (*self.open.values(), *self.closed.values()):
            if block.start < t1 and t0 < block.start + BLOCK_S:
                yield block.rows(slots, t0, t1, only)
        for past in list(self.pasts.values()):
            for late in list(past.late):
                known = late.slot < len(wanted)
                hit = np.zeros(len(late), bool)
                hit[known] = wanted[late.slot[known]]
                hit &= (late.t >= t0) & (late.t < t1)
                if hit.any():
                    yield late.take(hit)
