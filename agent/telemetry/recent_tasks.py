"""The latest lists of the GPUs' Tasks, by which conditions are checked again, and of the GPUs."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpudeck.contract.wire import GpuFacts

from ..readings import GpuReading, Reading
from ..tasks.seen import GpuTask
from .checkpoint_watch import CheckpointWatch

KEPT = 8


@dataclass(frozen=True, slots=True)
class TaskObservation:
    taken_at: float  # UTC, when the driver was asked
    came_mono: float
    gpu_tasks: tuple[GpuTask, ...]
    util_pct: dict[str, float | None]  # the most of each GPU


class RecentTasks:
    def __init__(self) -> None:
        self._observations: deque[TaskObservation] = deque(maxlen=KEPT)
        self.facts: Mapping[str, GpuFacts] = {}
        self.board_of: Mapping[str, str] = {}  # each GPU, and of an instance its board
        self.checkpoints = CheckpointWatch()
        self._news = threading.Condition()

    def observe(self, gpu_tasks: tuple[GpuTask, ...], reading: Reading) -> None:
        self.checkpoints.set_tasks(gpu_tasks)
        util_pct = {gpu.uuid: _most(gpu) for gpu in reading.gpus}
        with self._news:
            self._observations.append(TaskObservation(
                reading.taken_at, time.monotonic(), gpu_tasks, util_pct))
            self._news.notify_all()

    def set_facts(self, facts: Iterable[GpuFacts]) -> None:
        """Store the facts of the GPUs, also of boards that answer nothing now."""
        self.facts = {gpu.uuid: gpu for gpu in facts}
        self.board_of = {uuid: gpu.parent_uuid or uuid for uuid, gpu in self.facts.items()}

    def after(self, taken_at: float, mono: float) -> list[TaskObservation]:
        """Return those asked and come after that: by both clocks, since one of them can be set."""
        with self._news:
            return [observation for observation in self._observations
                    if observation.taken_at > taken_at and observation.came_mono > mono]

    def wait(self, taken_at: float, mono: float, count: int,
             within_s: float) -> list[TaskObservation]:
        """Wait for so many of them; return fewer where they do not come in time."""
        until = time.monotonic() + within_s
        with self._news:
            while len(observations := self.after(taken_at, mono)) < count and (
                    left_s := until - time.monotonic()) > 0:
                self._news.wait(left_s)
            return observations


def _most(gpu: GpuReading) -> float | None:
    """Return its peak; of a board that reports no peaks, its mean. None: not reported, or not read
    now."""
    values = [gpu.value(key) for key in ("util_max_pct", "util_pct") if gpu.state == "ok"]
    return next((value for value in values if value is not None), None)
