"""Buckets of a rolling window, one row per target. Most of what a fleet counts is nothing, or a few
small numbers: each bucket is as narrow as its numbers are. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

NARROW: tuple[type[np.number[Any]], ...] = (np.uint8, np.float32)
# A row that is named costs as much as so many that are not, in the narrowest column.
SPARSE = 12
FIRST = 16


@dataclass(slots=True)
class Bucket:
    """Numbers of all rows. `rows` None: of each; else of these, and the others have nothing."""

    numbers: npt.NDArray[Any]
    rows: Rows | None


EMPTY = Bucket(np.zeros(0, np.uint8), np.zeros(0, np.intp))


class BucketRing:
    """`nothing`: the number of a row without one. Each number comes out as it went in."""

    def __init__(self, buckets: int, nothing: float, room: int) -> None:
        self._nothing = nothing
        self._room = room
        self._buckets = [EMPTY] * buckets

    def __len__(self) -> int:
        return len(self._buckets)

    def __iter__(self) -> Iterator[Floats]:
        return map(self.__getitem__, range(len(self)))

    @property
    def nbytes(self) -> int:
        return sum(bucket.numbers.nbytes + (0 if bucket.rows is None else bucket.rows.nbytes)
                   for bucket in self._buckets)

    def __getitem__(self, place: int) -> Floats:
        """Return the numbers of a bucket, a copy."""
        bucket, values = self._buckets[place], np.full(self._room, self._nothing)
        values[slice(len(bucket.numbers)) if bucket.rows is None else bucket.rows] = bucket.numbers
        return values

    def __setitem__(self, place: int, values: Floats) -> None:
        rows = np.flatnonzero(values != self._nothing)
        if not len(rows):
            self._buckets[place] = EMPTY
        elif len(rows) * SPARSE < len(values):
            self._buckets[place] = Bucket(_narrow(values[rows]), rows)
        else:
            self._buckets[place] = Bucket(_narrow(values), None)

    def clear(self, place: int) -> None:
        self._buckets[place] = EMPTY

    def add_to(self, total: Floats) -> Floats:
        """Add all buckets to these numbers, oldest place first."""
        for bucket in self._buckets:
            if bucket.rows is None:
                total[: len(bucket.numbers)] += bucket.numbers
            elif len(bucket.rows):
                total[bucket.rows] += bucket.numbers
        return total

    def grow(self, room: int) -> None:
        """Make room; new rows have nothing."""
        self._room = max(self._room, room)

    def forget(self, rows: Rows) -> None:
        """Empty these rows. Tasks come and go every second: nothing is unpacked for it."""
        most = int(rows.max(initial=-1))
        for bucket in self._buckets:
            if bucket is EMPTY:
                continue
            if bucket.rows is not None:
                there = ~np.isin(bucket.rows, rows)
                bucket.rows, bucket.numbers = bucket.rows[there], bucket.numbers[there]
                continue
            if bucket.numbers.dtype == np.uint8 and self._nothing != 0:
                bucket.numbers = bucket.numbers.astype(np.float32)
            size = len(bucket.numbers)
            bucket.numbers[rows if most < size else rows[rows < size]] = self._nothing

    def row(self, row: int) -> Floats:
        """Return the numbers of a row, by bucket."""
        return np.array([self._number(bucket, row) for bucket in self._buckets], float)

    def _number(self, bucket: Bucket, row: int) -> float:
        if bucket is EMPTY:
            return self._nothing
        if bucket.rows is None:
            return float(bucket.numbers[row]) if row < len(bucket.numbers) else self._nothing
        place = int(np.searchsorted(bucket.rows, row))
        is_there = place < len(bucket.rows) and bucket.rows[place] == row
        return float(bucket.numbers[place]) if is_there else self._nothing

    def put_row(self, row: int, numbers: Floats) -> None:
        for place, number in enumerate(numbers.tolist()):
            if self._number(self._buckets[place], row) != number:
                self._put(place, row, number)

    def _put(self, place: int, row: int, number: float) -> None:
        bucket = self._buckets[place]
        if bucket.rows is None:
            values = self[place]
            values[row] = number
            self[place] = values
            return
        at = int(np.searchsorted(bucket.rows, row))
        if at < len(bucket.rows) and bucket.rows[at] == row:
            rows, numbers = bucket.rows, np.delete(bucket.numbers, at)
        else:
            rows, numbers = np.insert(bucket.rows, at, row), bucket.numbers
        self._buckets[place] = Bucket(_narrow(np.insert(numbers.astype(float), at, number)), rows)


def _narrow(values: Floats) -> npt.NDArray[Any]:
    """Return the values in the narrowest type that holds each of them exactly."""
    with np.errstate(invalid="ignore", over="ignore"):
        for kind in NARROW:
            first = values[:FIRST]  # most columns of fractions are known by them
            if (first.astype(kind) == first).all():
                narrow = values.astype(kind)
                if (narrow == values).all():
                    return narrow
    return values.copy()
