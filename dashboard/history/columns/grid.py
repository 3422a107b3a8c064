"""A span of history as arrays, a row per GPU on a Node and a column per minute or second: for
reading all of it in the order of time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .arrays import Ints, runs

Floats = npt.NDArray[np.floating[Any]]
End = Literal["min", "mean", "max"]
Wanted = Mapping[str, frozenset[End]]  # of which metrics what
Name = tuple[str, str]  # GPU and Node
XidRow = tuple[float, str, str, dict[str, float]]  # when, Node, GPU, and its numbers
SEEN = "seen"  # not a metric: for how many seconds a GPU was heard of; of a second, in which state


@dataclass(slots=True)
class GpuMetricRows:
    """Rows: one GPU within one minute, or one second. NaN: not there."""

    names: list[Name]
    name_at: npt.NDArray[np.intp]
    t: Ints
    n: dict[str, npt.NDArray[Any]]
    values: dict[tuple[str, End], Floats]


@dataclass(slots=True)
class TaskRows:
    """Rows: one Task on one GPU within one minute. Words are indices into their lists."""

    names: list[Name]
    name_at: npt.NDArray[np.intp]
    t: Ints
    words: dict[str, tuple[npt.NDArray[np.int32], list[str]]]  # -1: not known
    numbers: dict[str, npt.NDArray[np.float64]]  # NaN: not known


@dataclass(slots=True)
class HistoryGrid:
    t0: int
    step_s: int
    width: int
    rows: dict[Name, int] = field(default_factory=dict)
    n: dict[str, npt.NDArray[np.uint16]] = field(default_factory=dict)
    values: dict[tuple[str, End], Floats] = field(default_factory=dict)
    _room: int = 0

    @property
    def ends_at(self) -> int:
        return self.t0 + self.width * self.step_s

    def make_room(self, rows: int) -> None:
        """Make room ahead: to move to a larger place costs as much as to fill it."""
        self._room = max(self._room, rows)

    def blank(self, least: float) -> None:
        """Blank the values of fewer seconds than that."""
        for key, n in self.n.items():
            few = n < least
            if few.any():
                for (name, _), values in self.values.items():
                    if name == key:
                        values[few] = np.nan

    def add(self, part: GpuMetricRows) -> None:
        """Add rows. What came late for a minute lies apart from it, and is joined with it here."""
        row_of = np.array([self.rows.setdefault(name, len(self.rows)) for name in part.names],
                          np.intp)
        self._make(part)
        column = part.t - self.t0
        at = row_of[part.name_at] * self.width + (
            column if self.step_s == 1 else column // self.step_s)
        for key, n in part.n.items():
            counts = self.n[key].reshape(-1)
            was = counts[at]
            for end in ("mean", "min", "max"):
                if (key, end) in part.values:
                    self._put(self.values[key, end].reshape(-1), at, part.values[key, end], was,
                              n, end)
            counts[at] = was + n

    @staticmethod
    def _put(into: Floats, at: npt.NDArray[np.intp], values: Floats, was: npt.NDArray[Any],
             n: npt.NDArray[Any], end: End) -> None:
        if not was.any():
            into[at] = values
            return
        old = into[at]
        with np.errstate(invalid="ignore"):
            combined = {"min": np.fmin, "max": np.fmax}[end](old, values) if end != "mean" else (
                (old.astype(float) * was + values.astype(float) * n) / np.maximum(was + n, 1))
        into[at] = np.where(was == 0, values, np.where(n == 0, old, combined))

    def _make(self, part: GpuMetricRows) -> None:
        needed = len(self.rows)
        room = self._room if needed <= self._room else max(needed, self._room + self._room // 2)
        for key in part.n:
            self.n[key] = _grown(self.n.get(key), room, self.width, 0, np.uint16)
        for place, values in part.values.items():
            self.values[place] = _grown(self.values.get(place), room, self.width, np.nan,
                                        values.dtype.type)
        self._room = room

    def of(self, key: str, end: End) -> Floats | None:
        """Return values, rows x columns. None: nothing is known."""
        return self._whole(self.values.get((key, end)), np.nan)

    def count(self, key: str) -> npt.NDArray[np.uint16] | None:
        return self._whole(self.n.get(key), 0)

    def _whole(self, array: npt.NDArray[Any] | None, nothing: float) -> npt.NDArray[Any] | None:
        many = len(self.rows)
        return None if array is None else _grown(
            array, many, self.width, nothing, array.dtype.type)[:many]

    def carry(self, key: str, most_s: int) -> None:
        """Carry a slow metric on until its next report, for this long at most."""
        counts = self.n.get(key)
        if counts is None:
            return
        columns = np.arange(self.width, dtype=np.int32)
        last = np.maximum.accumulate(np.where(counts > 0, columns, np.int32(-1)), axis=1)
        holds = (last >= 0) & (columns - last <= most_s // self.step_s)
        rows, at = np.nonzero(holds & (counts == 0))
        for (name, _), values in self.values.items():
            if name == key:
                values[rows, at] = values[rows, last[rows, at]]
        counts[rows, at] = self.step_s


def seldom_part(part: GpuMetricRows, step_s: int) -> GpuMetricRows:
    """Reduce rows, by name, then by time: reports within one column count as one."""
    column = part.t // step_s
    starts = runs(part.name_at, column)
    reduced = GpuMetricRows(part.names, part.name_at[starts], column[starts] * step_s, {}, {})
    for key, n in part.n.items():
        reports = part.values[key, "mean"]
        count = np.add.reduceat(n.astype(np.int64), starts)
        reduced.n[key] = np.where(count > 0, step_s, 0).astype(np.uint16)
        total = np.add.reduceat(np.nan_to_num(reports), starts)
        reduced.values[key, "mean"] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        reduced.values[key, "min"] = np.fmin.reduceat(reports, starts)
        reduced.values[key, "max"] = np.fmax.reduceat(reports, starts)
    return reduced


def _grown(old: npt.NDArray[Any] | None, room: int, width: int, nothing: float, kind: Any
           ) -> npt.NDArray[Any]:
    if old is not None and len(old) >= room:
        return old
    new = np.full((room, width), nothing, kind)
    if old is not None:
        new[: len(old)] = old
    return new
