"""Pool of the fleet: takes reports, plans, and proposes leases that nodes grant or refuse."""

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gevent import spawn_later
from gevent.event import Event

from gpudeck.contract.pool_link import PoolPlan, PoolReport, ReportedLease
from gpudeck.contract.wire import FromHub
from gpudeck.pool.core.claims import Booking, Claim, Lease
from gpudeck.pool.core.host_resources import asks_for_host
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import Placement
from gpudeck.pool.core.preemption import Preemption
from gpudeck.pool.core.schedule import OwnerLimits, Pass, PoolPolicy

from ..errors import InvalidChangeError
from ..fleet.fleet import Fleet
from .bookings import PoolBookings
from .doubts import in_doubt
from .ended import EndedLeases
from .estimating import WaitEstimates
from .excluded_nodes import excluded_nodes
from .extensions import LeaseExtensions
from .intake import ReportIntake
from .lease_news import LeaseNews
from .loads import NodeLoads
from .node_words import asked_by, not_allowed, with_former_groups
from .own_claims import OwnClaims
from .plan import (
    PendingOffer,
    PlannedPass,
    PoolNode,
    due_now,
    entry_parts,
    free_nodes,
    leases_called,
    leases_of,
    never,
    newly_never,
    scheduling,
    still_free,
    unused_ranks,
    waiting_claims,
)
from .preempting import Preemptions
from .pressure import under_pressure
from .refusals import NodeRefusals
from .run_times import RunTimes
from .store import PoolStore
from .stretch import Stretch
from .teams import TeamsOf, teams_now
from .watch import PoolWatch
from .withdrawing import NodeWithdrawals

log = logging.getLogger("gpudeck.pool")

PASS_EVERY_S = 1.0
ANSWER_WITHIN_S = 30.0
ALL_KNOWN_AFTER_S = 120.0  # from its start on: until then nodes come back that could meet a claim
GivenBack = tuple[str, float]  # why, and since when on the monotonic clock


class LeaseEnds(Protocol):
    """Check of whether the work of leases can be ended."""

    def why_not(self, plan: Preemption) -> str: ...
    def stopped(self) -> Mapping[str, str]: ...  # lease to why it was given up


