"""The lock on this node's GPUs: which of them are leased, and what keeps a lease. Pure.

Whatever a hub proposes and however many ask at once, a GPU is given out here or nowhere. Times
are seconds since the machine started: setting its clock ends no lease.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from gpudeck.measures.availability import GpuConditions
from gpudeck.pool.core.claims import WHOLE_MILLI, Claim, Grant, Lease, State
from gpudeck.pool.core.host_resources import FreeHost, lack_words
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of

BIND_WITHIN_S = 30.0
NOT_CLAIMED = f"nobody claimed it within {BIND_WITHIN_S:.0f} s"
WORK_ENDED = "its processes have ended"
BOARD_LEASED = "its board was leased whole before it was split"
UNUSED_TELL_S = 900.0
UNUSED_TAKE_PART = 3  # of that time, after its owner was notified
LEFT_LOOK_S = 5.0  # what a program left behind may still be on its way to other GPUs
LEFT_KEEP_S = 60.0  # and may come to use GPUs that it is not on yet


NOTHING_AGAINST = GpuConditions()

ProcessKey = tuple[int, int]  # pid and start ticks
Marks = Mapping[str, Collection[ProcessKey]]  # lease to the processes that carry its mark


@dataclass(frozen=True, slots=True)
class LeasedProcess:
    """Process that a lease is bound to. `inode`: of its pidfd, if the kernel gives each its own."""

    pid: int
    start_ticks: int
    inode: int | None

    @property
    def key(self) -> ProcessKey:
        return self.pid, self.start_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLease:
    id: str
    claim: Claim
    uuids: tuple[str, ...]
    uid: int
    is_run: bool
    state: Literal["offered", "active"]
    since: float
    until: float
    used_at: float
    process: LeasedProcess | None = None
    told_at: float | None = None  # when its owner was notified that nobody uses it
    told_until: float | None = None  # the end of its term that its owner was notified of
    misplaced: tuple[str, ...] = ()  # other GPUs on which its processes were last
    mps_pipes: str = ""  # of the daemon that holds its share
    preempted: str = ""  # why it is being taken back
    kill_at: float | None = None  # None: its run was not asked to end its command
    hosts: tuple[str, ...] = ()  # of several nodes all, in the order of ranks
    is_program: bool = False  # its process requested it, and may go on without it
    run: ProcessKey | None = None  # the `gpudeck run` that bound its process
    left: tuple[ProcessKey, ...] = ()  # what was still there when its process had ended
    given_back_at: float | None = None  # by its program, which had left something behind
    cores: tuple[int, ...] = ()  # that are for it alone; none: CPUs are only counted
    limits: tuple[str, ...] = ()  # to which its process was seen to be held when it was bound
    # Its GPUs when its work was suspended, until that is restored.
    home_gpus: tuple[str, ...] = ()

    @property
    def roots(self) -> Collection[ProcessKey]:
        """Processes whose descendants belong to this lease. A program starts other things, too."""
        return self.left if self.process is None or self.is_program else (
            *self.left, self.process.key)

    @property
    def end_state(self) -> State:
        return "preempted" if self.preempted else "released"

    @property
    def waits(self) -> bool:
        """Return whether its work is suspended and it waits in the queue, without GPUs."""
        return bool(self.home_gpus) and not self.uuids

    def as_lease(self, node_id: str) -> Lease:
        return Lease(id=self.id, claim=self.claim, grants=(Grant(node_id, self.uuids),),
                     since=self.since, until=self.until)


@dataclass(frozen=True, slots=True)
class PoolGpu:
    """GPU of this node. `trouble`: why it is not given out now, leased or not; `reason`: the same
    as a word. "": it is."""

    uuid: str
    model: str
    index: int
    is_mig: bool
    numa: int | None
    clique: int | None
    mem_bytes: int | None
    trouble: str
    pci_bus_id: str | None = None
    board_uuid: str = ""  # of a MIG instance that of its board
    reason: str = ""
    read: GpuConditions = NOTHING_AGAINST


def refusal(leases: Collection[NodeLease], new: NodeLease, gpus: Mapping[str, PoolGpu],
            host: FreeHost) -> str:
    """Return why these GPUs cannot go to the claim of `new`; "": they can. `host`: all CPUs and
    memory of the node."""
    for uuid in new.uuids:
        gpu = gpus.get(uuid)
        if gpu is None:
            return f"there is no GPU {uuid} on this node"
        if gpu.trouble:
            return f"GPU {gpu.index}: {gpu.trouble}"
        if gpu.is_mig and any(gpu.board_uuid in lease.uuids for lease in leases):
            return f"GPU {gpu.index}: {BOARD_LEASED}"
        claims = [lease.claim for lease in leases if uuid in lease.uuids]
        if sum(claim.share_milli for claim in claims) + new.claim.share_milli > WHOLE_MILLI:
            return f"GPU {gpu.index} is leased"
        booked = [claim.mem_bytes for claim in (*claims, new.claim) if claim.mem_bytes is not None]
        if booked and (gpu.mem_bytes is None or sum(booked) > gpu.mem_bytes):
            return f"GPU {gpu.index} does not have that much memory left"
    return lack_words(new.claim, host, host.after_grants(lease.claim for lease in leases))


def free_node(node_id: str, host: str, gpus: Collection[PoolGpu], leases: Iterable[NodeLease],
              host_resources: FreeHost) -> Node:
    """Return the node as placement sees it. GPU 0 comes last: programs that name no device use
    it."""
    node = node_of(node_id, host, [
        (gpu.uuid, FreeGpu(gpu.model, gpu.is_mig, gpu.clique, gpu.numa, gpu.mem_bytes))
        for gpu in sorted(gpus, key=lambda gpu: -gpu.index) if not gpu.trouble],
        host_resources.cpu_milli, free_ram_bytes=host_resources.ram_bytes)
    for lease in leases:
        node = node.after_grant([uuid for uuid in lease.uuids if uuid in node.uuids], lease.claim)
    return node


@dataclass(frozen=True, slots=True)
class LeaseSigns:
    """Signs that a lease is used. Any of them keeps it."""

    is_connected: bool
    is_alive: bool  # the process that it was bound to
    marked: int  # processes that carry its mark in their environment
    on_gpus: bool | None  # its tasks on its GPUs; None: they have not been listed yet

    @property
    def any(self) -> bool:
        return self.is_alive or self.marked > 0 or self.on_gpus is True


@dataclass(frozen=True, slots=True)
class Review:
    """Outcome of a review. `lease` None: it has ended; `why`: for people. `tell`: for its owner."""

    lease: NodeLease | None
    why: str = ""
    tell: tuple[str, ...] = ()


def review(lease: NodeLease, signs: LeaseSigns, keep_until: float | None, unused_s: float,
           now: float) -> Review:
    """Review the use and the term of a lease. `keep_until`: another claim starts on its GPUs then,
    so it is not renewed past that. `unused_s`: after that the owner is notified that nothing uses
    them."""
    if lease.state == "offered":
        if now - lease.since >= BIND_WITHIN_S:
            return Review(None, NOT_CLAIMED)
        return Review(lease)
    if lease.waits:
        return Review(lease) if signs.any or signs.is_connected else Review(None, WORK_ENDED)
    if lease.preempted and not signs.any and not signs.is_connected:
        return Review(None, lease.preempted)
    outcome = _use_reviewed(lease, signs, unused_s, now)
    if outcome.lease is None or now < lease.until or not signs.any or lease.preempted:
        return outcome
    if keep_until is None or keep_until > now:
        until = now + lease.claim.term_s
        return replace(outcome, lease=replace(
            outcome.lease, until=until if keep_until is None else min(until, keep_until)))
    if lease.told_until == lease.until:
        return outcome
    return replace(outcome, lease=replace(outcome.lease, told_until=lease.until), tell=(
        *outcome.tell,
        f"the term of lease {lease.id} is over, and others wait for its GPUs: finish, "
        f"or extend it (gpudeck claim --extend {lease.id} 1h)"))


def _use_reviewed(lease: NodeLease, signs: LeaseSigns, unused_s: float, now: float) -> Review:
    # A bare claim is used by any process with its mark, a run only by tasks on its GPUs.
    is_used = (signs.any and signs.on_gpus is not False) if lease.is_run else (
        signs.any or signs.on_gpus is None)
    if is_used:
        return Review(replace(lease, used_at=now, told_at=None))
    if lease.is_run and not signs.any:
        # Its process has ended, and nothing that it started is left.
        return Review(lease) if signs.is_connected else Review(None, WORK_ENDED)
    take_s = unused_s / UNUSED_TAKE_PART
    if now - lease.used_at < unused_s:
        return Review(lease)
    if lease.told_at is None:
        # Downloads and compiles take long: a run is notified, and keeps its GPUs.
        what = "it keeps them while it runs" if lease.is_run else (
            f"they are released in {_span(take_s)} unless something does")
        return Review(replace(lease, told_at=now), tell=(
            f"no process has used the GPUs of lease {lease.id} for {_span(unused_s)}; "
            f"{what}",))
    if not lease.is_run and now - lease.told_at >= take_s:
        return Review(None, "no process used its GPUs")
    return Review(lease)


def remaining_gpus(lease: NodeLease, left_behind: Collection[ProcessKey],
                   uses: Collection[tuple[ProcessKey, str]], now: float) -> tuple[str, ...]:
    """Return the GPUs of a lease that stay with what its program left behind when it gave it back.
    `uses`: GPUs with each process of the lease that is on them."""
    since_s = inf if lease.given_back_at is None else now - lease.given_back_at
    users = {key for key, _ in uses}
    may_come = since_s < LEFT_KEEP_S and any(key not in users for key in left_behind)
    if lease.given_back_at is None or since_s < LEFT_LOOK_S or may_come:
        return lease.uuids
    used_uuids = {uuid for _, uuid in uses}
    return tuple(uuid for uuid in lease.uuids if uuid in used_uuids)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
