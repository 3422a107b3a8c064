"""The pool as the API and the page show it. Pure."""

from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.feasibility import words

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
    """`place` 1: the next. `wait_s` None: nobody can say."""

    id: str
    owner: str
    asks: str
    priority: int
    asked_at: float
    place: int
    why: str
    wait_s: float | None
    hosts: list[str]


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
                      [hosts.get(each, each) for each in claim.hosts])
            for claim, said in planned.waiting(claim_ids)]
