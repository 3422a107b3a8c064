"""One number of all rows over a span of time that rolls along: in at most 60 buckets and the one
that is open, cut at whole multiples of their length, so that a rehearsal cuts them alike."""

import math

import numpy as np
import numpy.typing as npt

from .signal import Floats, How, Term

MOST_BUCKETS = 60


class Window:
    """Of one Term. A row without enough samples in the span has no value."""

    def __init__(self, term: Term, period_s: int, min_coverage: float, room: int = 0) -> None:
        self.term = term
        self._period_s = period_s
        self._length_s = max(period_s, math.ceil(term.span_s / MOST_BUCKETS))
        self._buckets = math.ceil(term.span_s / self._length_s)
        # Of the span the open bucket is a part: with it there is at most one bucket too much.
        self._needed = max(1.0, min_coverage * term.span_s / period_s)
        self._kind = _KINDS[term.how]
        self._at: int | None = None  # number of the open bucket
        self._make(room)

    def _make(self, room: int) -> None:
        self._ring = np.full((self._buckets, room), self._kind.nothing)
        self._counts = np.zeros((self._buckets, room), np.uint16)
        self._closed = np.full(room, self._kind.nothing)
        self._closed_n = np.zeros(room)
        self._open = np.full(room, self._kind.nothing)
        self._open_n = np.zeros(room)
        self._former = np.full(room, np.nan)  # of a counter

    def grow(self, room: int) -> None:
        old_room = len(self._open)
        if room <= old_room:
            return
        old = {name: getattr(self, name) for name in self.ARRAYS}
        self._make(room)
        for name, array in old.items():
            getattr(self, name)[..., :old_room] = array

    ARRAYS = ("_ring", "_counts", "_closed", "_closed_n", "_open", "_open_n", "_former")

    def forget(self, rows: npt.NDArray[np.intp]) -> None:
        """These rows belong to somebody else from now on."""
        for name, nothing in (("_ring", self._kind.nothing), ("_counts", 0),
                              ("_closed", self._kind.nothing), ("_closed_n", 0),
                              ("_open", self._kind.nothing), ("_open_n", 0), ("_former", np.nan)):
            getattr(self, name)[..., rows] = nothing

    def take(self, second: int, values: Floats) -> None:
        """NaN: no new sample in that row."""
        self._turn(second // self._length_s)
        there = ~np.isnan(values)
        if self._kind.is_counter:
            there, values = self._increments(there, values)
        self._open = np.where(there, self._kind.join(self._open, values), self._open)
        self._open_n += there

    def _increments(self, there: npt.NDArray[np.bool_], values: Floats
                    ) -> tuple[npt.NDArray[np.bool_], Floats]:
        """A counter that fell has begun anew: all it says has come since."""
        grown = np.where(values < self._former, values, values - self._former)
        first = np.isnan(self._former)
        self._former = np.where(there, values, self._former)
        return there, np.where(first, 0.0, grown)

    def _turn(self, bucket: int) -> None:
        if self._at is None or bucket < self._at:
            self._at = bucket
        turns = bucket - self._at
        if turns == 0:
            return
        for turn in range(min(turns, self._buckets)):
            place = (bucket - 1 - turn) % self._buckets
            is_open = turn == turns - 1
            self._closed_n -= self._counts[place]
            self._ring[place] = self._open if is_open else self._kind.nothing
            self._counts[place] = self._open_n if is_open else 0
            self._closed_n += self._counts[place]
        self._at = bucket
        self._closed = self._kind.reduce(self._ring)
        self._open[:] = self._kind.nothing
        self._open_n[:] = 0

    def values(self) -> Floats:
        n = self._closed_n + self._open_n
        total = self._kind.join(self._closed, self._open)
        match self.term.how:
            case "avg":
                total = total / np.maximum(n, 1)
            case "rate":
                total = total / np.maximum(n * self._period_s, 1)
        return np.where(n >= self._needed, total, np.nan)


class _Kind:
    def __init__(self, how: How) -> None:
        self.is_counter = how in ("rate", "increase")
        self.nothing = {"min": np.inf, "max": -np.inf}.get(how, 0.0)
        self.join = {"min": np.fmin, "max": np.fmax}.get(how, np.add)
        self.reduce = {"min": _least, "max": _most}.get(how, _sum)


def _least(ring: Floats) -> Floats:
    return np.asarray(ring.min(axis=0))


def _most(ring: Floats) -> Floats:
    return np.asarray(ring.max(axis=0))


def _sum(ring: Floats) -> Floats:
    return np.asarray(ring.sum(axis=0))


_KINDS: dict[How, _Kind] = {how: _Kind(how) for how in ("avg", "min", "max", "rate", "increase")}
