"""REST of how the pool decides: its policy, its strategies, and what another would have done."""

import time
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpudeck.contract.message_limits import Word
from gpudeck.pool.core.claim_limits import ClaimLimits
from gpudeck.pool.core.claims import PRIORITIES, TERM_LEAST_S, TERM_MOST_S
from gpudeck.pool.core.fair_share import QUEUE_ORDERS, FairSharePolicy
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.schedule import PoolPolicy
from gpudeck.pool.core.simulation import TracedClaim, waiting
from gpudeck.pool.core.strategies import STRATEGIES, PlacementContext

from ..access.policy import PermissionReach, Role, actor_fields
from ..access.requests import caller
from ..access.routes import Route, change, see
from ..audit.recorder import AuditRecorder
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import bad
from ..web.query_pool import QueryPool
from . import views
from .service import PoolService

CLAIMS_MOST = 2_000
DAY_S = 86_400.0

Share = Annotated[float, Meta(gt=0, le=1e6)]
Span = Annotated[float, Meta(ge=0, le=TERM_MOST_S)]


class NewLimits(Struct, forbid_unknown_fields=True):
    """New limits of a role. What is left out stays as it is; `reserved_gpu_h` -1: any number."""

    priority: Annotated[int, Meta(ge=PRIORITIES.start, lt=PRIORITIES.stop)] | None = None
    waiting: Annotated[int, Meta(ge=1, le=1_024)] | None = None
    reserved_gpu_h: Annotated[float, Meta(ge=-1, le=1e9)] | None = None
    term_s: Annotated[float, Meta(ge=TERM_LEAST_S, le=TERM_MOST_S)] | None = None
    extends_while_waited: bool | None = None

    def over(self, was: ClaimLimits) -> ClaimLimits:
        new = {name: value for name in self.__struct_fields__
               if (value := getattr(self, name)) is not None}
        if new.get("reserved_gpu_h", 0.0) < 0:
            new["reserved_gpu_h"] = None
        return replace(was, **new)


class NewPolicy(Struct, forbid_unknown_fields=True):
    """New policy. What is left out stays as it is."""

    strategy: Word | None = None
    queue_order: Word | None = None
    default_term_s: Annotated[float, Meta(ge=TERM_LEAST_S, le=TERM_MOST_S)] | None = None
    pin_after_s: Annotated[float, Meta(ge=60, le=TERM_MOST_S)] | None = None
    half_life_s: Annotated[float, Meta(ge=3_600, le=TERM_MOST_S)] | None = None
    shares: Annotated[dict[Word, Share], Meta(max_length=1_000)] | None = None
    is_preemptive: bool | None = None
    grace_s: Span | None = None
    least_run_s: Span | None = None
    weights: Annotated[dict[Word, Share], Meta(max_length=1_000)] | None = None
    end_overdue: bool | None = None
    predicted_backfill: bool | None = None
    several_nodes: bool | None = None
    limits: dict[Literal["user", "operator", "admin"], NewLimits] | None = None


class SimulationRequest(Struct, forbid_unknown_fields=True):
    strategies: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=4)]
    days: Annotated[float, Meta(gt=0, le=35)] = 7.0


