"""The latest lists of the GPUs' Tasks, by which conditions are checked again."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from ..readings import GpuReading, Reading
from ..tasks.seen import GpuTask

KEPT = 8


@dataclass(frozen=True, slots=True)
class TaskObservation:
    taken_at: float  # UTC, when the driver was asked
    came_mono: float
    seen: tuple[GpuTask, ...]
    util_pct: dict[str, float | None]  # the most of each GPU


class RecentTasks:
    def __init__(self) -> None:
        self._kept: deque[TaskObservation] = deque(maxlen=KEPT)
        self._news = threading.Condition()

    def saw(self, seen: tuple[GpuTask, ...], reading: Reading) -> None:
        util_pct = {gpu.uuid: _most(gpu) for gpu in reading.gpus}
        with self._news:
            self._kept.append(TaskObservation(reading.taken_at, time.monotonic(), seen, util_pct))
            self._news.notify_all()

    def after(self, taken_at: float, mono: float) -> list[TaskObservation]:
        """Asked and come after that: by both clocks, since one of them can be set."""
        with self._news:
            return [each for each in self._kept
                    if each.taken_at > taken_at and each.came_mono > mono]

    def wait(self, taken_at: float, mono: float, count: int,
             within_s: float) -> list[TaskObservation]:
        """So many of them; fewer where they do not come in time."""
        until = time.monotonic() + within_s
        with self._news:
            while len(found := self.after(taken_at, mono)) < count and (
                    left_s := until - time.monotonic()) > 0:
                self._news.wait(left_s)
            return found


def _most(gpu: GpuReading) -> float | None:
    """Its peak; of a board that tells no peaks, its mean. None: not told, or not read now."""
    told = [gpu.value(key) for key in ("util_max_pct", "util_pct") if gpu.state == "ok"]
    return next((value for value in told if value is not None), None)
