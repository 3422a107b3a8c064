"""The newest seconds, in memory: one array per metric, one row per second, one column per slot.

A slot is a GPU on a Node and is never reused while this runs. Every second of a slot is taken once,
into the block of five minutes that it is in. A block is closed some time after its end and sealed
into a file; what comes for it afterwards waits as separate rows for a file beside it.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import Bools, Floats, Ints, Slots, concat_rows, runs, take_rows
from .layout import AT, KEYS, STORED, missing_at

BLOCK_S = 300
MAX_PASTS = 8
SPARSE = 16  # places there may be for each row that comes


@dataclass(slots=True)
class SampleRows:
    """Rows of one second and slot each, in any order. `state` is 1 + the index into GPU_STATES."""

    slot: Slots
    t: Ints
    state: npt.NDArray[np.uint8]
    missing: Ints
    units: dict[str, npt.NDArray[Any]]  # of each metric that was asked for

    def __len__(self) -> int:
        return len(self.slot)

    def why(self, key: str) -> Ints:
        """Return per row why it is missing."""
        return missing_at(self.missing, AT[key])

    def values(self, key: str) -> Floats:
        """Return its values; NaN: not there."""
        values = self.units[key].astype(np.float64) * STORED[AT[key]].step
        return np.where(self.why(key) != 0, np.nan, values)


def together(parts: Iterable[SampleRows], only: Collection[str] = KEYS) -> SampleRows:
    """Join parts; `only`: of none, the metrics."""
    return concat_rows([*parts] or [SampleRows(
        np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int64),
        {key: np.zeros(0, STORED[AT[key]].dtype) for key in only})])


def in_order(parts: Iterable[SampleRows]) -> SampleRows:
    """Join parts, by slot, then by time."""
    rows = together(parts)
    return take_rows(rows, np.lexsort((rows.t, rows.slot)))


@dataclass(slots=True)
class SampleBatch:
    """Rows that came at once: steps are rows x stored columns."""

    slot: Slots
    t: Ints
    state: npt.NDArray[np.uint8]  # 1 + index into GPU_STATES
    missing: Ints
    steps: npt.NDArray[np.float64]

    def rows(self) -> SampleRows:
        return SampleRows(self.slot, self.t, self.state, self.missing,
                          {column.key: self.steps[:, at].astype(column.dtype)
                           for at, column in enumerate(STORED)})


class MemoryBlock:
    """Five open minutes. Seconds x places; a state of 0 is a hole.

    Each column is as narrow as what came so far: half of the memory. Why numbers are missing is an
    index into `codes`, since a fleet has few ways to lack them. Slots that were known when it began
    lie in the order of files, so that what a file takes at once lies together.
    """

    def __init__(self, start: int, room: int, order: Slots) -> None:
        self.start = start
        self.first_segment: int | None = None
        self._place_of = np.argsort(order)  # slots that came later lie where their number says
        room = max(room, len(order))
        self.codes = [0]
        self._code_of = {0: 0}
        self.state = _zeros(room, np.uint8)
        self.why = _zeros(room, np.uint8)
        self.units = [_zeros(room, column.narrow) for column in STORED]
        self._least, self._most = (np.array(ends, np.float64) for ends in zip(*(
            (np.iinfo(column.narrow).min, np.iinfo(column.narrow).max) for column in STORED),
            strict=True))

    def grow(self, needed: int) -> None:
        if (count := len(self._place_of)) < needed:
            self._place_of = np.append(self._place_of, np.arange(count, needed))
        if needed <= self.state.shape[1]:
            return
        room = needed + needed // 4
        last = self._seconds()
        self.why = _moved(self.why, room, self.why.dtype.type, last)
        self.units = [_moved(array, room, array.dtype.type, last) for array in self.units]
        self.state = _moved(self.state, room, np.uint8, last)

    def _seconds(self) -> int:
        """Return how many seconds, from the first, have samples; nothing is in those behind."""
        return int(np.flatnonzero(self.state.any(axis=1)).max(initial=-1)) + 1

    def _widen(self, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> None:
        for at in np.flatnonzero((low < self._least) | (high > self._most)).tolist():
            had = self.units[at]
            self.units[at] = _moved(had, had.shape[1], STORED[at].dtype, self._seconds())
            self._least[at], self._most[at] = -np.inf, np.inf

    def _why_of(self, missing: Ints) -> npt.NDArray[np.intp]:
        """Return the index of each code."""
        first = int(missing[0])
        if (missing == first).all():
            return np.full(len(missing), self._index_of(first), np.intp)
        codes, at = np.unique(missing, return_inverse=True)
        return np.array([self._index_of(code) for code in codes.tolist()], np.intp)[at]

    def _index_of(self, code: int) -> int:
        index = self._code_of.get(code)
        if index is None:
            index = self._code_of[code] = len(self.codes)
            self.codes.append(code)
            if index in (2**8, 2**16):
                wider = np.uint16 if index == 2**8 else np.uint32
                self.why = _moved(self.why, self.why.shape[1], wider, self._seconds())
        return index

    def place(self, batch: SampleBatch) -> Bools:
        """Place rows; return which were new. State comes last: who sees it sees the whole row."""
        at = batch.t - self.start
        self.grow(int(batch.slot.max(initial=-1)) + 1)
        flat = at * self.state.shape[1] + self._place_of[batch.slot]
        new = _first_of_each(flat)
        new &= self.state.reshape(-1)[flat] == 0
        if not new.all():
            batch, flat = take_rows(batch, new), flat[new]
        if len(flat):
            self._put(batch, flat)
        return new

    def _put(self, batch: SampleBatch, flat: npt.NDArray[Any]) -> None:
        steps = np.ascontiguousarray(batch.steps.T)
        self._widen(steps.min(axis=1), steps.max(axis=1))
        why = self._why_of(batch.missing)
        for values, array in zip(steps, self.units, strict=True):
            array.reshape(-1)[flat] = values.astype(array.dtype)
        self.why.reshape(-1)[flat] = why.astype(self.why.dtype)
        self.state.reshape(-1)[flat] = batch.state

    def rows(self, slots: Slots, t0: int | None = None, t1: int | None = None,
             only: Collection[str] = KEYS) -> SampleRows:
        """Return rows by slot as given, then by second."""
        first = 0 if t0 is None else min(BLOCK_S, max(0, t0 - self.start))
        last = BLOCK_S if t1 is None else min(BLOCK_S, max(0, t1 - self.start))
        slots = slots[slots < len(self._place_of)]
        places = self._place_of[slots]
        state = _turned(self.state, places, first, last)
        hits = np.flatnonzero(state)
        seconds = max(1, last - first)
        at_slot = hits // seconds
        why = _turned(self.why, places, first, last).take(hits)
        return SampleRows(slots[at_slot], hits - at_slot * seconds + (first + self.start),
                          state.take(hits), np.array(self.codes, np.int64)[why],
                          {key: _turned(self.units[AT[key]], places, first, last).take(hits)
                           for key in only})

    @property
    def filled(self) -> Bools:
        """Samples that there are: seconds x slots."""
        return np.asarray(self.state.take(self._place_of, axis=1) != 0)

    @property
    def row_count(self) -> int:
        return int(np.count_nonzero(self.state))


def _zeros(room: int, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """Allocate straight from the system, which gives a page when it is written to and takes it back
    at the end: malloc would do neither with pieces of this size. Not shared, as it is by itself:
    then a page that is only read is given, too."""
    size = max(1, BLOCK_S * room * np.dtype(kind).itemsize)
    return np.frombuffer(mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS), kind, BLOCK_S * room
                         ).reshape(BLOCK_S, room)


def _moved(array: npt.NDArray[Any], room: int, kind: type[np.integer[Any]], last: int
           ) -> npt.NDArray[Any]:
    """Copy to other room, or wider; `last`: nothing is in the seconds from there on."""
    new = _zeros(room, kind)
    new[:last, : array.shape[1]] = array[:last]
    return new


def _turned(array: npt.NDArray[Any], places: Slots, first: int, last: int) -> npt.NDArray[Any]:
    """Return them place by place. Picked row by row and then turned: to go down the columns of the
    whole would be a miss of the cache per number."""
    part = array[first:last]
    low, high = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    if high - low == len(places) and (places[1:] > places[:-1]).all():
        part = np.ascontiguousarray(part[:, low:high])
    else:
        part = part.take(places, axis=1)
    turned: npt.NDArray[Any] = np.ascontiguousarray(part.T).reshape(-1)
    return turned


def _first_of_each(key: npt.NDArray[Any]) -> Bools:
    """Return which rows are the first of those with the same key."""
    if (key[1:] > key[:-1]).all():
        return np.ones(len(key), bool)
    near = key - key.min()
    if (span := int(near.max()) + 1) <= SPARSE * len(key):  # cheaper than to sort them
        at = np.arange(len(key))
        first = np.zeros(span, np.intp)
        first[near[::-1]] = at[::-1]
        is_first: Bools = first[near] == at
        return is_first
    _, firsts = np.unique(key, return_index=True)
    new = np.zeros(len(key), bool)
    new[firsts] = True
    return new


@dataclass(slots=True)
class SealedBlock:
    """A block that lies in files: which seconds it has, a bit each, and what came for it since."""

    start: int
    filled: npt.NDArray[np.uint8]
    late: list[SampleRows] = field(default_factory=list)
    first_segment: int | None = None

    def place(self, batch: SampleBatch) -> Bools:
        if (width := int(batch.slot.max(initial=-1)) // 8 + 1) > self.filled.shape[1]:
            grown = np.zeros((BLOCK_S, width), np.uint8)
            grown[:, : self.filled.shape[1]] = self.filled
            self.filled = grown
        at, byte = batch.t - self.start, batch.slot // 8
        bit = np.uint8(128) >> (batch.slot % 8).astype(np.uint8)
        new = _first_of_each(at * self.filled.shape[1] * 8 + batch.slot)
        new &= self.filled[at, byte] & bit == 0
        if new.any():
            np.bitwise_or.at(self.filled, (at[new], byte[new]), bit[new])
            self.late.append(take_rows(batch, new).rows())
        return new


class HistoryMemory:
    """Seconds that are not in a file yet."""

    def __init__(self, seen_in_files: Callable[[int], Bools | None], order: Callable[[], Slots]
                 ) -> None:
        """`seen_in_files`: of a block that begins there, seconds x slots; None: there is none.
        `order`: slots as files are sorted."""
        self._seen_in_files = seen_in_files
        self._order = order
        self.open: dict[int, MemoryBlock] = {}
        self.closed: dict[int, MemoryBlock] = {}  # on their way into a file
        self.pasts: OrderedDict[int, SealedBlock] = OrderedDict()
        self.doubled = 0

    def place(self, batch: SampleBatch, now: int, segment: int) -> Bools:
        """Place rows; return which were new. No block is opened that began before the one before
        that of `now`."""
        starts = batch.t - batch.t % BLOCK_S
        new = np.zeros(len(starts), bool)
        for start in np.unique(starts[runs(starts)]).tolist():
            which = starts == start
            part = batch if which.all() else take_rows(batch, which)
            new[which] = self._place(start, part, now, segment)
        self.doubled += len(new) - int(np.count_nonzero(new))
        return new

    def _place(self, start: int, batch: SampleBatch, now: int, segment: int) -> Bools:
        home = self._home(start, now)
        new = home.place(batch)
        if home.first_segment is None and new.any():
            home.first_segment = segment
        return new

    def _home(self, start: int, now: int) -> MemoryBlock | SealedBlock:
        if start in self.open:
            return self.open[start]
        if start in self.pasts:
            self.pasts.move_to_end(start)
            return self.pasts[start]
        filled = self._seen_in_files(start)
        if filled is None and start >= now - now % BLOCK_S - BLOCK_S:
            room = max((block.state.shape[1] for block in self.open.values()), default=64)
            self.open[start] = MemoryBlock(start, room, self._order())
            return self.open[start]
        return self._remember(start, np.zeros((BLOCK_S, 64), bool) if filled is None else filled)

    def _remember(self, start: int, filled: Bools) -> SealedBlock:
        past = self.pasts[start] = SealedBlock(start, np.packbits(filled, axis=1))
        idle = [old for old, block in self.pasts.items()
                if not block.late and old not in self.closed]
        for old in idle[:-MAX_PASTS]:
            del self.pasts[old]
        return past

    def forget_files(self) -> None:
        """Forget which rows are in files, save beside rows that are in none yet."""
        for start in [start for start, past in self.pasts.items()
                      if not past.late and start not in self.closed]:
            del self.pasts[start]

    def close(self, start: int) -> MemoryBlock:
        """Close a block: nothing is placed in it any more."""
        block = self.closed[start] = self.open.pop(start)
        self._remember(start, block.filled)
        return block

    def mark_sealed(self, start: int) -> None:
        """Drop a block, which is in a file now."""
        del self.closed[start]

    def late(self) -> dict[int, list[SampleRows]]:
        return {start: list(past.late) for start, past in self.pasts.items() if past.late}

    def mark_written(self, late: dict[int, list[SampleRows]], segment: int) -> None:
        """Drop late rows that are in files now; what came since came with this segment or later."""
        for start, parts in late.items():
            past = self.pasts[start]
            past.late = past.late[len(parts):]
            past.first_segment = segment if past.late else None

    def first_segment(self) -> int | None:
        """Return the oldest segment of the log that holds what is in no file."""
        homes: list[MemoryBlock | SealedBlock] = [*self.open.values(), *self.closed.values(),
                                                   *self.pasts.values()]
        return min((home.first_segment for home in homes if home.first_segment is not None),
                   default=None)

    def rows(self, slots: Slots, t0: int, t1: int, only: Collection[str] = KEYS
             ) -> Iterator[SampleRows]:
        is_wanted = np.zeros(int(slots.max(initial=-1)) + 1, bool)
        is_wanted[slots] = True
        for block in (*self.open.values(), *self.closed.values()):
            if block.start < t1 and t0 < block.start + BLOCK_S:
                yield block.rows(slots, t0, t1, only)
        for past in list(self.pasts.values()):
            for late in list(past.late) if past.start < t1 and t0 < past.start + BLOCK_S else ():
                hit = (late.t >= t0) & (late.t < t1)
                if hit.any():  # few are of the time that is asked for, in a block that has many
                    in_range = late.slot < len(is_wanted)
                    hit[~in_range] = False
                    hit[in_range] &= is_wanted[late.slot[in_range]]
                if hit.any():
                    units = {key: late.units[key] for key in only}
                    yield take_rows(replace(late, units=units), hit)
