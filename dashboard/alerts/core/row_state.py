"""State of each row from one step to the next, in arrays. Pure."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

RowValues = dict[str, bytes]  # by array; little-endian float64


class SavedWindow(Struct, frozen=True, array_like=True):
    """Window of one row: the number of its open bucket or block, and the row's values in each part
    of the window."""

    at: int
    parts: list[RowValues]


class RowState:
    """Arrays whose last axis is the rows. A subclass sets each of them to the value of one empty
    row, and then calls `_begin`."""

    def _begin(self, room: int = 0) -> None:
        self._empty: dict[str, npt.NDArray[Any]] = {
            name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        self._room = room
        for name, empty in self._empty.items():
            setattr(self, name, np.repeat(empty, room, axis=-1))

    def grow(self, room: int) -> None:
        more = room - self._room
        if more > 0:
            self._room = room
            for name, empty in self._empty.items():
                setattr(self, name, np.concatenate(
                    [getattr(self, name), np.repeat(empty, more, axis=-1)], axis=-1))

    def forget(self, rows: npt.NDArray[np.intp]) -> None:
        """Empty these rows: they belong to other targets from now on."""
        if not len(rows):
            return
        for name, empty in self._empty.items():
            getattr(self, name)[..., rows] = empty

    def copy_rows(self, other: Self, to: npt.NDArray[np.intp] | slice,
                  of: npt.NDArray[np.intp] | slice) -> None:
        for name in self._empty:
            getattr(self, name)[..., to] = getattr(other, name)[..., of]

    def values_of(self, row: int, names: Iterable[str]) -> RowValues:
        """Return what these arrays have in a row, for storage."""
        return {name: getattr(self, name)[..., row].astype("<f8").tobytes() for name in names}

    def put_values(self, row: int, values: RowValues, names: Iterable[str]) -> None:
        """Put stored values into a row. Raises KeyError or ValueError where they are not of such
        arrays, as those of another version may be."""
        for name in names:
            place = getattr(self, name)[..., row]
            place[...] = np.frombuffer(values[name], "<f8").reshape(place.shape)