@dataclass(frozen=True, slots=True)
class PoolPolicyApi:
    service: PoolService
    visible_fleets: VisibleFleetCache
    audit: AuditRecorder
    questions: QueryPool

    def strategies(self) -> views.StrategyList:
        current = self.service.policy.strategy
        order = self.service.policy.queue_order
        return views.StrategyList(
            [views.StrategyView(name, strategy.words, name == current)
             for name, strategy in STRATEGIES.items()],
            [views.StrategyView(name, queue_order.words, name == order)
             for name, queue_order in QUEUE_ORDERS.items()])

    def policy(self) -> views.PolicyView:
        view, role = views.policy_view(self.service.policy), caller().role
        if role is None or not role.covers(Role.OPERATOR):
            view.shares = {}  # of others, by name
        return view

    def set_policy(self, body: NewPolicy) -> views.PolicyView:
        _check_strategy(body.strategy)
        if body.queue_order not in (None, *QUEUE_ORDERS):
            raise bad(f"no queue_order {str(body.queue_order)[:80]!r}; there are "
                      f"{', '.join(QUEUE_ORDERS)}")
        was = self.service.policy
        share = was.fair_share
        policy = PoolPolicy(
            strategy=body.strategy or was.strategy,
            queue_order=body.queue_order or was.queue_order,
            default_term_s=_or(body.default_term_s, was.default_term_s),
            pin_after_s=_or(body.pin_after_s, was.pin_after_s),
            fair_share=FairSharePolicy(
                half_life_s=_or(body.half_life_s, share.half_life_s),
                shares=share.shares if body.shares is None else body.shares,
                model_weights=share.model_weights),
            is_preemptive=was.is_preemptive if body.is_preemptive is None else (
                body.is_preemptive),
            grace_s=_or(body.grace_s, was.grace_s),
            least_run_s=_or(body.least_run_s, was.least_run_s),
            weights=was.weights if body.weights is None else body.weights,
            end_overdue=was.end_overdue if body.end_overdue is None else body.end_overdue,
            predicted_backfill=was.predicted_backfill if body.predicted_backfill is None else (
                body.predicted_backfill),
            several_nodes=was.several_nodes if body.several_nodes is None else (
                body.several_nodes),
            limits={role: body.limits[role].over(limits)
                    if body.limits is not None and role in body.limits else limits
                    for role, limits in was.limits.items()})
        changed = {name: value for name in PoolPolicy.__slots__
                   if (value := getattr(policy, name)) != getattr(was, name)}
        self.service.set_policy(policy, time.time())
        self.audit.note("pool", actor_fields(caller()) | {
            "action": "pool policy", "outcome": "done",
            "detail": {name: str(value)[:256] for name, value in changed.items()}})
        return views.policy_view(policy)

    def simulate(self, request: SimulationRequest) -> views.SimulationView:
        """Simulate real claims on the real nodes, as far as the asker sees them, to compare
        strategies before a change."""
        for name in request.strategies:
            _check_strategy(name)
        since = time.time() - request.days * DAY_S
        visible = self.visible_fleets.seen_by(caller())
        recent = [lease for lease in self.service.ended.recent
                  if lease.ended_at is not None and lease.claim.submitted_at >= since
                  and (visible.is_whole or all(
                      visible.sees_node(grant.node) for grant in lease.grants))]
        traced = [TracedClaim(replace(lease.claim, hosts=(), starts_at=None),
                              (lease.ended_at or 0.0) - lease.since)
                  for lease in sorted(recent, key=lambda lease: lease.since)[-CLAIMS_MOST:]]
        nodes = [node.empty for node in self.service.nodes
                 if not node.report.managed_by and visible.sees_node(node.id)]
        if not traced or not nodes:
            return views.SimulationView(0, since, [])
        context = PlacementContext(mix=ClaimMix([traced_claim.claim for traced_claim in traced]))
        policy = self.service.policy

        def play() -> list[views.StrategyOutcome]:
            outcomes = [waiting(nodes, traced, name, context, policy)
                        for name in request.strategies]
            return [views.StrategyOutcome(outcome.strategy, outcome.wait_p50_s, outcome.wait_p95_s,
                                          outcome.makespan_s, outcome.used_pct, outcome.never)
                    for outcome in outcomes]

        return views.SimulationView(len(traced), since, self.questions.ask(play))


def _check_strategy(name: str | None) -> None:
    if name is not None and name not in STRATEGIES:
        raise bad(f"no strategy {name[:80]!r}; there are {', '.join(STRATEGIES)}")


def _or(value: float | None, was: float) -> float:
    return was if value is None else value


ROUTES = (
    Route("GET pool/strategies", PoolPolicyApi.strategies, "list_pool_strategies",
          see(Role.VIEWER), "Placement strategies and orders of the queue, and which are in use."),
    Route("GET pool/policy", PoolPolicyApi.policy, "get_pool_policy", see(Role.VIEWER),
          "Strategy, terms, fair share and pre-emption; only operators see the owners of the "
          "shares."),
    Route("PUT pool/policy", PoolPolicyApi.set_policy, "set_pool_policy",
          change(Role.ADMIN),
          "Change the pool's policy, from the next pass on. Omitted fields stay unchanged."),
    Route("POST pool/simulations", PoolPolicyApi.simulate, "simulate_pool",
          change(Role.OPERATOR, PermissionReach.VISIBLE, is_fresh=False),
          "Simulate strategies with the claims of the last days on the present nodes."),
)
