"""Which tasks of this node write checkpoints, how often, and when the last one was done."""

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec import structs

from gpudeck.hosts import HostSample, TaskCheckpoints

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

    def saw_tasks(self, seen: Iterable[GpuTask]) -> None:
        found: dict[str, set[str]] = {}
        for each in seen:
            found.setdefault(each.task.id, set()).add(each.gpu_uuid)
        self._gpus = found

    def with_checkpoints(self, reading: Reading) -> Reading:
        """With what is known of them, where the host was looked at."""
        for gpu in reading.gpus:
            self._power.setdefault(gpu.uuid, SpanMean()).add(
                reading.interval_s, gpu.value("power_w") if gpu.state == "ok" else None)
        host, at = reading.host, reading.taken_at
        if host is None:
            return reading
        with self._news:
            self._look(host, at)
            self._news.notify_all()
        known = tuple(TaskCheckpoints(task_id, pace.last.ended_at, pace.every_s, pace.seen)
                      for task_id in self._writes
                      if (pace := self.pace(task_id, at)) is not None)
        return structs.replace(reading, host=structs.replace(host, checkpoints=known)) \
            if known else reading

    def _look(self, host: HostSample, at: float) -> None:
        before, self._looked_at = self._looked_at, at
        power, self._power = self._power, {}
        there = {each.task_id for each in host.tasks}
        self._writes = {task: had for task, had in self._writes.items() if task in there}
        if before is None or not 0 < at - before <= MOST_APART_S:
            self._writes = {}  # a gap may hide one
            return
        for each in host.tasks:
            of = [power[gpu].mean for gpu in self._gpus.get(each.task_id, ()) if gpu in power]
            known = [value for value in of if value is not None]
            self._writes.setdefault(each.task_id, TaskWrites()).see(
                at, at - before, each.write_bytes_per_s,
                sum(known) / len(known) if known and len(known) == len(of) else None)

    def pace(self, task_id: str, at: float) -> CheckpointPace | None:
        with self._news:
            writes = self._writes.get(task_id)
            return None if writes is None else writes.pace(at)

    def written_since(self, task_ids: Collection[str], since: float, within_s: float
                      ) -> float | None:
        """When the last of these tasks had written the first checkpoint that ended after `since`.
        Blocks for `within_s` at most; None: not all have yet."""
        with self._news:
            if (found := self._all_written(task_ids, since)) is None:
                self._news.wait(within_s)
                found = self._all_written(task_ids, since)
            return found

    def _all_written(self, task_ids: Collection[str], since: float) -> float | None:
        ends = []
        for task_id in task_ids:
            writes = self._writes.get(task_id)
            ended = None if writes is None else next(
                (one.ended_at for one in writes.done if one.ended_at > since), None)
            if ended is None:
                return None
            ends.append(ended)
        return max(ends, default=None)
