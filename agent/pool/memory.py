"""GPU memory of shares: which limits the driver is to enforce for the control groups of their
commands, and whether it does."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpudeck.contract.limits import GroupMemoryLimit
from gpudeck.contract.pool_messages import SCOPE_UNIT
from gpudeck.pool.core.host_resources import GPU_MEMORY

from ..journal.store import JournalError
from ..limits.memory_limits import MemoryTarget, gibibytes
from .leases import NodeLeases
from .lock import NodeLease, PoolGpu, ProcessKey

NO_GROUP = ("its command is in no control group that is its alone, which it gets from the "
            "systemd of its user (`loginctl enable-linger`)")

GroupOf = Callable[[int], str | None]  # the control group of a process


class LeaseMemory:
    """Memory of the leases of a node. `limits`: of control groups, as they are now; raises
    JournalError. `tell`: tells the owner of a lease. Not thread-safe."""

    def __init__(self, leases: NodeLeases, limits: Callable[[], Sequence[GroupMemoryLimit]],
                 group_of: GroupOf, tell: Callable[[NodeLease, str], None]) -> None:
        self._leases = leases
        self._limits = limits
        self._group_of = group_of
        self._tell = tell
        self._notices: dict[str, str] = {}  # by lease

    def targets(self, gpus: Mapping[str, PoolGpu]) -> list[MemoryTarget]:
        """Return the limits that leases want, and note which of them the driver holds now."""
        leases = [lease for lease in self._leases.all.values() if is_limited(lease)]
        groups = {lease.id: self._scope_of(lease) for lease in leases}
        self._notices = {key: text for key, text in self._notices.items() if key in groups}
        try:
            limits = self._limits() if leases else ()
        except JournalError:
            limits = ()
        for lease in leases:
            now, text = with_limits(lease, groups[lease.id], limits)
            if now != lease:
                self._leases.all = {**self._leases.all, lease.id: now}
            if text and text != self._notices.get(lease.id):
                self._notices[lease.id] = text
                self._tell(lease, text)
        return targets(leases, gpus, groups)

    def _scope_of(self, lease: NodeLease) -> str | None:
        processes = {*self._leases.marks.of(lease.id)}
        if lease.process is not None:
            processes.add(lease.process.key)
        return scope_of(lease, processes, self._group_of)


def targets(leases: Iterable[NodeLease], gpus: Mapping[str, PoolGpu],
            groups: Mapping[str, str | None]) -> list[MemoryTarget]:
    """Return the limits that shares want. `groups`: of leases. MIG holds the memory of instances
    by itself, and a whole board is for its lease alone."""
    return [MemoryTarget(uuid, group, lease.claim.mem_bytes, f"lease {lease.id}")
            for lease in leases if is_limited(lease) and (group := groups.get(lease.id))
            for uuid in lease.uuids if uuid in gpus and not gpus[uuid].is_mig
            if lease.claim.mem_bytes is not None]


def is_limited(lease: NodeLease) -> bool:
    return lease.state == "active" and lease.claim.is_share and (
        lease.claim.mem_bytes is not None)


def scope_of(lease: NodeLease, processes: Collection[ProcessKey], group_of: GroupOf
             ) -> str | None:
    """Return the control group that the command of a lease was started in. None: there is none.
    Only one below its user's own slice counts: others would limit somebody else."""
    scope, own = f"/{SCOPE_UNIT.format(lease.id)}", f"/user.slice/user-{lease.uid}.slice/"
    for pid, _ in sorted(processes):
        path = group_of(pid) or ""
        at = f"{path}/".find(f"{scope}/")
        if at >= 0 and path.startswith(own):
            return path[:at + len(scope)]
    return None


def with_limits(lease: NodeLease, group: str | None, limits: Sequence[GroupMemoryLimit]
                ) -> tuple[NodeLease, str]:
    """Return the lease as the driver holds it now, and what its owner should hear of that."""
    own = [limit for limit in limits if limit.group == group and limit.gpu_uuid in lease.uuids]
    is_held = bool(own) and all(limit.state == "in_force" for limit in own)
    was_held = GPU_MEMORY in lease.limits
    other_limits = tuple(word for word in lease.limits if word != GPU_MEMORY)
    now = replace(lease, limits=(*other_limits, GPU_MEMORY) if is_held else other_limits)
    if is_held:
        most = min(limit.limit_bytes for limit in own)
        return now, "" if was_held else (
            f"the driver limits the GPU memory of this lease to {gibibytes(most)}")
    why = NO_GROUP if group is None else next(
        (limit.words for limit in own if limit.state != "in_force"), "")
    return now, why and (f"the driver does not limit the GPU memory of this lease: {why}; "
                         f"{other_holder(lease)}")


def other_holder(lease: NodeLease) -> str:
    """Describe what limits the memory of a share where the driver does not."""
    return ("MPS limits each of its processes, and a program can take that off" if lease.mps_pipes
            else "HAMi-core limits it inside of its processes, and a program can take that off")
