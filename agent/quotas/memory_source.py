"""Source of the memory limits that quotas want on this node, from what it has read last. Used by
one thread."""

from collections.abc import Callable, Sequence

from gpudeck.contract.desired_state import DesiredState
from gpudeck.contract.wire import GpuFacts, Task

from ..limits.memory_limits import MemoryTarget
from ..tasks.control_group import group_of
from ..tasks.processes import row_of
from ..tasks.seen import GpuTask
from ..telemetry.latest_sample import LatestSample
from .evaluate import FRESH_S, holdings_of
from .memory import MemoryBoards, TaskPlace, limited_quotas, memory_targets
from .service import QuotaService


class QuotaMemory:
    """Limits that quotas want. `place_of`: the control group of a task."""

    def __init__(self, quotas: QuotaService, latest: LatestSample, node_id: str, host: str,
                 place_of: Callable[[Task], str | None], now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._latest = latest
        self._node_id, self._host = node_id, host
        self._place_of = place_of
        self._now = now
        self._desired: DesiredState | None = None
        self._targets: list[MemoryTarget] | None = None

    def targets(self) -> Sequence[MemoryTarget] | None:
        """Return the limits; None: not known yet. While there is no fresh list of tasks they are
        those of before."""
        if not self._quotas.is_read:
            return None
        desired = self._quotas.desired
        if desired is None or not limited_quotas(desired) or self._quotas.rights().end:
            self._desired, self._targets = desired, []
            return self._targets
        gpu_tasks, facts = self._latest.gpu_tasks, self._latest.facts
        if gpu_tasks is None or self._now() - self._latest.listed_at > FRESH_S:
            return self._targets
        is_same = self._desired is not None and self._desired.quotas == desired.quotas
        before = self._targets or () if is_same else ()
        self._targets = memory_targets(desired, self._places(gpu_tasks, desired.group),
                                       boards_of(facts), before)
        self._desired = desired
        return self._targets

    def _places(self, gpu_tasks: Sequence[GpuTask], group: str) -> list[TaskPlace]:
        holdings = {holding.task.id: holding for holding in holdings_of(
            gpu_tasks, self._node_id, self._host, group)}
        return [TaskPlace(holdings[entry.task.id], entry.gpu_uuid, self._place_of(entry.task))
                for entry in gpu_tasks]


def boards_of(facts: Sequence[GpuFacts]) -> MemoryBoards:
    """Return the boards that are not split: the driver limits no others."""
    split = {gpu.parent_uuid for gpu in facts}
    return MemoryBoards({gpu.uuid: gpu.mem_total_bytes for gpu in facts
                         if gpu.parent_uuid is None and gpu.uuid not in split})


def place_of(task: Task) -> str | None:
    """Return the control group of a task. Read, then checked: its number may be another's now."""
    group, row = group_of(task.pid), row_of(task.pid)
    return group if row is not None and row.start_ticks == task.start_ticks else None
