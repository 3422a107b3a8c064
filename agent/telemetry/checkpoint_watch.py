"""Checkpoints of this node's tasks: which tasks write them, how often, when the last was done."""

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec import structs

from gpudeck.contract.hosts import HostSample, TaskCheckpoints

from ..readings import Reading
from ..tasks.seen import GpuTask
from .write_bursts import CheckpointPace, SpanMean, TaskWrites

MOST_APART_S = 30.0  # between two looks; after a longer time without, what was written is not known


@dataclass(slots=True, eq=False)
class CheckpointWatch:
    """Fed by the node's own thread, and waited on by the one that acts."""

    _writes: dict[str, TaskWrites] = field(default_factory=dict)
    _power: dict[str, SpanMean] = field(default_factory=dict)  # by GPU, since the last look
    _gpus: dict[str, set[str]] = field(default_factory=dict)
    _looked_at: float | None = None
    _news: threading.Condition = field(default_factory=threading.Condition)

    def set_tasks(self, gpu_tasks: Iterable[GpuTask]) -> None:
        gpus: dict[str, set[str]] = {}
        for entry in gpu_tasks:
            gpus.setdefault(entry.task.id, set()).add(entry.gpu_uuid)
        self._gpus = gpus

    def with_checkpoints(self, reading: Reading) -> Reading:
        """Add what is known of the checkpoints, where the host was read."""
        for gpu in reading.gpus:
            self._power.setdefault(gpu.uuid, SpanMean()).add(
                reading.interval_s, gpu.value("power_w") if gpu.state == "ok" else None)
        host, at = reading.host, reading.taken_at
        if host is None:
            return reading
        with self._news:
            self._observe(host, at)
            self._news.notify_all()
        checkpoints = tuple(TaskCheckpoints(task_id, pace.last.ended_at, pace.every_s, pace.count)
                            for task_id in self._writes
                            if (pace := self.pace(task_id, at)) is not None)
        return structs.replace(reading, host=structs.replace(host, checkpoints=checkpoints)) \
            if checkpoints else reading

    def _observe(self, host: HostSample, at: float) -> None:
        before, self._looked_at = self._looked_at, at
        power, self._power = self._power, {}
        there = {use.task_id for use in host.tasks}
        self._writes = {task: had for task, had in self._writes.items() if task in there}
        if before is None or not 0 < at - before <= MOST_APART_S:
            self._writes = {}  # a gap may hide one
            return
        for use in host.tasks:
            means = [power[gpu].mean for gpu in self._gpus.get(use.task_id, ()) if gpu in power]
            known_means = [value for value in means if value is not None]
            self._writes.setdefault(use.task_id, TaskWrites()).observe(
                at, at - before, use.write_bytes_per_s,
                sum(known_means) / len(known_means)
                if known_means and len(known_means) == len(means) else None)

    def pace(self, task_id: str, at: float) -> CheckpointPace | None:
        with self._news:
            writes = self._writes.get(task_id)
            return None if writes is None else writes.pace(at)

    def written_since(self, task_ids: Collection[str], since: float, within_s: float
                      ) -> float | None:
        """Return when the last of these tasks had written the first checkpoint that ended after
        `since`. Blocks for `within_s` at most; None: not all have yet."""
        with self._news:
            if (written_at := self._all_written(task_ids, since)) is None:
                self._news.wait(within_s)
                written_at = self._all_written(task_ids, since)
            return written_at

    def _all_written(self, task_ids: Collection[str], since: float) -> float | None:
        ends = []
        for task_id in task_ids:
            writes = self._writes.get(task_id)
            ended_at = None if writes is None else next(
                (one.ended_at for one in writes.checkpoints if one.ended_at > since), None)
            if ended_at is None:
                return None
            ends.append(ended_at)
        return max(ends, default=None)
