"""Forecast of growing memory, and how right it was so far to extend its slope: from minutes of
tasks. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .growth import FULL_SHARE, PARTS, SPAN_S, Floats, growth, seconds_until

MINUTE_S = 60
AHEAD_S = 3_840  # a whole number of parts, so that both ends are means of one
PART_S = SPAN_S // PARTS
READS_S = SPAN_S + AHEAD_S
ENOUGH = 0.8  # of the minutes of a part
LEAST_FORECASTS = 20  # whose outcome is known
BETTER_BY = 0.9
KEPT_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class MinuteMemory:
    """Mean memory in each minute, of a task on a GPU: rows x minutes. NaN: it is not known."""

    keys: Sequence[tuple[str, str, str]]  # task, GPU, node
    users: Sequence[str | None]
    bytes: Floats


@dataclass(frozen=True, slots=True)
class GrowingMemory:
    """A task whose memory grows. `low_per_s` to `high_per_s`: the 94 % interval of the slope."""

    task_id: str
    gpu: str
    node_id: str
    user: str | None
    per_s: float
    low_per_s: float
    high_per_s: float

    def full_in_s(self, total: float, memory_used: float) -> tuple[float, float, float]:
        """Return the seconds until the GPU is full: soonest, most likely, latest."""
        room = np.full(3, FULL_SHARE * total - memory_used)
        soonest, likely, latest = seconds_until(
            room, np.array([self.high_per_s, self.per_s, self.low_per_s])).tolist()
        return soonest, likely, latest


@dataclass(frozen=True, slots=True)
class MemoryScore:
    """Score of forecasts whose end was at `at`: absolute errors, summed up, in bytes."""

    at: int
    forecasts: int
    error: float
    stays_error: float  # of the guess that memory stays as it is


@dataclass(slots=True)
class MemoryTrackRecord:
    scores: deque[MemoryScore] = field(default_factory=deque)

    def add(self, score: MemoryScore) -> None:
        if score.forecasts:
            self.scores.append(score)
        newest = max((score.at for score in self.scores), default=0)
        self.scores = deque(score for score in self.scores if score.at > newest - KEPT_S)

    @property
    def forecasts(self) -> int:
        return sum(score.forecasts for score in self.scores)

    @property
    def error(self) -> float:
        return sum(score.error for score in self.scores)

    @property
    def stays_error(self) -> float:
        return sum(score.stays_error for score in self.scores)

    def why_not(self) -> str:
        """Return why no time is shown, for people; empty: it may be."""
        if self.forecasts < LEAST_FORECASTS:
            return (f"{self.forecasts} of the {LEAST_FORECASTS} forecasts that it takes to judge "
                    "them on this fleet have been checked so far")
        ratio = self.error / max(self.stays_error, 1e-9)
        if ratio > BETTER_BY:
            return (f"on this fleet's past week the error is {ratio:.0%} of that of assuming "
                    f"constant memory; {BETTER_BY:.0%} or less is needed")
        return ""


def growing(memory: MinuteMemory) -> list[GrowingMemory]:
    """Return growing tasks by the newest minutes, the fastest first."""
    newest = memory.bytes[:, -SPAN_S // MINUTE_S :]
    slope = growth(*_parts(newest), PART_S)
    rows = np.flatnonzero(slope.per_s > 0)
    slopes = np.stack([slope.per_s, slope.low_per_s, slope.high_per_s], axis=1)
    items = [GrowingMemory(*memory.keys[row], memory.users[row], *slopes[row].tolist())
             for row in rows.tolist()]
    return sorted(items, key=lambda item: -item.per_s)


def score(memory: MinuteMemory, at: int) -> MemoryScore:
    """Score the forecast that would have been made at the beginning by what came after it. A task
    that is gone proves nothing."""
    first = _parts(memory.bytes[:, : SPAN_S // MINUTE_S])
    slope = growth(*first, PART_S).per_s
    was, came = first[0][-1], _parts(memory.bytes[:, -PART_S // MINUTE_S :], 1)[0][0]
    rows = (slope > 0) & ~np.isnan(came)
    off = np.abs(was + slope * AHEAD_S - came)[rows]
    return MemoryScore(at, int(rows.sum()), float(off.sum()), float(np.abs(was - came)[rows].sum()))


def _parts(minutes: Floats, parts: int = PARTS) -> tuple[Floats, Floats, Floats]:
    """Return mean, lowest and highest of each part; parts x rows."""
    by_part = minutes.reshape(len(minutes), parts, minutes.shape[1] // parts)
    count = (~np.isnan(by_part)).sum(axis=2)
    enough = count >= ENOUGH * by_part.shape[2]
    mean = np.where(np.isnan(by_part), 0.0, by_part).sum(axis=2) / np.maximum(count, 1)
    return (_where(enough, mean), _where(enough, np.fmin.reduce(by_part, axis=2)),
            _where(enough, np.fmax.reduce(by_part, axis=2)))


def _where(enough: npt.NDArray[Any], values: Floats) -> Floats:
    return np.where(enough, values, np.nan).T
