"""Unbroken times in which something was so, of many targets, and how many there were at a time: by
the second only in those minutes in which something changes, of which there are few."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.minute_aggregates import MINUTE_S, ClosedRuleMinute
from ..core.rule_signal import Floats
from ..core.state_machine import Mask, Rows


@dataclass(frozen=True, slots=True)
class TargetIntervals:
    """Of whom, and in seconds from when until before when."""

    of: Rows
    start: Rows
    end: Rows

    def __len__(self) -> int:
        return len(self.of)

    def take(self, which: Rows | Mask) -> "TargetIntervals":
        return TargetIntervals(self.of[which], self.start[which], self.end[which])

    def later(self, by_s: int) -> "TargetIntervals":
        """As seen from so many seconds later."""
        return TargetIntervals(self.of, self.start - by_s, self.end - by_s)


NO_SPELLS = TargetIntervals(*(np.zeros(0, np.intp),) * 3)


def joined(spells: TargetIntervals, touching: bool = True) -> TargetIntervals:
    """Those of one that overlap are one; `touching`: also those of which one begins as the other
    ends."""
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


def common(one: TargetIntervals, about: Rows, other: TargetIntervals) -> TargetIntervals:
    """When both are so; `about`: of whom in `other`, which is joined, each of `one` asks."""
    at = np.searchsorted(other.of, about, "left")
    many = np.searchsorted(other.of, about, "right") - at
    mine = np.repeat(np.arange(len(one)), many)
    its = np.arange(len(mine)) + np.repeat(at - (np.cumsum(many) - many), many)
    found = TargetIntervals(one.of[mine], np.maximum(one.start[mine], other.start[its]),
                            np.minimum(one.end[mine], other.end[its]))
    return found.take(found.end > found.start)


def counted(spells: TargetIntervals, size: int, width: int) -> Rows:
    """How many there are in each second; targets x seconds."""
    flat = np.zeros(size * (width + 1), np.int32)
    for at, sign in ((spells.start, 1), (spells.end, -1)):
        flat += sign * np.bincount(spells.of * (width + 1) + np.clip(at, 0, width),
                                   minlength=len(flat)).astype(np.int32)
    return np.asarray(np.cumsum(flat.reshape(size, width + 1), axis=1)[:, :-1])


class TargetPresence:
    """Who is there at the moments at which minutes are looked at, some seconds after their end,
    and since when. `runs`: of each target apart wherever nobody carried it over."""

    def __init__(self, runs: TargetIntervals, size: int, minutes: int, wait_s: int) -> None:
        look = looked_at(minutes, wait_s)
        at = _run_at(runs, size, look)
        begun = np.full((size, minutes), -1)
        found = at >= 0
        begun[found] = runs.start[at[found]]
        self.there: Mask = found
        self.came: Mask = found & (begun > look - MINUTE_S)
        # What was before the last time that it came is another's.
        self.from_s: Rows = np.clip(begun - np.arange(minutes) * MINUTE_S, 0, MINUTE_S)


def looked_at(minutes: int, wait_s: int) -> Rows:
    return (np.arange(minutes) + 1) * MINUTE_S + wait_s


def are_so(spells: TargetIntervals, size: int, moments: Rows) -> Mask:
    """At these moments; targets x moments."""
    return np.asarray(_run_at(spells, size, moments) >= 0)


def _run_at(runs: TargetIntervals, size: int, moments: Rows) -> Rows:
    """The run of each target that covers each moment, or -1."""
    if not len(runs):
        return np.full((size, len(moments)), -1)
    far = max(int(runs.end.max()), int(moments.max(initial=0))) + 1
    wanted = np.arange(size)[:, None] * far + moments
    at = np.searchsorted(runs.of * far + runs.start, wanted, "right") - 1
    covers = (at >= 0) & (runs.of[at] * far + runs.end[at] > wanted)
    return np.where(covers, at, -1)


class IntervalMinuteStats:
    """`changes`: all whose beginnings and ends count."""

    def __init__(self, size: int, minutes: int, changes: Iterable[TargetIntervals]) -> None:
        self._size, self._minutes = size, minutes
        edges = [self._cells_of(spells.of, at) for spells in changes
                 for at in (spells.start, spells.end)]
        self._cells = np.unique(np.concatenate(edges)) if edges else np.zeros(0, np.intp)

    def _cells_of(self, of: Rows, at: Rows) -> Rows:
        inside = (at % MINUTE_S > 0) & (at < self._minutes * MINUTE_S)
        return of[inside] * self._minutes + at[inside] // MINUTE_S

    def closed(self, spells: TargetIntervals, from_s: Rows, n: Floats) -> ClosedRuleMinute:
        """How many there are: the lowest, the mean and the highest of each minute, from a second of
        it on."""
        level = self._levels(spells)
        low, mean, high = level.copy(), level.copy(), level
        seconds = self._seconds(spells, level)
        counts = np.arange(MINUTE_S) >= from_s.reshape(-1)[self._cells, None]
        total = np.where(counts, seconds, 0.0).sum(axis=1)
        for into, values in (
            (low, np.where(counts, seconds, np.inf).min(axis=1, initial=np.inf)),
            (mean, total / np.maximum(counts.sum(axis=1), 1)),
            (high, np.where(counts, seconds, -np.inf).max(axis=1, initial=-np.inf)),
        ):
            into.reshape(-1)[self._cells] = values
        return ClosedRuleMinute(n, low, mean, high)

    def _levels(self, spells: TargetIntervals) -> Floats:
        """At the beginning of each minute."""
        room = self._minutes + 1
        flat = np.zeros(self._size * room)
        for at, sign in ((spells.start, 1), (spells.end, -1)):
            minute = np.clip(-(-at // MINUTE_S), 0, self._minutes)
            flat += sign * np.bincount(spells.of * room + minute, minlength=len(flat))
        return np.cumsum(flat.reshape(self._size, room), axis=1)[:, :-1].copy()

    def _seconds(self, spells: TargetIntervals, level: Floats) -> Floats:
        """Of the minutes in which something changes; those x seconds."""
        flat = np.zeros(len(self._cells) * MINUTE_S)
        for at, sign in ((spells.start, 1), (spells.end, -1)):
            inside = (at % MINUTE_S > 0) & (at < self._minutes * MINUTE_S)
            cell = np.searchsorted(self._cells, self._cells_of(spells.of, at))
            flat += sign * np.bincount(cell * MINUTE_S + at[inside] % MINUTE_S,
                                       minlength=len(flat))
        base = level.reshape(-1)[self._cells, None]
        return np.asarray(base + np.cumsum(flat.reshape(len(self._cells), MINUTE_S), axis=1))

    def means(self, whole: TargetIntervals, row_of: Rows, values: npt.NDArray[np.floating[Any]],
              from_s: Rows, n: Floats) -> tuple[Floats, Floats]:
        """Each spell has a number in each minute, in that row of `values`. Of each second the mean
        of those that are there; of each minute the mean of its seconds, and of how many. NaN: that
        number is not known, nor is any second with it."""
        total, many = self._of_whole_minutes(whole, row_of, values)
        edges = edges_of(whole, self._minutes)
        value = values[row_of[edges.which], edges.minute].astype(np.float64)
        cell = np.searchsorted(self._cells, edges.of * self._minutes + edges.minute)
        unknown = np.isnan(value)
        more, missing, further = (self._sums(cell, edges, weights) for weights in (
            np.where(unknown, 0.0, value), unknown.astype(float), np.ones(len(cell))))
        mean, known_s = total / np.maximum(many, 1), n.reshape(-1).copy()
        total_s, many_s = total[self._cells, None] + more, many[self._cells, None] + further
        counts = (many_s > 0.5) & (missing < 0.5) & ~np.isnan(total_s) & (
            np.arange(MINUTE_S) >= from_s.reshape(-1)[self._cells, None])
        of_second = np.where(counts, total_s / np.maximum(many_s, 1), 0.0)
        mean[self._cells] = of_second.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
        known_s[self._cells] = np.minimum(known_s[self._cells], counts.sum(axis=1))
        return mean.reshape(n.shape), known_s.reshape(n.shape)

    def _of_whole_minutes(self, spells: TargetIntervals, row_of: Rows,
                          values: npt.NDArray[np.floating[Any]]) -> tuple[Floats, Floats]:
        """Spell by spell: side by side lies what is added."""
        total = np.zeros((self._size, self._minutes))
        many = np.zeros((self._size, self._minutes + 1))
        first = np.minimum(-(-spells.start // MINUTE_S), self._minutes)
        last = np.maximum(np.minimum(spells.end // MINUTE_S, self._minutes), first)
        np.add.at(many, (spells.of, first), 1.0)
        np.add.at(many, (spells.of, last), -1.0)
        for of, row, begin, end in zip(spells.of.tolist(), row_of.tolist(), first.tolist(),
                                       last.tolist(), strict=True):
            total[of, begin:end] += values[row, begin:end]
        return total.reshape(-1), np.cumsum(many, axis=1)[:, :-1].reshape(-1)

    def _sums(self, cell: Rows, rows: "IntervalMinutePieces", weights: Floats) -> Floats:
        flat = np.zeros(len(self._cells) * (MINUTE_S + 1))
        for at, sign in ((rows.from_s, 1), (rows.until_s, -1)):
            flat += sign * np.bincount(cell * (MINUTE_S + 1) + at, weights, len(flat))
        return np.asarray(np.cumsum(flat.reshape(len(self._cells), MINUTE_S + 1), axis=1)[:, :-1])


@dataclass(frozen=True, slots=True)
class IntervalMinutePieces:
    """Spells, cut where minutes end. `which`: of these."""

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


def edges_of(spells: TargetIntervals, minutes: int) -> IntervalMinutePieces:
    """Those of their minutes that they do not fill."""
    first, last = spells.start // MINUTE_S, spells.end // MINUTE_S
    from_s, until_s = spells.start % MINUTE_S, spells.end % MINUTE_S
    begins = np.flatnonzero((from_s > 0) & (first < minutes))
    ends = np.flatnonzero((until_s > 0) & (last < minutes) & ((last > first) | (from_s == 0)))
    which = np.concatenate([begins, ends])
    return IntervalMinutePieces(
        which, spells.of[which], np.concatenate([first[begins], last[ends]]),
        np.concatenate([from_s[begins], np.zeros(len(ends), np.intp)]),
        np.concatenate([np.where(last > first, MINUTE_S, until_s)[begins], until_s[ends]]))
