"""Checkpoints of a task, as they look from outside: bursts of writing while its GPUs rest. Pure.

An asynchronous checkpoint is written while training goes on: it looks like any other output, and
is not reported. Nor is what a task writes to an object store: no disk sees that.
"""

import statistics
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

BURST_BYTES_PER_S = 20e6
LEAST_BYTES = 100e6  # of a burst: logs and tables of metrics are less
REST_SHARE = 0.7  # of the power that the GPUs draw between bursts; training on, they draw as much
KEPT = 5
LEAST = 3  # before anything is said of the next one
SPREAD = 0.2  # of the intervals, by their median
ALIKE = 2.0  # the largest of them, by the smallest
LATE = 2.0  # intervals after the last one, a task has another rhythm, or none


@dataclass(slots=True)
class SpanMean:
    seconds: float = 0.0
    total: float = 0.0

    def add(self, seconds: float, value: float | None) -> None:
        if value is not None:
            self.seconds += seconds
            self.total += seconds * value

    @property
    def mean(self) -> float | None:
        return self.total / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    began_at: float
    ended_at: float
    written_bytes: float


@dataclass(frozen=True, slots=True)
class CheckpointPace:
    last: WrittenCheckpoint
    every_s: float
    count: int


@dataclass(slots=True)
class TaskWrites:
    """Writes of a task. `checkpoints`: the latest ones, oldest first."""

    checkpoints: deque[WrittenCheckpoint] = field(default_factory=lambda: deque(maxlen=KEPT))
    _began_at: float | None = None
    _bytes: float = 0.0
    _within: SpanMean = field(default_factory=SpanMean)
    _between: SpanMean = field(default_factory=SpanMean)

    def observe(self, at: float, seconds: float, bytes_per_s: float | None, power_w: float | None
            ) -> None:
        """Add a reading of the `seconds` until then; `power_w`: the mean of its GPUs in them."""
        if bytes_per_s is not None and bytes_per_s >= BURST_BYTES_PER_S:
            if self._began_at is None:
                self._began_at, self._bytes, self._within = at - seconds, 0.0, SpanMean()
            self._bytes += bytes_per_s * seconds
            self._within.add(seconds, power_w)
            return
        if self._began_at is not None:
            self._end(at - seconds, is_known=bytes_per_s is not None)
        self._between.add(seconds, power_w)

    def _end(self, at: float, is_known: bool) -> None:
        began_at, self._began_at = self._began_at, None
        within, between = self._within.mean, self._between.mean
        self._between = SpanMean()
        if began_at is None or not is_known or within is None or between is None:
            return
        if self._bytes >= LEAST_BYTES and within <= REST_SHARE * between:
            self.checkpoints.append(WrittenCheckpoint(began_at, at, self._bytes))

    def pace(self, at: float) -> CheckpointPace | None:
        """Return how often it writes; None: there were too few, they are not alike, or they
        ended."""
        if len(self.checkpoints) < LEAST:
            return None
        sizes = [one.written_bytes for one in self.checkpoints]
        apart = [later.began_at - one.began_at for one, later in pairwise(self.checkpoints)]
        every_s = statistics.median(apart)
        if max(apart) - min(apart) > SPREAD * every_s or max(sizes) > ALIKE * min(sizes):
            return None
        last = self.checkpoints[-1]
        return CheckpointPace(last, every_s, len(self.checkpoints)) \
            if at - last.ended_at <= LATE * every_s else None
