"""Messages between a node and its hub about the pool.

Each message is the whole state, so that one that is lost, late or sent twice changes nothing: the
node's report is the truth of what is leased, the hub's plan a proposal."""

from typing import Annotated

from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Amount, Number, Pid, Seconds, Text, Word
from gpudeck.contract.pool_messages import ELSEWHERE_MOST, NODES_MOST
from gpudeck.pool.core.claims import DEFAULT_GRACE_S, Claim, flaw
from gpudeck.pool.core.wait_estimate import WaitEstimate

GPUS_MOST = 256
CLAIMS_MOST = 1_024
LEASES_MOST = 1_024
ENDED_MOST = 256
OUTSIDE_MOST = 1_024
WITHDRAWALS_MOST = 256
TASKS_MOST = 4_096  # of one lease
Groups = Annotated[tuple[Word, ...], Meta(max_length=64)]  # of one user


class OfferedGpu(Struct, frozen=True):
    """GPU of a node. `trouble`: why this node does not give it out now, and `reason` the same as a
    word of gpudeck.measures.availability; "": it does."""

    uuid: Word
    model: Word
    index: Number
    is_mig: bool = False
    numa: Number | None = None
    clique: Number | None = None
    mem_bytes: Amount | None = None
    trouble: Text = ""
    reason: Text = ""


class NodeClaim(Struct, frozen=True):
    """Claim made on this node, or with `home_gpus` a lease whose work is suspended there. Times are
    UTC. `paused`: why it gets nothing now, and keeps its
    place; "": it would take GPUs. `limits_itself`: it holds its share without MPS; None: its agent
    is older, and does not say."""

    claim: Claim
    is_run: bool
    paused: Text = ""
    limits_itself: bool | None = None


class ReportedLease(Struct, frozen=True):
    """Lease on this node. `task_ids`: its tasks on its GPUs; `misplaced`: other GPUs on which its
    processes are. `is_run`: of a running command, with which alone it ends. `cores`: that are for
    it alone, as the kernel writes them; `limits`: `cpus`, `ram`, `gpu_mem`, to which its process
    was seen to be held."""

    claim: Claim
    uuids: Annotated[tuple[Word, ...], Meta(max_length=GPUS_MOST)]
    state: Word
    since: Seconds
    until: Seconds
    used_at: Seconds
    task_ids: Annotated[tuple[Word, ...], Meta(max_length=TASKS_MOST)] = ()
    misplaced: Annotated[tuple[Word, ...], Meta(max_length=GPUS_MOST)] = ()
    is_run: bool = False
    cores: Text = ""
    limits: Annotated[tuple[Word, ...], Meta(max_length=8)] = ()


class OutsideUse(Struct, frozen=True):
    """A task on a GPU, leased or not, without a lease."""

    gpu: Word
    task_id: Word
    pid: Pid
    user: Word | None


class ReportedEnd(Struct, frozen=True):
    """A lease that ended on this node lately."""

    claim: Claim
    uuids: Annotated[tuple[Word, ...], Meta(max_length=GPUS_MOST)]
    since: Seconds
    ended_at: Seconds
    state: Word
    why: Text = ""
    exit_status: int | None = None


class Withdrawal(Struct, frozen=True):
    """A user of this node takes back what they asked for there. `owner` None: root does."""

    claim_id: Word
    owner: Word | None


class PoolReport(Struct, frozen=True, tag="pool"):
    """Report of a node on its pool. `refused`: claim to why this node did not take what the hub
    proposed for it. `groups`: Unix groups of the owners of its claims and leases, as the system
    says. `managed_by`: the scheduler that assigns its GPUs, so that none is ever leased; "": the
    pool does. `cpus`: that are online; `ram_bytes`: of the machine; None: not known. `no_end`: what
    forbids rules to end work there; "": nothing; None: its agent is older, and does not say."""

    gpus: Annotated[tuple[OfferedGpu, ...], Meta(max_length=GPUS_MOST)]
    claims: Annotated[tuple[NodeClaim, ...], Meta(max_length=CLAIMS_MOST)]
    leases: Annotated[tuple[ReportedLease, ...], Meta(max_length=LEASES_MOST)]
    ended: Annotated[tuple[ReportedEnd, ...], Meta(max_length=ENDED_MOST)] = ()
    refused: Annotated[dict[Word, Text], Meta(max_length=CLAIMS_MOST)] = {}
    outside: Annotated[tuple[OutsideUse, ...], Meta(max_length=OUTSIDE_MOST)] = ()
    withdrawals: Annotated[tuple[Withdrawal, ...], Meta(max_length=WITHDRAWALS_MOST)] = ()
    groups: Annotated[dict[Word, Groups], Meta(max_length=CLAIMS_MOST + LEASES_MOST)] = {}
    managed_by: Text = ""
    cpus: Number | None = None
    no_end: Text | None = None
    ram_bytes: Amount | None = None


