"""The pool as the API and the page show it. Pure."""

from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.schedule import PoolPolicy

from .plan import PlannedPass, PoolNode

IDLE_LEAST_S = 60.0  # shorter than a lease's use is reported by


class ModelView(Struct):
    model: str
    gpus: int
    free: int
    leased: int
    unavailable: int


class PoolView(Struct):
    """`waiting_gpus`: what all waiting claims ask for together."""

    is_on: bool
    strategy: str
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
    items: list[StrategyView]


class PolicyView(Struct):
    """`shares`: of owners, for fair share; who is not named has 1."""

    strategy: str
    default_term_s: float
    pin_after_s: float
    half_life_s: float
    shares: dict[str, float]
    is_preemptive: bool
    grace_s: float
    least_run_s: float


class StrategyOutcome(Struct):
    """`used_pct`: of all GPU time until the last of them ended."""

    strategy: str
    wait_p50_s: float
    wait_p95_s: float
    makespan_s: float
    used_pct: float
    never: int


class SimulationView(Struct):
    """`claims`: so many, of leases that ended in that time, were played over the nodes of now."""

    claims: int
    since: float
    items: list[StrategyOutcome]


class OutsiderView(Struct):
    """A task on a leased GPU without a lease. `user` None: not known."""

    gpu: str
    task_id: str
    user: str | None


class LeaseView(Struct):
    """`idle_s` None: it is used, or nobody can say yet. `outsiders`: who uses its GPUs without a
    lease. `misplaced`: other GPUs on which its own processes are."""

    id: str
    owner: str
    node: str
    host: str
    gpus: list[str]
    share_pct: float
    state: str
    since: float
    until: float
    idle_s: float | None
    command: str
    task_ids: list[str]
    outsiders: list[OutsiderView]
    misplaced: list[str]


class LeaseList(Struct):
    items: list[LeaseView]
    next: str | None


class ClaimView(Struct):
    """`place` 1: the next. `wait_s`: at most, while terms are honoured; None: nobody can say.
    `estimate`: for people, from earlier runs; "": not known."""

    id: str
    owner: str
    asks: str
    priority: int
    asked_at: float
    place: int
    why: str
    wait_s: float | None
    hosts: list[str]
    estimate: str


class NewClaimView(Struct):
    id: str


class ClaimList(Struct):
    items: list[ClaimView]
    next: str | None


def pool_view(nodes: Collection[PoolNode], waiting: Collection[Claim], strategy: str, is_on: bool
              ) -> PoolView:
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    leased: Counter[str] = Counter()
    for node in nodes:
        held = {uuid for each in node.report.leases for uuid in each.uuids}
        for gpu in node.report.gpus:
            total[gpu.model] += 1
            leased[gpu.model] += gpu.uuid in held
            free[gpu.model] += gpu.uuid not in held and not gpu.trouble
    return PoolView(
        is_on, strategy, len(nodes),
        [ModelView(model, total[model], free[model], leased[model],
                   total[model] - free[model] - leased[model]) for model in sorted(total)],
        sum(len(node.report.leases) for node in nodes), len(waiting),
        sum(each.gpus * each.nodes for each in waiting))


def policy_view(policy: PoolPolicy) -> PolicyView:
    share = policy.fair_share
    return PolicyView(policy.strategy, policy.default_term_s, policy.pin_after_s,
                      share.half_life_s, dict(share.shares), policy.is_preemptive, policy.grace_s,
                      policy.least_run_s)


def lease_views(nodes: Collection[PoolNode], now: float) -> list[LeaseView]:
    found = [LeaseView(
        each.claim.id, each.claim.owner, node.id, node.host, list(each.uuids),
        100 * each.claim.share_milli / WHOLE_MILLI, each.state, each.since, each.until,
        now - each.used_at if now - each.used_at >= 2 * IDLE_LEAST_S else None, each.claim.shape,
        list(each.task_ids), [OutsiderView(use.gpu, use.task_id, use.user)
                              for use in node.report.outside if use.gpu in each.uuids],
        list(each.misplaced))
        for node in nodes for each in node.report.leases]
    return sorted(found, key=lambda each: (each.host, each.since, each.id))


def claim_views(planned: PlannedPass, claim_ids: Collection[str]) -> list[ClaimView]:
    hosts = {node.id: node.host for node in planned.nodes}
    return [ClaimView(claim.id, claim.owner, words(claim), claim.priority, claim.submitted_at,
                      said.place, said.why, said.wait_s,
                      [hosts.get(each, each) for each in claim.hosts],
                      "" if said.estimate is None else said.estimate.words)
            for claim, said in planned.waiting(claim_ids)]
