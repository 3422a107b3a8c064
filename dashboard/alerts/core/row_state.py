"""State of each row from one step to the next, in arrays. Pure."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt


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