@dataclass(slots=True)
class PoolService:
    """Service of the pool. `send`: to a connected node. `limits`: what quotas leave to owners,
    beside these leases. `teams_of`: these owners, with the Unix groups that nodes say of some.
    `ends`: built with this pool."""

    store: PoolStore
    fleet: Fleet
    connected: Collection[str]
    send: Callable[[str, FromHub], bool]
    limits: Callable[[Collection[PoolNode], Collection[Lease]],
                     Generator[None, None, OwnerLimits]]
    teams_of: TeamsOf
    ends: Callable[[], LeaseEnds]
    is_on: bool
    clock: Callable[[], float]  # the one of `mono`
    utc: Callable[[], float]
    spend: Callable[[str, float, float], None]  # seconds that a node's claims took, and when
    watch: PoolWatch
    wake: Event = field(init=False, default_factory=Event)
    policy: PoolPolicy = field(init=False, default_factory=PoolPolicy)
    claims: dict[str, Claim] = field(init=False, default_factory=dict)  # that were made here
    bookings: PoolBookings = field(init=False)
    preemptions: Preemptions = field(init=False)
    withdrawals: NodeWithdrawals = field(init=False)
    planned: PlannedPass | None = field(init=False, default=None)
    refusals: NodeRefusals = field(init=False, default_factory=NodeRefusals)
    news: LeaseNews = field(init=False, default_factory=LeaseNews)
    pending: dict[str, PendingOffer] = field(init=False, default_factory=dict)
    ended: EndedLeases = field(init=False)
    intake: ReportIntake = field(init=False)
    _own: OwnClaims = field(init=False)
    _reported: dict[str, PoolNode] = field(init=False, default_factory=dict)
    _give_back: dict[str, dict[str, GivenBack]] = field(init=False, default_factory=dict)
    extensions: LeaseExtensions = field(init=False, default_factory=LeaseExtensions)
    team_of: Mapping[str, str] = field(init=False, default_factory=dict)  # of the last pass
    _opened_mono: float = field(init=False, default=float("inf"))
    run_times: RunTimes = field(init=False, default_factory=RunTimes)
    _estimates: WaitEstimates = field(init=False)
    _rests_until_mono: float = field(init=False, default=float("-inf"))
    _last_sent: dict[str, PoolPlan] = field(init=False, default_factory=dict)
    _loads: NodeLoads = field(init=False)

    def __post_init__(self) -> None:
        self.ended = EndedLeases(self.store)
        self._loads = NodeLoads(self.fleet)
        self._estimates = WaitEstimates(self.run_times)
        self.bookings = PoolBookings(self.store)
        self.preemptions = Preemptions(
            self.bookings, lambda plan: self.ends().why_not(plan), self.wake.set)

    def open(self, now: float) -> None:
        self.policy = self.store.policy()
        self._own = OwnClaims(self.store)
        self.claims = self._own.all
        self.withdrawals = NodeWithdrawals(self.claims, self.withdraw)
        self.bookings.open()
        self.intake = ReportIntake(
            self.store, lambda node_id, uuid: self.fleet.slot_on(node_id, uuid) is not None)
        self._opened_mono = self.clock()
        self.ended.open(self.policy.fair_share, now)

    def joined(self, node_id: str) -> None:
        """Forget what a node was sent: it has just connected, and knows nothing of it."""
        self._last_sent.pop(node_id, None)

    def reported(self, node_id: str, raw: PoolReport) -> None:
        """Take in a report: the node's word is the truth about its GPUs, and about nothing else."""
        stretch = Stretch()
        host = self.fleet.host_of(node_id) or node_id
        own = self.intake.take(node_id, host, raw, self._own.as_of(node_id, self.pending),
                               self.utc())
        was = self._reported.get(node_id)
        before = None if was is None else was.report
        report = with_former_groups(own.report, before)
        known_ends = () if before is None else {end.claim.id for end in before.ended}
        new = [end for end in report.ended if end.claim.id not in known_ends
               and not self.ended.is_known(node_id, end)]
        # First: if it cannot be stored, the next report is as new as this.
        self.ended.add_all(node_id, new, self.clock())
        self.watch.reported(node_id, before, report, self.claims, self.utc())
        node = self._reported[node_id] = (
            PoolNode(node_id, host, report, own_ids=own.ids.own) if was is None else
            replace(was, host=host, report=report, own_ids=own.ids.own))
        node.prepare()
        self.bookings.never |= not_allowed(node, self.policy, lambda owner: asked_by(
            owner, self.waiting(self.nodes), self.pending.values()))
        if before is not None and self.clock() - self._opened_mono >= ALL_KNOWN_AFTER_S:
            self.bookings.never |= newly_never(before, node, self._reported.values())
        leased_ids = {lease.claim.id for lease in report.leases}
        claim_ids = {entry.claim.id for entry in report.claims}
        for claim_id, offer in list(self.pending.items()):
            if node_id in offer.accepted_by and claim_id not in leased_ids:
                self._unwind(offer, "a part of it has ended already")
            if node_id not in offer.lacks:
                continue
            was_asked_there = claim_id not in self.claims and (offer.claim.home in ("", node_id))
            if claim_id in leased_ids:
                self._accept(node_id, offer)
            elif claim_id in node.paused or (was_asked_there and claim_id not in claim_ids):
                self._unwind(offer, node.paused.get(claim_id, "its requester is gone"))
            elif claim_id in report.refused:
                self._refuse(offer, {node_id: node.host}, report.refused[claim_id])
        for other, lease_id in unused_ranks(self.nodes, node_id, new):
            self.give_back(other, lease_id, "its run has ended")
        self.withdrawals.receive(node_id, (node_id, host), report.withdrawals)
        # An offer that is still on its way may be taken yet.
        self._give_back[node_id] = {
            lease_id: back for lease_id, back in self._give_back.get(node_id, {}).items()
            if lease_id in leased_ids or self.clock() - back[1] < ANSWER_WITHIN_S}
        self.extensions.reported(node_id, report.leases)
        former_ids = set() if before is None else {lease.claim.id for lease in before.leases}
        self.news.notify(leased_ids ^ former_ids, {
            claim_id: why for claim_id, why in report.refused.items()
            if claim_id in claim_ids or self._own.is_offered(claim_id, node_id)})
        self.wake.set()
        self.spend(node_id, stretch.spent_s, self.clock())

    def forget(self, node_id: str) -> None:
        """Forget a node that was revoked: nothing of what it reported counts any more."""
        self.intake.forget(node_id)
        for of_nodes in (self._reported, self._give_back, self._last_sent):
            of_nodes.pop(node_id, None)
        self.extensions.forget(node_id)
        self.withdrawals.forget(node_id)
        for offer in list(self.pending.values()):
            if any(grant.node == node_id for grant in offer.grants):
                self._unwind(offer, "its node is gone")
        for claim in [claim for claim in self.claims.values() if claim.hosts == (node_id,)]:
            log.info("claim_withdrawn claim=%s node=%s", claim.id, node_id)
            self.withdraw(claim.id)
        self.ended.forget_node(node_id, self.policy.fair_share, self.utc())
        self.wake.set()

    def _accept(self, node_id: str, offer: PendingOffer) -> None:
        claim_id = offer.claim.id
        accepted_by = offer.accepted_by | {node_id}
        if accepted_by != {grant.node for grant in offer.grants}:
            self.pending[claim_id] = replace(
                offer, accepted_by=accepted_by, at_mono=self.clock())
            return
        del self.pending[claim_id]
        self._own.remove(claim_id)
        self.wake.set()

    def _refuse(self, offer: PendingOffer, hosts: Mapping[str, str], why: str) -> None:
        """Handle a refusal by these nodes. The third one is for good, and the owner reads why; but
        suspended work waits as long as it is there."""
        self._unwind(offer, why)
        claim = offer.claim
        sentence = self.refusals.add(claim.id, hosts, why, self.clock())
        if sentence and not claim.home_gpus:
            log.warning("claim_refused claim=%s owner=%s why=%r", claim.id, claim.owner, sentence)
            if claim.id in self.claims:
                self.refusals.keep(claim, sentence, self.utc())
                self._own.remove(claim.id)
                self.wake.set()
            else:  # its node notifies the owner, and drops it
                self.bookings.never[claim.id] = sentence[:1_024]

    def _unwind(self, offer: PendingOffer, why: str) -> None:
        """Take an offer back from all of its nodes."""
        log.info("lease_refused claim=%s why=%r", offer.claim.id, why)
        del self.pending[offer.claim.id]
        for grant in offer.grants:  # if the same is decided again, it has to be said again
            self._last_sent.pop(grant.node, None)
        if offer.claim.id in self.claims or offer.claim.home:
            for grant in offer.grants:
                self.give_back(grant.node, offer.claim.id, f"not all GPUs could be leased: {why}")

    @property
    def nodes(self) -> list[PoolNode]:
        """Connected nodes: of others nobody knows what is free."""
        return [node for node_id, node in self._reported.items() if node_id in self.connected]

    def lease(self, lease_id: str) -> tuple[PoolNode, ReportedLease] | None:
        return next(iter(leases_called(self.nodes, lease_id)), None)

    def waiting(self, nodes: Collection[PoolNode]) -> list[Claim]:
        return waiting_claims(nodes, self.claims.values(), self.pending)

    def claim(self, claim: Claim) -> None:
        """Add a claim made at the hub. Raises InvalidChangeError where it could never be met, and
        RecoveringError where it is not known yet whether it can be reserved."""
        nodes, now = self.nodes, claim.submitted_at
        if why := never(claim, nodes):
            raise InvalidChangeError(why)
        if claim.starts_at is not None:
            self.bookings.reserve(claim, nodes, leases_of(nodes, self.pending.values(), now),
                                  self.policy.strategy, now, self.clock())
        self._own.put(claim)
        self.wake.set()

    def withdraw(self, claim_id: str) -> None:
        """Withdraw a claim, also while it is being offered."""
        if claim_id in self.pending:
            self._unwind(self.pending[claim_id], "it was cancelled")
        self._own.remove(claim_id)
        self.wake.set()

    def give_back(self, node_id: str, lease_id: str, why: str) -> None:
        """Give a lease back. Its node ends it; one with a running command ends only with that
        command."""
        self._give_back.setdefault(node_id, {})[lease_id] = why, self.clock()
        self.wake.set()

    def set_policy(self, policy: PoolPolicy, now: float) -> None:
        self.store.put_policy(policy)
        if policy.fair_share != self.policy.fair_share:
            self.ended.open(policy.fair_share, now)
        self.policy = policy
        self.wake.set()

    def extend(self, node_id: str, lease: ReportedLease, by_s: float) -> None:
        self.extensions.add(node_id, lease, by_s)
        self.wake.set()

    def step(self, now: float, mono: float) -> None:
        if not self.is_on:
            return
        if mono < self._rests_until_mono:
            spawn_later(self._rests_until_mono - mono, self.wake.set)
            return
        stretch = Stretch()
        self._own.remove_stored()
        self.ended.forget(now, mono)
        for offer in list(self.pending.values()):
            # Whether the command of a run has begun only its node knows: it is heard first.
            if mono - offer.at_mono >= ANSWER_WITHIN_S and not (
                    offer.claim.home and offer.waits_for_home):
                self._refuse(offer, {node_id: self.fleet.host_of(node_id) or node_id
                                     for node_id in offer.lacks},
                             f"no answer within {ANSWER_WITHIN_S:.0f} s")
        self._reported |= {node.id: node for node in under_pressure(self.nodes, self.fleet, mono)}
        self._reported |= {node.id: node for node in in_doubt(self.nodes, self.fleet, mono)}
        self._renew_bookings(now, mono)
        stretch.pause()  # the pass that follows looks at one moment, after what happened meanwhile
        nodes = self.nodes
        leases = leases_of(nodes, self.pending.values(), now)
        waiting = self.waiting(nodes)
        self.refusals.forget({*self.pending, *(claim.id for claim in waiting)}, now)
        waiting = [claim for claim in waiting if claim.id not in self.bookings.never]
        pending, bookings = dict(self.pending), list(self.bookings.all.values())
        outcome = self._run_pass(nodes, leases, waiting, pending, bookings, stretch, now, mono)
        there = {node.id: node for node in self.nodes}
        wait = {claim.id for claim in self.waiting(there.values())}
        if self.policy.is_preemptive and outcome.shadow is not None and (
                outcome.shadow.claim.id in wait):
            head = outcome.shadow.claim
            self.preemptions.begin(head, _free_for(
                head, nodes, self.pending.values(), outcome.offers, self.bookings.all.values()),
                list(leases), self.policy.least_run_s, now, mono)
        if self.policy.end_overdue:
            for claim, grants in list(due_now(outcome, self.bookings.all.values(), now)):
                self.preemptions.end_overdue(claim, grants, leases, now, mono)
        self._own.offer(outcome.offers)
        for placement in still_free(outcome.offers, wait, there, self.pending):
            self.pending[placement.claim.id] = PendingOffer(
                placement.claim, placement.grants, mono)
        asking = {claim.id: claim for claim in waiting if claim.id not in self.pending}
        stretch.pause()  # what was decided stands
        self._publish(nodes, asking, outcome, stretch, now, mono)
        if outcome.offers:
            self.wake.set()
        for node_id, part in entry_parts(nodes):
            self.spend(node_id, part * stretch.spent_s, self.clock())
        # Whatever nodes report, and however often: passes are a tenth of the hub's time at most.
        self._rests_until_mono = self.clock() + 10 * stretch.spent_s

    def _run_pass(self, nodes: Sequence[PoolNode], leases: Sequence[Lease],
                  waiting: Sequence[Claim], pending: Mapping[str, PendingOffer],
                  bookings: Sequence[Booking], stretch: Stretch, now: float, mono: float) -> Pass:
        """Run a pass. It looks at one moment: what comes between two rests is for the next one."""
        away = _leases_away(self._reported.values(), self.connected)
        self.team_of = teams_now(nodes, waiting, [*leases, *away], self.ended.usage, self.teams_of)
        predicted_s: Mapping[str, float] = {}
        if self.policy.predicted_backfill:
            self.run_times.learn(self.ended.recent, self.team_of, mono)
            predicted_s = self.run_times.whole_s(leases, waiting, now, mono)
        loads = self._loads.of(self.policy.strategy, [node.id for node in nodes], mono)
        stretch.pause()
        limits = stretch.all(self.limits(nodes, [
            *leases, *(lease for lease in away if lease.until > now)]))
        avoided = self.refusals.avoided(mono)
        for claim_id, closed in excluded_nodes(waiting, nodes, self.fleet.all_nodes).items():
            avoided[claim_id] = avoided.get(claim_id, closed.nodes) | closed.nodes
        stretch.pause()
        return stretch.all(scheduling(
            nodes, waiting, pending, self.ended.recent, self.ended.usage, bookings, limits,
            self.team_of, predicted_s, self.policy, loads, now, avoided, away))

    def _renew_bookings(self, now: float, mono: float) -> None:
        nodes = self.nodes
        leases = leases_of(nodes, self.pending.values(), now)
        asking = self.waiting(nodes)
        on_nodes = [claim for claim in asking
                    if claim.starts_at is not None and claim.id not in self.claims]
        for claim in self.bookings.reserve_all(on_nodes, nodes, leases, self.policy.strategy, now,
                                               mono):
            self._own.put(claim)  # from now on it is ours to keep
        waiting = {claim.id for claim in asking} | self.pending.keys()
        if self.bookings.never:  # seldom, and thousands of claims wait
            self.bookings.forget_refused(waiting.union(
                claim.id for node in self._reported.values() for claim in node.claims))
        self.preemptions.renew(waiting, leases, self.ends().stopped(), now, mono)
        for claim in self.bookings.renew(waiting, self.preemptions.all,
                                         [node.well for node in nodes], leases,
                                         self.policy.strategy, now):
            log.warning("reservation_over claim=%s owner=%s", claim.id, claim.owner)
            self.withdraw(claim.id)

    def _publish(self, nodes: Sequence[PoolNode], asking: Mapping[str, Claim], outcome: Pass,
                 stretch: Stretch, now: float, mono: float) -> None:
        estimate = None
        if outcome.shadow is not None:
            self.run_times.learn(self.ended.recent, self.team_of, mono)
            head = outcome.shadow.claim
            estimate = self._estimates.of(
                head, lambda: free_nodes(nodes, self.pending.values(), asks_for_host([head])),
                leases_of(nodes, self.pending.values(), now), self.bookings.all.values(),
                now, mono)
            stretch.pause()
        notes = self.refusals.notes | self.preemptions.notes | self.bookings.unread
        planned = PlannedPass(outcome, nodes, asking, self.pending, notes,
                              excluded_nodes(asking.values(), nodes, self.fleet.all_nodes),
                              estimate, self.bookings, now)
        for _ in planned.steps():
            stretch.pause()
        self.planned = planned
        self.watch.planned(planned)
        for node in nodes:
            stretch.rest()  # thousands of claims may wait, and others need not wait for all of them
            give_back = self._give_back.get(node.id, {})
            back = {lease_id: why for lease_id, (why, _) in give_back.items()}
            plan = planned.plan(node, back, self.preemptions.of_node(node.id),
                                self.extensions.of_node(node.id),
                                self.withdrawals.answers(node.id), self.policy.grace_s)
            if plan != self._last_sent.get(node.id) and self.send(node.id, plan):
                self._last_sent[node.id] = plan


def _leases_away(reported: Collection[PoolNode], connected: Collection[str]) -> list[Lease]:
    """Return the leases of nodes that are away. As far as their terms go, quotas and fair share
    count them, or an agent's restart would let their owners have as much again elsewhere."""
    return [lease for node in reported if node.id not in connected for lease in node.leases]


def _free_for(claim: Claim, nodes: Collection[PoolNode], pending: Collection[PendingOffer],
              offers: Collection[Placement], bookings: Collection[Booking]) -> dict[str, Node]:
    """Return what is free, beside what is offered by now, and is not kept for others."""
    free = free_nodes(nodes, pending, asks_for_host([claim]))
    for placement in offers:
        for grant in placement.grants:
            free[grant.node] = free[grant.node].after_grant(grant.uuids, placement.claim)
    for booking in bookings:
        for grant in booking.grants:
            if grant.node in free:
                free[grant.node] = free[grant.node].held_from(grant.uuids, booking.starts_at)
    return free
