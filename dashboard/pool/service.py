"""The pool of the fleet: hears nodes, plans, and proposes leases that the nodes grant or refuse."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from gevent import spawn_later
from gevent.event import Event

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.feasibility import why_never
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from gpudeck.pool.link import PoolPlan, PoolReport, ReportedEnd, ReportedLease
from gpudeck.wire import FromHub

from ..errors import InvalidChangeError
from ..fleet.fleet import Fleet
from ..fleet.node_budget import NodeBudget
from .plan import (
    PendingOffer,
    PlannedPass,
    PoolNode,
    empty_node,
    ended_lease,
    scheduled,
    waiting_claims,
)
from .store import PoolStore
from .watch import PoolWatch

log = logging.getLogger("gpudeck.pool")

PASS_EVERY_S = 1.0
ANSWER_WITHIN_S = 30.0
SAME_TIME_S = 2.0  # the clocks of node and hub may differ by
ENDED_KEPT_S = 35 * 86_400.0  # five half-lives of fair share
FORGET_EVERY_S = 3_600.0
ENDS_MOST = ((3_600.0, 4_096), (86_400.0, 16_384))  # of leases that one node may have ended


@dataclass(slots=True)
class PoolService:
    """`send`: to a connected node."""

    store: PoolStore
    fleet: Fleet
    connected: Collection[str]
    send: Callable[[str, FromHub], bool]
    policy: PoolPolicy
    is_on: bool
    clock: Callable[[], float]  # the one of `mono`
    watch: PoolWatch
    wake: Event = field(init=False, default_factory=Event)
    claims: dict[str, Claim] = field(init=False, default_factory=dict)  # that were made here
    planned: PlannedPass | None = field(init=False, default=None)
    _reports: dict[str, PoolReport] = field(init=False, default_factory=dict)
    _ended: dict[str, Lease] = field(init=False, default_factory=dict)
    pending: dict[str, PendingOffer] = field(init=False, default_factory=dict)
    _give_back: dict[str, dict[str, str]] = field(init=False, default_factory=dict)
    _extend: dict[str, dict[str, float]] = field(init=False, default_factory=dict)
    _ends: NodeBudget = field(init=False, default_factory=lambda: NodeBudget(ENDS_MOST))
    _rests_until_mono: float = field(init=False, default=float("-inf"))
    _sent: dict[str, PoolPlan] = field(init=False, default_factory=dict)
    _forgot_mono: float = field(init=False, default=float("-inf"))

    def open(self, now: float) -> None:
        self.claims = {each.id: each for each in self.store.claims()}
        self._ended = {end.claim.id: ended_lease(node_id, end)
                       for node_id, end in self.store.ended(now - ENDED_KEPT_S)}

    def joined(self, node_id: str) -> None:
        """It knows nothing of what it was told before."""
        self._sent.pop(node_id, None)

    def reported(self, node_id: str, report: PoolReport) -> None:
        """The node's word is the truth of its GPUs, and of nothing else."""
        self.watch.reported(node_id, self._reports.get(node_id), report, self.claims)
        self._reports[node_id] = report
        new = [each for each in report.ended if each.claim.id not in self._ended]
        if self._ends.take(node_id, len(new), self.clock()):
            for end in new:
                self._note_end(node_id, end)
        taken = {each.claim.id for each in report.leases}
        asked = {each.claim.id for each in report.claims}
        for claim_id, offer in list(self.pending.items()):
            if offer.grants[0].node != node_id:
                continue
            is_own = claim_id in self.claims
            if claim_id in taken:
                del self.pending[claim_id]
                if is_own:
                    self.withdraw(claim_id)
            elif claim_id in report.refused or (not is_own and claim_id not in asked):
                log.info("lease_refused claim=%s why=%r", claim_id, report.refused.get(claim_id))
                del self.pending[claim_id]
        back = self._give_back.get(node_id, {})
        self._give_back[node_id] = {each: why for each, why in back.items() if each in taken}
        until = {each.claim.id: each.until for each in report.leases}
        self._extend[node_id] = {each: utc for each, utc in self._extend.get(node_id, {}).items()
                                 if each in until and until[each] < utc - SAME_TIME_S}
        self.wake.set()

    def _note_end(self, node_id: str, end: ReportedEnd) -> None:
        self.store.put_ended(node_id, end)
        self._ended[end.claim.id] = ended_lease(node_id, end)

    @property
    def nodes(self) -> list[PoolNode]:
        """Those that are connected: of another nobody knows what is free."""
        return [PoolNode(node_id, self.fleet.host_of(node_id) or node_id, report)
                for node_id, report in self._reports.items() if node_id in self.connected]

    def waiting(self, nodes: Collection[PoolNode]) -> list[Claim]:
        return waiting_claims(nodes, self.claims.values(), self.pending)

    def claim(self, claim: Claim) -> None:
        """Made at the hub. Raises InvalidChangeError where it could never be met."""
        why = why_never(claim, [empty_node(node) for node in self.nodes])
        if why:
            raise InvalidChangeError(why)
        self.store.put_claim(claim)
        self.claims[claim.id] = claim
        self.wake.set()

    def withdraw(self, claim_id: str) -> None:
        self.store.remove_claim(claim_id)
        self.claims.pop(claim_id, None)
        self.wake.set()

    def give_back(self, node_id: str, lease_id: str, why: str) -> None:
        """The node ends it; a lease with a running command ends with that alone."""
        self._give_back.setdefault(node_id, {})[lease_id] = why
        self.wake.set()

    def extend(self, node_id: str, lease: ReportedLease, by_s: float) -> None:
        wanted = self._extend.setdefault(node_id, {})
        wanted[lease.claim.id] = max(lease.until, wanted.get(lease.claim.id, lease.until)) + by_s
        self.wake.set()

    def step(self, now: float, mono: float) -> None:
        if not self.is_on:
            return
        if mono < self._rests_until_mono:
            spawn_later(self._rests_until_mono - mono, self.wake.set)
            return
        self._forget(now, mono)
        for claim_id, offer in list(self.pending.items()):
            if mono - offer.at_mono >= ANSWER_WITHIN_S:
                del self.pending[claim_id]
        nodes = self.nodes
        made = scheduled(nodes, self.claims.values(), self.pending,
                         list(self._ended.values()), NoOwnerLimits(), self.policy, now)
        for placement in made.offers:
            self.pending[placement.claim.id] = PendingOffer(
                placement.claim, placement.grants, mono)
        self.planned = PlannedPass(made, nodes, {each.id: each for each in self.waiting(nodes)},
                                   self.pending, now)
        self.watch.planned(self.planned)
        for node in nodes:
            plan = self.planned.plan(node, self._give_back.get(node.id, {}),
                                     self._extend.get(node.id, {}))
            if plan != self._sent.get(node.id) and self.send(node.id, plan):
                self._sent[node.id] = plan
        if made.offers:
            self.wake.set()
        # Whatever nodes report, and however often: passes are a tenth of the hub's time at most.
        self._rests_until_mono = mono + 10 * (self.clock() - mono)

    def _forget(self, now: float, mono: float) -> None:
        if mono - self._forgot_mono < FORGET_EVERY_S:
            return
        self._forgot_mono = mono
        self.store.forget_ended(now - ENDED_KEPT_S)
        self._ended = {claim_id: lease for claim_id, lease in self._ended.items()
                       if (lease.ended_at or now) >= now - ENDED_KEPT_S}
