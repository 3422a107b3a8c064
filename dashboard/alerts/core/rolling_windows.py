"""One number of all rows over a span of time that rolls along: in at most 60 buckets and an open
one, cut at whole multiples of their length, so that a rehearsal cuts them alike."""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from gpudeck.measures.metrics import COLUMNS, SLOW

from .bucket_ring import BucketRing
from .row_state import RowState, RowValues, SavedWindow
from .rule_signal import Floats, How, SignalTerm

MOST_BUCKETS = 60
SAVED = ("_ring", "_counts", "_open", "_open_n", "_former", "_former_at")
METRICS = {metric.key: metric for metric in (*COLUMNS, *SLOW)}


class RollingWindow(RowState):
    """The window of one term. A row without enough samples in the span has no value."""

    def __init__(self, term: SignalTerm, period_s: int, min_coverage: float, room: int = 0) -> None:
        self.term = term
        self._period_s = period_s
        self._length_s = max(period_s, math.ceil(term.span_s / MOST_BUCKETS))
        self._buckets = math.ceil(term.span_s / self._length_s)
        # The open bucket is part of the span: with it there is at most one bucket too much.
        self._needed = max(1.0, min_coverage * term.span_s / period_s)
        self._kind = _KINDS[term.how]
        self._at: int | None = None  # number of the open bucket
        nothing = self._kind.nothing
        self._ring = BucketRing(self._buckets, nothing, room)
        self._counts = BucketRing(self._buckets, 0.0, room)
        # For min and max: what the ring reduces to.
        self._older = BucketRing(self._buckets if self._kind.is_end else 0, nothing, room)
        self._rings = {"_ring": self._ring, "_counts": self._counts, "_older": self._older}
        self._newer = np.full(1, nothing)
        self._closed = np.full(1, nothing)
        self._closed_n = np.zeros(1)
        self._open = np.full(1, nothing)
        self._open_n = np.zeros(1)
        self._former = np.full(1, np.nan)  # of a counter
        self._former_at = np.full(1, np.nan)
        metric = METRICS.get(term.name)
        self._most_per_s = math.inf if metric is None or metric.most_per_s is None else (
            metric.most_per_s)
        self._begin(room)

    def add(self, second: int, values: Floats, at: Floats | None = None) -> None:
        """Add values; NaN: no new sample in that row. `at`: when each was sampled; None: in this
        second."""
        self._turn(second // self._length_s)
        is_present = ~np.isnan(values)
        if self._kind.is_counter:
            is_present, values = self._increments(
                is_present, values, np.full(len(values), float(second)) if at is None else at)
        # fmin and fmax skip NaN by themselves.
        extended = self._kind.join(self._open, values)
        self._open = extended if self._kind.is_end else np.where(is_present, extended, self._open)
        self._open_n += is_present

    def _increments(self, is_present: npt.NDArray[np.bool_], values: Floats, at: Floats
                    ) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Return where a counter rose, and by how much. A counter that fell was reset: its whole
        value has accrued since. Where that is more than a board can do, as in a recording that
        starts over, the rise is unknown. For a rate each sample says how fast it rose since the one
        before, however long ago that was."""
        rise = np.where(values < self._former, values, values - self._former)
        past_s = at - self._former_at
        past_s = np.where(past_s > 0, np.maximum(np.round(past_s, 3), self._period_s / 10),
                          self._period_s)
        per_s = rise / past_s
        first = np.isnan(self._former)
        is_restarted = ~first & (per_s > self._most_per_s)
        self._former = np.where(is_present, values, self._former)
        self._former_at = np.where(is_present, at, self._former_at)
        if self.term.how == "rate":
            rise = per_s * self._period_s
        return is_present & ~is_restarted, np.where(first | is_restarted, 0.0, rise)

    def _turn(self, bucket: int) -> None:
        if self._at is None or bucket < self._at:
            self._at = bucket
            self._look_back(bucket % self._buckets)
        for number in range(max(self._at, bucket - self._buckets), bucket):
            place, is_open = number % self._buckets, number == self._at
            self._closed_n -= self._counts[place]
            if is_open:
                self._ring[place], self._counts[place] = self._open, self._open_n
                self._closed_n += self._open_n
            else:
                self._ring.clear(place)
                self._counts.clear(place)
            if self._kind.is_end:
                self._close(place)
        if bucket > self._at:
            self._closed = self._kind.join(self._older[bucket % self._buckets], self._newer) if (
                self._kind.is_end) else self._ring.add_to(np.zeros(self._room))
            self._open[:] = self._kind.nothing
            self._open_n[:] = 0
        self._at = bucket

    def _close(self, place: int) -> None:
        """Close a bucket: the lowest or highest of the ring without reading all of it."""
        if place == self._buckets - 1:
            self._look_back(0)
        else:
            self._newer = self._kind.join(self._newer, self._ring[place])

    def _look_back(self, place: int) -> None:
        """Reduce the ring from each place to its end, and everything before this place to one
        number: together they cover the whole ring, now and while places are filled until it is once
        around."""
        if not self._kind.is_end:
            return
        older, newer = (np.full(self._room, self._kind.nothing) for _ in range(2))
        for at in reversed(range(self._buckets)):
            older = self._kind.join(older, self._ring[at])
            self._older[at] = older
        for at in range(place):
            newer = self._kind.join(newer, self._ring[at])
        self._newer = newer

    def values(self) -> Floats:
        n = self._closed_n + self._open_n
        total = self._kind.join(self._closed, self._open)
        match self.term.how:
            case "avg":
                total = total / np.maximum(n, 1)
            case "rate":
                total = total / np.maximum(n * self._period_s, 1)
        return np.where(n >= self._needed, total, np.nan)

    # -- rows

    def grow(self, room: int) -> None:
        super().grow(room)
        for ring in self._rings.values():
            ring.grow(room)

    def forget(self, rows: npt.NDArray[np.intp]) -> None:
        super().forget(rows)
        for ring in self._rings.values():
            ring.forget(rows)

    # -- over a restart of the hub

    def values_of(self, row: int, names: Iterable[str]) -> RowValues:
        rings = {name: self._rings[name].row(row).astype("<f8").tobytes()
                 for name in names if name in self._rings}
        return rings | super().values_of(row, [name for name in names if name not in rings])

    def put_values(self, row: int, values: RowValues, names: Iterable[str]) -> None:
        super().put_values(row, values, [name for name in names if name not in self._rings])
        for name in names:
            if name in self._rings:
                numbers = np.frombuffer(values[name], "<f8")
                if len(numbers) != len(self._rings[name]):
                    raise ValueError(name)
                self._rings[name].put_row(row, numbers)

    def saved(self, row: int) -> SavedWindow | None:
        """Return what a row has seen; None: nothing."""
        return None if self._at is None else SavedWindow(self._at, [self.values_of(row, SAVED)])

    def restore(self, row: int, saved: SavedWindow) -> None:
        """Continue what a row had seen. Nothing is known of the time in between."""
        one = RollingWindow(self.term, self._period_s, 0.0, room=1)
        one.put_values(0, saved.parts[0], SAVED)
        one._at = saved.at
        if self._at is None:
            self._at = saved.at
        one._turn(self._at)
        place = self._at % self._buckets
        one._look_back(place)
        one._closed = one._kind.join(one._older[place], one._newer) if one._kind.is_end else (
            one._ring.add_to(np.zeros(1)))
        one._closed_n = one._counts.add_to(np.zeros(1))
        self.copy_rows(one, slice(row, row + 1), slice(0, 1))
        for name, ring in self._rings.items():
            ring.put_row(row, one._rings[name].row(0))


class _WindowFunction:
    def __init__(self, how: How) -> None:
        self.is_counter = how in ("rate", "increase")
        self.is_end = how in ("min", "max")
        self.nothing = {"min": np.inf, "max": -np.inf}.get(how, 0.0)
        self.join: np.ufunc = {"min": np.fmin, "max": np.fmax}.get(how, np.add)


_KINDS: dict[How, _WindowFunction] = {how: _WindowFunction(how) for how in ("avg", "min", "max",
                                                                            "rate", "increase")}
