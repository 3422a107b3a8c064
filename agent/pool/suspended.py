"""Leases whose work was suspended for another claim: they give their GPUs up, wait in the queue and
get them again. All of it is on disk before it counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpudeck.contract.pool_link import ClaimStanding
from gpudeck.contract.suspensions import SuspendedTask
from gpudeck.pool.core.claims import TEXT_MOST

from ..limits.stores import SuspensionStore
from . import lock
from .clock import PoolClock
from .gpus import PoolSnapshot, host_resources
from .leases import NodeLeases
from .lock import NodeLease, PoolGpu, ProcessKey
from .uses import LeaseUse

OTHER_GPUS = "its work was suspended on other GPUs"


def suspended_processes(store: SuspensionStore, boot_id: str
                        ) -> dict[ProcessKey, SuspendedTask]:
    """Return the processes that are suspended, or may be, by what is recorded of them. Raises
    JournalError."""
    return {(entry.process.pid, entry.process.start_ticks): task for task in store.all()
            if task.boot_id == boot_id for entry in task.processes}


def _is_away(use: LeaseUse, tasks: Mapping[ProcessKey, SuspendedTask]) -> bool:
    """Return whether its process is suspended, and the driver lists it no more: memory that it did
    not free is nobody else's."""
    task = tasks.get(use.key)
    return use.gpu_task.is_suspended and task is not None and task.state == "suspended"


@dataclass(slots=True)
class SuspendedLeases:
    """Leases whose work is suspended. `processes`: that are suspended, or may be; raises
    JournalError. `tell`: tells the owner of a lease. `standings`: of those that wait, as a hub said
    last."""

    leases: NodeLeases
    clock: PoolClock
    processes: Callable[[], Mapping[ProcessKey, SuspendedTask]]
    tell: Callable[[NodeLease, str], None]
    standings: dict[str, ClaimStanding] = field(init=False, default_factory=dict)

    @property
    def waiting(self) -> list[NodeLease]:
        return [lease for lease in self.leases.all.values() if lease.waits]

    def step(self, uses: Sequence[LeaseUse] | None) -> None:
        """Take the GPUs of preempted leases all of whose work is suspended, and note what is
        restored, or has to be. Raises JournalError."""
        self.standings = {lease.id: self.standings[lease.id] for lease in self.waiting
                          if lease.id in self.standings}
        concerned = [lease for lease in self.leases.all.values()
                     if lease.uuids and (
                         lease.preempted or lease.home_gpus or lease.claim.is_suspendable)]
        if uses is None or not concerned:
            return
        tasks = self.processes()
        for lease in concerned:
            on_gpus = [use for use in uses if use.may_be_of(lease)]
            own = {use.key for use in on_gpus} | {*self.leases.marks.of(lease.id)}
            if lease.preempted and on_gpus and all(_is_away(use, tasks) for use in on_gpus):
                self._take(lease)
            elif lease.home_gpus and tasks.keys().isdisjoint(own):
                self.leases.put(replace(lease, home_gpus=()), {
                    "pool": "restored", "lease": lease.id})
            elif not lease.preempted and not lease.home_gpus and any(
                    use.is_of(lease) and use.key in tasks and tasks[use.key].is_by_pool
                    for use in on_gpus):
                # Nobody asks for its GPUs any more: what was suspended for that has to come back.
                self.leases.put(replace(lease, home_gpus=lease.uuids), {
                    "pool": "restoring", "lease": lease.id})

    def _take(self, lease: NodeLease) -> None:
        """Take the GPUs of a lease. What it held until now is reported as a lease that has ended,
        by an id of its own."""
        self.leases.put(replace(lease, uuids=(), home_gpus=lease.uuids, preempted="", kill_at=None),
                        {"pool": "suspended", "lease": lease.id, "uuids": list(lease.uuids),
                         "why": lease.preempted})
        part_id = f"{lease.id}+{lease.since:.0f}"[-TEXT_MOST:]
        self.leases.note_end(replace(lease.claim, id=part_id), lease, "preempted", lease.preempted)
        self.tell(lease, "its work is suspended, and somebody else gets its GPUs "
                         f"({lease.preempted}). It keeps its place in the queue, and is restored "
                         "when its GPUs are free; to end it, end its command")

    def give(self, lease: NodeLease, uuids: Sequence[str], gpus: Mapping[str, PoolGpu],
             snapshot: PoolSnapshot | None, is_planned: bool) -> str:
        """Give a lease its GPUs again; return why not. `is_planned`: a hub decides, which has its
        work restored."""
        if {*uuids} != {*lease.home_gpus}:
            return OTHER_GPUS
        now = self.clock.now()
        after = replace(lease, uuids=lease.home_gpus, since=now, used_at=now, told_at=None,
                        told_until=None, until=now + lease.claim.term_s)
        rivals = [other for other in self.leases.all.values() if other.id != lease.id]
        why = self.leases.trouble or lock.refusal(rivals, after, gpus, host_resources(snapshot))
        if not why:
            self.leases.put(after, {"pool": "returned", "lease": lease.id,
                                    "uuids": list(after.uuids)})
            self.tell(lease, "it has its GPUs again, and its work is restored" if is_planned else
                      "it has its GPUs again; no hub is there to restore its work: gpudeck restore "
                      "does")
        return why
