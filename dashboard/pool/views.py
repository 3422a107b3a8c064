"""The pool as the API and the page show it. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping

from msgspec import Struct

from gpudeck.contract.pool_link import (
    ClaimStanding,
    OfferedGpu,
    OutsideUse,
    ReportedEnd,
    ReportedLease,
)
from gpudeck.pool.core.claim_limits import ClaimLimits
from gpudeck.pool.core.claims import CPU_MILLI, WHOLE_MILLI, Claim
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.host_resources import lease_words
from gpudeck.pool.core.schedule import PoolPolicy

from .plan import PlannedPass, PoolNode
from .refusals import RefusedClaim

IDLE_LEAST_S = 60.0  # shorter than a lease's use is reported by


class ModelView(Struct):
    model: str
    gpus: int
    free: int
    leased: int
    unavailable: int


class PoolView(Struct):
    """Pool as a whole. `waiting`: without reservations of which the time has not come.
    `waiting_gpus`: what they ask for together."""

    is_on: bool
    strategy: str
    queue_order: str
    nodes: int
    models: list[ModelView]
    leases: int
    waiting: int
    waiting_gpus: int


class StrategyView(Struct):
    name: str
    words: str
    is_used: bool


class StrategyList(Struct):
    """Strategies of the pool. `orders`: of the queue."""

    items: list[StrategyView]
    orders: list[StrategyView]


class PolicyView(Struct):
    """Policy of the pool. `shares`: of owners, for fair share; who is not named has 1. `limits`: by
    role."""

    strategy: str
    queue_order: str
    default_term_s: float
    pin_after_s: float
    half_life_s: float
    shares: dict[str, float]
    is_preemptive: bool
    grace_s: float
    least_run_s: float
    weights: dict[str, float]
    end_overdue: bool
    predicted_backfill: bool
    several_nodes: bool
    limits: dict[str, ClaimLimits]


class StrategyOutcome(Struct):
    """Outcome of one strategy. `used_pct`: of all GPU time until the last of them ended."""

    strategy: str
    wait_p50_s: float
    wait_p95_s: float
    makespan_s: float
    used_pct: float
    never: int


class SimulationView(Struct):
    """Simulation of strategies. `claims`: the number of claims, of leases that ended in that time,
    that were played over the nodes of now."""

    claims: int
    since: float
    items: list[StrategyOutcome]


class OutsiderView(Struct):
    """A task on a leased GPU without a lease. `user` None: not known."""

    gpu: str
    task_id: str
    user: str | None


class PoolGpuView(Struct):
    """GPU of the pool. `place`: its number on its node, `3`; of a MIG instance `3/9`. `trouble`:
    why it is not given out now."""

    uuid: str
    place: str
    model: str
    is_mig: bool
    mem_bytes: float | None
    trouble: str


class PoolNodeView(Struct):
    node: str
    host: str
    gpus: list[PoolGpuView]


class PoolNodeList(Struct):
    items: list[PoolNodeView]
    next: str | None


class LeaseView(Struct):
    """Lease, held or ended. `idle_since` None: it is used, or nobody can say yet. `is_run`: of a
    running command, with which alone it ends. `outsiders`: who uses its GPUs without a lease.
    `misplaced`: other GPUs on which its own processes are. `why`: how one that is over ended.
    `cpus`, `ram_bytes`: of its node; `host_words`: the same, and whether its command is held to
    them."""

    id: str
    owner: str
    node: str
    host: str
    gpus: list[str]
    share_pct: float
    state: str
    since: float
    until: float
    idle_since: float | None
    command: str
    is_run: bool
    task_ids: list[str]
    outsiders: list[OutsiderView]
    misplaced: list[str]
    why: str = ""
    cpus: float | None = None
    ram_bytes: int | None = None
    host_words: str = ""


class LeaseList(Struct):
    items: list[LeaseView]
    next: str | None


class ClaimView(Struct):
    """Claim in the queue. `place` 1: the next; 0: nodes have refused it for good, and it waits no
    more. `wait_s`: at most, while terms are honoured; None: nobody can say. `estimate`: for people,
    from earlier runs; "": not known. `gpus`: on all its nodes together. `starts_at`: of a
    reservation. `is_here`: made at the hub, where it can be withdrawn; else it waits as long as the
    command on its node. `kept`: GPUs that are kept for it. `team`: of its owner, with which it goes
    before or after others; None: none."""

    id: str
    owner: str
    asks: str
    gpus: int
    priority: int
    asked_at: float
    place: int
    why: str
    wait_s: float | None
    hosts: list[str]
    term_s: float
    starts_at: float | None
    is_here: bool
    estimate: str
    kept: list[str]
    team: str | None


class ClaimChangeView(Struct):
    """Change of a claim on the live socket. `claim` None: it waits no more."""

    id: str
    claim: ClaimView | None


class NewClaimView(Struct):
    id: str


class ClaimList(Struct):
    items: list[ClaimView]
    next: str | None


def pool_view(nodes: Collection[PoolNode], waiting: Collection[Claim], policy: PoolPolicy,
              is_on: bool) -> PoolView:
    return PoolView(
        is_on, policy.strategy, policy.queue_order, len(nodes), model_views(nodes),
        sum(len(node.report.leases) for node in nodes), len(waiting),
        sum(claim.gpus * claim.nodes for claim in waiting))


def model_views(nodes: Iterable[PoolNode]) -> list[ModelView]:
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    leased: Counter[str] = Counter()
    for node in nodes:
        for gpu in node.report.gpus:
            total[gpu.model] += 1
            leased[gpu.model] += gpu.uuid in node.leased
            free[gpu.model] += gpu.uuid in node.available
    return [ModelView(model, total[model], free[model], leased[model],
                      total[model] - free[model] - leased[model]) for model in sorted(total)]


def node_views(nodes: Collection[PoolNode], place_of: Callable[[str, OfferedGpu], str]
               ) -> list[PoolNodeView]:
    return [PoolNodeView(node.id, node.host, [PoolGpuView(
        gpu.uuid, place_of(node.id, gpu), gpu.model, gpu.is_mig, gpu.mem_bytes,
        node.trouble(gpu)) for gpu in sorted(node.report.gpus, key=lambda gpu: gpu.index)])
        for node in sorted(nodes, key=lambda node: (node.host, node.id))]


def policy_view(policy: PoolPolicy) -> PolicyView:
    share = policy.fair_share
    return PolicyView(
        policy.strategy, policy.queue_order, policy.default_term_s, policy.pin_after_s,
        share.half_life_s, dict(share.shares), policy.is_preemptive, policy.grace_s,
        policy.least_run_s, dict(policy.weights), policy.end_overdue, policy.predicted_backfill,
        policy.several_nodes, dict(policy.limits))


def lease_views(nodes: Collection[PoolNode], now: float) -> list[LeaseView]:
    views = [lease_view(node.id, node.host, lease, node.report.outside, now)
             for node in nodes for lease in node.report.leases]
    return sorted(views, key=lambda view: (view.host, view.id))


def lease_view(node_id: str, host: str, lease: ReportedLease, outside: Iterable[OutsideUse],
               now: float) -> LeaseView:
    """Return the view of a lease. `outside`: who uses GPUs of that node without a lease."""
    is_idle = now - lease.used_at >= 2 * IDLE_LEAST_S
    is_unused = not lease.is_run and not lease.task_ids and lease.used_at <= lease.since
    return LeaseView(
        lease.claim.id, lease.claim.owner, node_id, host, list(lease.uuids),
        100 * lease.claim.share_milli / WHOLE_MILLI, lease.state, lease.since, lease.until,
        lease.since if is_unused else lease.used_at if is_idle else None, lease.claim.shape,
        lease.is_run,
        list(lease.task_ids), [OutsiderView(use.gpu, use.task_id, use.user)
                               for use in outside if use.gpu in lease.uuids],
        list(lease.misplaced),
        cpus=None if lease.claim.cpu_milli is None else lease.claim.cpu_milli / CPU_MILLI,
        ram_bytes=lease.claim.ram_bytes,
        host_words=lease_words(lease.claim, lease.cores, lease.limits))


def ended_view(view: LeaseView, end: ReportedEnd | None) -> LeaseView:
    """Return the view marked as ended; as `lost` if its node has not said how."""
    view.idle_since = None
    if end is None:
        view.state = "lost"
    else:
        view.state, view.until, view.why = end.state, end.ended_at, end.why
    return view


def claim_views(planned: PlannedPass, claim_ids: Collection[str], places: Mapping[str, int],
                own: Container[str], kept_gpus: Callable[[str], Collection[str]],
                team_of: Mapping[str, str]) -> list[ClaimView]:
    hosts = {node.id: node.host for node in planned.nodes}
    return [claim_view(claim, standing, places.get(claim.id, standing.place), hosts,
                       claim.id in own, kept_gpus(claim.id), team_of.get(claim.owner))
            for claim, standing in planned.waiting(claim_ids)]


def refused_view(refusal: RefusedClaim) -> ClaimView:
    claim = refusal.claim
    return claim_view(claim, ClaimStanding(claim.id, 0, f"refused: {refusal.why}"), 0, {}, False,
                      (), None)


def claim_view(claim: Claim, standing: ClaimStanding, place: int, hosts: Mapping[str, str],
               is_here: bool, kept_gpus: Collection[str], team: str | None) -> ClaimView:
    """Return the view of a claim. `place`: in the queue, as far as its viewer sees that."""
    return ClaimView(
        claim.id, claim.owner, words(claim), claim.gpus * claim.nodes, claim.priority,
        claim.submitted_at, place, standing.why, standing.wait_s,
        [hosts.get(host, host) for host in claim.hosts], claim.term_s, claim.starts_at, is_here,
        "" if standing.estimate is None else standing.estimate.words, list(kept_gpus), team)
