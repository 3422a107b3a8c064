"""Uses of this node's GPUs by tasks, with a lease or without. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.contract.pool_link import OUTSIDE_MOST, OutsideUse
from gpudeck.measures.availability import is_use

from ..tasks.seen import GpuTask
from .lock import Marks, NodeLease, ProcessKey


@dataclass(frozen=True, slots=True)
class LeaseUse:
    """Task on a GPU. `leases`: those whose process this is, by its mark. `permits`: those of its
    user, or whose process it is, on this GPU."""

    gpu_task: GpuTask
    leases: frozenset[str]
    permits: frozenset[str]

    @property
    def key(self) -> ProcessKey:
        return self.gpu_task.task.pid, self.gpu_task.task.start_ticks

    @property
    def is_outside(self) -> bool:
        gpu_task = self.gpu_task
        return not self.permits and is_use(
            gpu_task.mem_used_bytes, gpu_task.sm_pct, gpu_task.task.kind)

    def may_be_of(self, lease: NodeLease) -> bool:
        return lease.id in self.permits and (not self.leases or lease.id in self.leases)

    def is_of(self, lease: NodeLease) -> bool:
        """Return whether it certainly belongs to a lease: of two leases of one user on a GPU, an
        unmarked task may be of either."""
        return self.may_be_of(lease) and (lease.id in self.leases or len(self.permits) == 1)


def lease_uses(tasks: Sequence[GpuTask], leases: Sequence[NodeLease], marks: Marks
               ) -> tuple[LeaseUse, ...]:
    """Return the use of each task. If one process of a container carries a mark, all of it
    counts."""
    containers: dict[str | None, set[str]] = defaultdict(set)
    own: dict[tuple[int, int], set[str]] = defaultdict(set)
    for lease in leases:
        for key in marks.get(lease.id, ()):
            own[key].add(lease.id)
        if lease.process is not None:
            own[lease.process.key].add(lease.id)
    for task in tasks:
        if task.task.container is not None:
            containers[task.task.container] |= own[task.task.pid, task.task.start_ticks]
    uses = []
    for task in tasks:
        whose = frozenset(own[task.task.pid, task.task.start_ticks]
                          | containers.get(task.task.container, set()))
        uses.append(LeaseUse(task, whose, frozenset(
            lease.id for lease in leases
            if task.gpu_uuid in (lease.home_gpus if task.is_suspended and lease.waits
                                 else lease.uuids)
            and (lease.id in whose or (lease.uid == task.task.uid
                                       and lease.given_back_at is None)))))
    return tuple(uses)


def misplaced_gpus(lease: NodeLease, uses: Iterable[LeaseUse], leases: Sequence[NodeLease]
                   ) -> tuple[str, ...]:
    """Return GPUs on which the lease's processes are, and which none of their leases has. What is
    suspended is on none."""
    of = {other.id: other.uuids for other in leases}
    return tuple(sorted({
        use.gpu_task.gpu_uuid for use in uses
        if lease.id in use.leases and not use.gpu_task.is_suspended and not any(
            use.gpu_task.gpu_uuid in of[lease_id] for lease_id in use.leases)}))


def processes_on(lease: NodeLease, uses: Iterable[LeaseUse]) -> list[tuple[ProcessKey, str]]:
    """Return GPUs with each process of the lease that is on them."""
    return [(use.key, use.gpu_task.gpu_uuid)
            for use in uses if lease.id in use.leases]


def task_ids(lease: NodeLease, uses: Iterable[LeaseUse]) -> tuple[str, ...]:
    return tuple(sorted({use.gpu_task.task.id for use in uses if use.is_of(lease)}))


def outside_uses(uses: Iterable[LeaseUse]) -> tuple[OutsideUse, ...]:
    return tuple(OutsideUse(use.gpu_task.gpu_uuid, use.gpu_task.task.id, use.gpu_task.task.pid,
                            use.gpu_task.task.user)
                 for use in uses if use.is_outside)[:OUTSIDE_MOST]
