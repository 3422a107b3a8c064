"""Which tasks use the GPUs of this node, by which lease or without one. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.availability import is_use
from gpudeck.pool.link import OUTSIDE_MOST, OutsideUse

from ..tasks.seen import GpuTask
from .lock import Marks, NodeLease, ProcessKey


@dataclass(frozen=True, slots=True)
class LeaseUse:
    """`leases`: those whose process this is, by its mark. `permits`: those of its user, or whose
    process it is, on this GPU."""

    seen: GpuTask
    leases: frozenset[str]
    permits: frozenset[str]

    @property
    def is_outside(self) -> bool:
        seen = self.seen
        return not self.permits and is_use(seen.mem_used_bytes, seen.sm_pct, seen.task.kind)

    def may_be_of(self, lease: NodeLease) -> bool:
        return lease.id in self.permits and (not self.leases or lease.id in self.leases)

    def is_of(self, lease: NodeLease) -> bool:
        """For sure: of two leases of one user on a GPU, which one has it is not known unmarked."""
        return self.may_be_of(lease) and (lease.id in self.leases or len(self.permits) == 1)


def lease_uses(tasks: Sequence[GpuTask], leases: Sequence[NodeLease], marks: Marks
               ) -> tuple[LeaseUse, ...]:
    """A container one of whose processes carries a mark is known by it, all of it."""
    containers: dict[str | None, set[str]] = defaultdict(set)
    own: dict[tuple[int, int], set[str]] = defaultdict(set)
    for lease in leases:
        for key in marks.get(lease.id, ()):
            own[key].add(lease.id)
        if lease.process is not None:
            own[lease.process.key].add(lease.id)
    for each in tasks:
        if each.task.container is not None:
            containers[each.task.container] |= own[each.task.pid, each.task.start_ticks]
    found = []
    for each in tasks:
        whose = frozenset(own[each.task.pid, each.task.start_ticks]
                          | containers.get(each.task.container, set()))
        found.append(LeaseUse(each, whose, frozenset(
            lease.id for lease in leases if each.gpu_uuid in lease.uuids
            and (lease.id in whose or (lease.uid == each.task.uid
                                       and lease.given_back_at is None)))))
    return tuple(found)


def misplaced(lease: NodeLease, uses: Iterable[LeaseUse], leases: Sequence[NodeLease]
              ) -> tuple[str, ...]:
    """GPUs on which its processes are, and which none of their leases has."""
    of = {each.id: each.uuids for each in leases}
    return tuple(sorted({use.seen.gpu_uuid for use in uses if lease.id in use.leases and not any(
        use.seen.gpu_uuid in of[lease_id] for lease_id in use.leases)}))


def processes_on(lease: NodeLease, uses: Iterable[LeaseUse]) -> list[tuple[ProcessKey, str]]:
    """GPUs with each process of the lease that is on them."""
    return [((each.seen.task.pid, each.seen.task.start_ticks), each.seen.gpu_uuid)
            for each in uses if lease.id in each.leases]


def task_ids(lease: NodeLease, uses: Iterable[LeaseUse]) -> tuple[str, ...]:
    return tuple(sorted({use.seen.task.id for use in uses if use.is_of(lease)}))


def outside_uses(uses: Iterable[LeaseUse]) -> tuple[OutsideUse, ...]:
    return tuple(OutsideUse(each.seen.gpu_uuid, each.seen.task.id, each.seen.task.pid,
                            each.seen.task.user)
                 for each in uses if each.is_outside)[:OUTSIDE_MOST]
