"""Uninterrupted intervals of many targets, and how many there are at a time."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from ..core.minute_aggregates import MINUTE_S
from ..core.rule_signal import Floats
from ..core.state_machine import Mask, Rows


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """Rows whose columns are the fields."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, which: Rows | Mask) -> Self:
        return type(self)(*(getattr(self, column.name)[which] for column in fields(self)))


@dataclass(frozen=True, slots=True)
class TargetIntervals(ArrayRows):
    """`of`: the target; seconds from `start` until before `end`."""

    of: Rows
    start: Rows
    end: Rows

    def later(self, by_s: int) -> "TargetIntervals":
        """Return the intervals counted from so many seconds later."""
        return TargetIntervals(self.of, self.start - by_s, self.end - by_s)


NO_SPELLS = TargetIntervals(*(np.zeros(0, np.intp),) * 3)


def merge(spells: TargetIntervals, touching: bool = True) -> TargetIntervals:
    """Merge overlapping intervals of a target; `touching`: also those of which one begins as the
    other ends."""
    spells = spells.take(spells.end > spells.start)
    if not len(spells):
        return NO_SPELLS
    spells = spells.take(np.lexsort((spells.start, spells.of)))
    far = int(spells.end.max()) + 1
    start, end = spells.of * far + spells.start, spells.of * far + spells.end
    until = np.maximum.accumulate(end)
    apart = start[1:] > until[:-1] if touching else start[1:] >= until[:-1]
    first = np.flatnonzero(np.append(True, apart))
    last = np.append(first[1:], len(start)) - 1
    return TargetIntervals(spells.of[first], spells.start[first],
                           until[last] - spells.of[last] * far)


def intersect(spells: TargetIntervals, keys: Rows, other: TargetIntervals) -> TargetIntervals:
    """Return when both hold; `keys`: for each of `spells`, the target in `other`, which is
    merged."""
    at = np.searchsorted(other.of, keys, "left")
    many = np.searchsorted(other.of, keys, "right") - at
    mine = np.repeat(np.arange(len(spells)), many)
    its = np.arange(len(mine)) + np.repeat(at - (np.cumsum(many) - many), many)
    common = TargetIntervals(spells.of[mine], np.maximum(spells.start[mine], other.start[its]),
                             np.minimum(spells.end[mine], other.end[its]))
    return common.take(common.end > common.start)


def count_by_second(spells: TargetIntervals, size: int, width: int, weights: Floats | None = None
                    ) -> Floats:
    """Return how many there are in each second, or the sum of their weights; targets x seconds."""
    flat = np.zeros(size * width)
    for at, sign in ((spells.start, 1), (spells.end, -1)):
        here = np.flatnonzero(at < width)
        flat += sign * np.bincount(spells.of[here] * width + np.maximum(at[here], 0),
                                   None if weights is None else weights[here], len(flat))
    return np.asarray(np.cumsum(flat.reshape(size, width), axis=1))


class TargetPresence:
    """Presence of targets at the moments when minutes are evaluated, some seconds after their end,
    and since when. `runs`: of each target, separate wherever nothing carried it over."""

    def __init__(self, runs: TargetIntervals, size: int, minutes: int, wait_s: int) -> None:
        look = looked_at(minutes, wait_s)
        at = _run_at(runs, size, look)
        began_at = np.full((size, minutes), -1)
        is_present = at >= 0
        began_at[is_present] = runs.start[at[is_present]]
        self.there: Mask = is_present
        self.came: Mask = is_present & (began_at > look - MINUTE_S)
        # Anything before its last arrival belongs to another target.
        self.from_s: Rows = np.clip(began_at - np.arange(minutes) * MINUTE_S, 0, MINUTE_S)


def looked_at(minutes: int, wait_s: int) -> Rows:
    return (np.arange(minutes) + 1) * MINUTE_S + wait_s


def covers(spells: TargetIntervals, size: int, moments: Rows) -> Mask:
    """Return which targets have an interval at each moment; targets x moments."""
    return np.asarray(_run_at(spells, size, moments) >= 0)


def _run_at(runs: TargetIntervals, size: int, moments: Rows) -> Rows:
    """Return the run of each target that covers each moment, or -1."""
    if not len(runs):
        return np.full((size, len(moments)), -1)
    far = max(int(runs.end.max()), int(moments.max(initial=0))) + 1
    points = np.arange(size)[:, None] * far + moments
    at = np.searchsorted(runs.of * far + runs.start, points, "right") - 1
    is_covered = (at >= 0) & (runs.of[at] * far + runs.end[at] > points)
    return np.where(is_covered, at, -1)


@dataclass(frozen=True, slots=True)
class IntervalMinutePieces(ArrayRows):
    """Intervals, cut where minutes end. `which`: the index of the interval."""

    which: Rows
    of: Rows
    minute: Rows
    from_s: Rows
    until_s: Rows


def in_minutes(spells: TargetIntervals, minutes: int) -> IntervalMinutePieces:
    first = np.clip(spells.start // MINUTE_S, 0, minutes)
    many = np.maximum(np.clip(-(-spells.end // MINUTE_S), 0, minutes) - first, 0)
    which = np.repeat(np.arange(len(spells)), many)
    minute = np.arange(len(which)) - np.repeat(np.cumsum(many) - many, many) + first[which]
    from_s = np.maximum(spells.start[which] - minute * MINUTE_S, 0)
    until_s = np.minimum(spells.end[which] - minute * MINUTE_S, MINUTE_S)
    return IntervalMinutePieces(which, spells.of[which], minute, from_s, until_s)


def mean_by_second(spells: TargetIntervals, row_of: Rows, values: Floats, size: int) -> Floats:
    """Return the mean of each second; targets x seconds. Each interval has a number in each minute,
    in row `row_of` of `values`. NaN: one of the numbers is not known."""
    minutes = values.shape[1]
    rows = in_minutes(spells, minutes)
    at = TargetIntervals(rows.of * minutes + rows.minute, rows.from_s, rows.until_s)
    value = values[row_of[rows.which], rows.minute]
    unknown, cells = np.isnan(value), size * minutes
    total = count_by_second(at, cells, MINUTE_S, np.where(unknown, 0.0, value))
    many = count_by_second(at, cells, MINUTE_S)
    missing = count_by_second(at.take(unknown), cells, MINUTE_S)
    is_known = (many > 0) & (missing == 0)
    return np.where(is_known, total / np.maximum(many, 1), np.nan).reshape(size, minutes * MINUTE_S)