def reported_ids(report: PoolReport | None) -> set[tuple[str, str]]:
    """Return the ids of a report's claims, leases and ends, each with what it is."""
    return set() if report is None else {
        (what, entry.claim.id) for what, entries in (
            ("claim", report.claims), ("lease", report.leases), ("end", report.ended))
        for entry in entries}


def report_flaw(report: PoolReport) -> str:
    """Return what of a report's claims is out of bounds; "": nothing."""
    claims = (*(entry.claim for entry in report.claims), *(entry.claim for entry in report.leases),
              *(entry.claim for entry in report.ended))
    return next(filter(None, map(flaw, claims)), "")


class LeaseOffer(Struct, frozen=True):
    """Offer of a lease. `claim`: of a claim that was not asked on this node; its owner is a user
    there. `hosts`: of several nodes all, in the order of ranks."""

    claim_id: Word
    uuids: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=GPUS_MOST)]
    claim: Claim | None = None
    hosts: Annotated[tuple[Word, ...], Meta(max_length=NODES_MOST)] = ()


class ClaimStanding(Struct, frozen=True):
    """Standing of a claim in the queue. `elsewhere`: other nodes that have it free. Of a
    reservation, once the hub has made it its own, `kept`: the GPUs; or `never`: why it cannot be
    kept, or of others, why nothing here could meet it."""

    claim_id: Word
    place: Number
    why: Text
    wait_s: Amount | None = None  # at most, while terms are honoured
    estimate: WaitEstimate | None = None
    elsewhere: Annotated[tuple[Word, ...], Meta(max_length=ELSEWHERE_MOST)] = ()
    kept: Annotated[tuple[Word, ...], Meta(max_length=GPUS_MOST)] = ()
    never: Text = ""


class NodeMaintenance(Struct, frozen=True):
    """Maintenance of a node. `until`: UTC; it ends by itself."""

    why: Text
    until: Seconds


class ReservedGpus(Struct, frozen=True):
    """GPUs of a node that are kept for somebody, UTC."""

    claim_id: Word
    owner: Word
    uuids: Annotated[tuple[Word, ...], Meta(max_length=GPUS_MOST)]
    starts_at: Seconds
    ends_at: Seconds


class PoolPlan(Struct, frozen=True, tag="pool_plan"):
    """Plan of the hub for a node. It says also that this hub decides: the node gives out nothing by
    itself meanwhile. `preempt`: lease to why its work is ended by commands that follow; the node
    notifies its owner. `keep_until`: leases that are not renewed past that time, since somebody
    else begins there. `extend`: lease to when, UTC, it is to last at least. `withdrawn`: of the
    node's withdrawals, why not; "": it is. `grace_s`: between the asking and the killing of what is
    pre-empted."""

    offers: Annotated[tuple[LeaseOffer, ...], Meta(max_length=CLAIMS_MOST)] = ()
    standings: Annotated[tuple[ClaimStanding, ...], Meta(max_length=CLAIMS_MOST)] = ()
    give_back: Annotated[dict[Word, Text], Meta(max_length=LEASES_MOST)] = {}
    preempt: Annotated[dict[Word, Text], Meta(max_length=LEASES_MOST)] = {}
    keep_until: Annotated[dict[Word, Seconds], Meta(max_length=LEASES_MOST)] = {}
    extend: Annotated[dict[Word, Seconds], Meta(max_length=LEASES_MOST)] = {}
    withdrawn: Annotated[dict[Word, Text], Meta(max_length=WITHDRAWALS_MOST)] = {}
    grace_s: Amount = DEFAULT_GRACE_S
    maintenance: NodeMaintenance | None = None  # while it lasts, the node gives out nothing
    reserved: Annotated[tuple[ReservedGpus, ...], Meta(max_length=CLAIMS_MOST)] = ()
