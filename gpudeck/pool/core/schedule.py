"""Pass over the queue: who gets what now, and what is kept for the first who cannot. Pure.

EASY backfill: a later claim may go first if the head of the queue can still begin when it could
have begun without it."""

import heapq
from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from typing import Protocol, TypeVar

from gpudeck.pool.core.claim_limits import BY_ROLE, ClaimLimits
from gpudeck.pool.core.claims import (
    DEFAULT_GRACE_S,
    DEFAULT_TERM_S,
    Booking,
    Claim,
    GpuKey,
    Grant,
    Lease,
    expected_end,
    gpus_of,
)
from gpudeck.pool.core.fair_share import (
    EndedUsage,
    FairSharePolicy,
    held_gpus,
    turns,
    usage_of,
)
from gpudeck.pool.core.fragmentation import accepts
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import Placement, Placer, candidates
from gpudeck.pool.core.predicted_backfill import PredictedBackfill, take
from gpudeck.pool.core.strategies import STRATEGIES, Candidate, PlacementContext

T = TypeVar("T")
NOT_YET = "reserved for a later time"
NOTHING_KEPT = "it is for a later time, and nothing is reserved for it yet"
IS_DUE = "it is due; its GPUs are not free yet"
OFFERS_MOST = 32  # of one pass; the next one follows at once
# What is the same of two claims of which one can begin if the other can.
_WANTS = attrgetter("gpus", "share_milli", "mem_bytes", "cpu_milli", "ram_bytes", "models",
                    "nodes", "hosts", "home", "term_s", "home_gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    strategy: str = "pack"
    queue_order: str = "fair"
    fair_share: FairSharePolicy = field(default_factory=FairSharePolicy)
    pin_after_s: float = 4 * 3_600.0
    default_term_s: float = DEFAULT_TERM_S
    is_preemptive: bool = False
    grace_s: float = DEFAULT_GRACE_S  # from when an owner is notified until the work is ended
    # Kueue and KAI had to add one: short-lived victims thrash.
    least_run_s: float = 900.0
    weights: Mapping[str, float] = field(default_factory=dict)  # of models, for `weighted`
    end_overdue: bool = False  # of leases whose GPUs are kept for somebody by then
    predicted_backfill: bool = False
    # Whether a node is believed that asks for GPUs of others, for a run over several.
    several_nodes: bool = False
    limits: Mapping[str, ClaimLimits] = field(default_factory=lambda: BY_ROLE)

    def limits_at_node(self, owner: str) -> ClaimLimits:
        """Return the limits of an owner whose role is not known: root is an admin, all others are
        users."""
        return self.limits["admin" if owner == "root" else "user"]


class OwnerLimits(Protocol):
    """Limits of what an owner may hold; claims that are offered in a pass count from then on.
    `closed`: nodes where an owner may have no more, though elsewhere."""

    def why_not(self, claim: Claim) -> str: ...
    def closed(self, claim: Claim) -> Collection[str]: ...  # to be hashed
    def take(self, placement: Placement) -> None: ...


class NoOwnerLimits:
    """Limits that forbid nothing: everybody may hold what is free."""

    def why_not(self, claim: Claim) -> str:
        return ""

    def closed(self, claim: Claim) -> Collection[str]:
        return ()

    def take(self, placement: Placement) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Input of a pass. `bookings`: of claims that wait for their time, or for what is being freed
    for them. `paused`: claims that keep their place and get nothing now, by id, and why. `avoided`:
    claims to nodes that did not take them lately. `team_of`: owners who are in one; no claim says
    whose it is. `predicted_s`: of claims and leases, by id, how long they probably take in all;
    none: backfill goes by terms."""

    waiting: Sequence[Claim]
    leases: Sequence[Lease]  # that hold GPUs
    away: Sequence[Lease] = ()  # that nodes held which are away
    past_usage: EndedUsage | None = None  # None: ended leases count nothing
    bookings: Sequence[Booking] = ()
    limits: OwnerLimits
    paused: Mapping[str, str] = field(default_factory=dict)
    avoided: Mapping[str, frozenset[str]] = field(default_factory=dict)
    team_of: Mapping[str, str] = field(default_factory=dict)
    predicted_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shadow:
    """Start of the head of the queue, at the latest, if terms are honoured; or, where it
    `is_predicted`, if runs take no longer than is likely."""

    claim: Claim
    at: float
    grants: tuple[Grant, ...]
    is_predicted: bool = False


@dataclass(frozen=True, slots=True)
class Pass:
    """Outcome of a pass. `order`: ids of those that go on waiting, first to last. `blocked`: id to
    why. `kept_from`: GPU to when somebody else begins there, so that a lease of it is not renewed
    past that. `pinned`: ids of those that have waited so long that they go before others."""

    offers: tuple[Placement, ...]
    order: tuple[str, ...]
    shadow: Shadow | None
    blocked: Mapping[str, str]
    kept_from: Mapping[GpuKey, float]
    nodes: Mapping[str, Node]  # with what it leaves free, and for how long
    pinned: Container[str] = ()

    @property
    def competing(self) -> Iterator[str]:
        """Ids of claims that wait on for want of GPUs alone: no quota or time is against them."""
        return (claim_id for claim_id in self.order
                if self.blocked.get(claim_id, IS_DUE) == IS_DUE)

    def kept_until(self, node_id: str, uuids: Iterable[str]) -> float | None:
        """Return when somebody else begins on these GPUs of a node: a lease of them is not renewed
        past that. None: nobody is to begin there."""
        return min((self.kept_from[node_id, uuid] for uuid in uuids
                    if (node_id, uuid) in self.kept_from), default=None)


def run_pass(queue: Queue, nodes: Sequence[Node], policy: PoolPolicy, context: PlacementContext,
             now: float) -> Pass:
    """Run a pass at once. `nodes`: with what is free of them now."""
    return finish(pass_steps(queue, nodes, policy, context, now))


def finish(steps: Generator[None, None, T]) -> T:
    """Run all steps at once."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def pass_steps(queue: Queue, nodes: Sequence[Node], policy: PoolPolicy, context: PlacementContext,
               now: float) -> Generator[None, None, Pass]:
    """Run a pass step by step, for a caller with other things to do meanwhile."""
    latest = _latest(queue.leases) if STRATEGIES[policy.strategy].has_cursor else ""

    def placer_of(there: Iterable[Node]) -> Placer:
        return Placer(there, policy.strategy, context, latest)

    turn = _PassInProgress(queue, placer_of(nodes), now,
                           PredictedBackfill(queue.predicted_s, placer_of, now))
    yield
    usage = usage_of(queue.leases, queue.past_usage, now, policy.fair_share, queue.team_of,
                     queue.away)
    for claim in turn.keep(queue.bookings):
        usage.charge(claim, held_gpus(claim) * claim.term_s)
    booked = {booking.claim.id for booking in queue.bookings}
    waiting = [claim for claim in queue.waiting if claim.id not in booked
               and (claim.starts_at is None or claim.starts_at <= now)]
    pinned = {claim.id for claim in waiting if now - claim.submitted_at >= policy.pin_after_s}
    yield
    for claim in turns(waiting, pinned, usage, policy.queue_order):
        if turn.offer(claim, claim.id in pinned):
            usage.charge(claim, held_gpus(claim) * claim.term_s)
        yield
    for booking in queue.bookings:
        if booking.starts_at > now:
            turn.wait(booking.claim, NOT_YET)
    for claim in queue.waiting:
        if claim.id not in booked and claim.starts_at is not None and claim.starts_at > now:
            turn.wait(claim, NOTHING_KEPT)
    return Pass(tuple(turn.offers), tuple(turn.order), turn.shadow, turn.blocked, turn.kept_from,
                turn.placer.nodes, pinned)


def _latest(leases: Iterable[Lease]) -> str:
    """Return the node whose turn was last."""
    latest = max(leases, key=attrgetter("since", "id"), default=None)
    return "" if latest is None else latest.grants[-1].node


@dataclass(slots=True)
class _PassInProgress:
    queue: Queue
    placer: Placer
    now: float
    predicted: PredictedBackfill
    offers: list[Placement] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    shadow: Shadow | None = None
    kept_from: dict[GpuKey, float] = field(default_factory=dict)
    _full: set[tuple[object, ...]] = field(default_factory=set)

    def keep(self, bookings: Sequence[Booking]) -> Iterator[Claim]:
        """Give GPUs to bookings whose time has come, before all others: their own GPUs or others.
        Yields the claims that got some."""
        due = []
        for booking in sorted(bookings, key=lambda booking: (booking.starts_at, booking.claim.id)):
            if booking.starts_at <= self.now:
                due.append(booking)
                self._hold(booking.grants, -inf, self.now)
            else:
                self._hold(booking.grants, booking.starts_at, booking.starts_at)
        for booking in due:
            if why := self.queue.limits.why_not(booking.claim):
                self.wait(booking.claim, why)
            elif placement := (self.placer.exactly(booking.claim, booking.grants)
                               or self.placer.find(booking.claim, self.now)):
                self._give(placement)
                yield booking.claim
            else:
                self.wait(booking.claim, IS_DUE)

    def offer(self, claim: Claim, is_pinned: bool) -> bool:
        if why := self.queue.paused.get(claim.id) or self.queue.limits.why_not(claim):
            return self.wait(claim, why)
        if len(self.offers) >= OFFERS_MOST or (
                claim.hosts and self.shadow is not None and not self.placer.has_room(claim.hosts)
                ) or ((wants := (_WANTS(claim), closed := self.queue.limits.closed(claim)
                                 if claim.id not in self.queue.avoided else
                                 self.queue.avoided[claim.id].union(
                                     self.queue.limits.closed(claim))))
                      in self._full and not self.queue.predicted_s):
            self.order.append(claim.id)  # of thousands in each pass: no call
            return False
        placement = None if wants in self._full else self.placer.find(claim, self.now, closed)
        if placement is None:
            self._full.add(wants)
            placement = self.predicted.find(claim, wants, closed)
        if placement is not None:
            return self._give(placement)
        if self.shadow is None:
            self._cast(claim, is_pinned, closed)
        return self.wait(claim)

    def _cast(self, claim: Claim, is_pinned: bool, closed: Container[str]) -> None:
        leases = (*self.queue.leases, *(_lease_of(offer, self.now) for offer in self.offers))
        nodes = {node_id: self.placer.nodes[node_id] for node_id in self.placer.ids_of(claim.hosts)
                 if node_id not in closed}
        # What a pinned claim waits for is given to nobody, however short they are likely to be.
        is_predicted = bool(self.queue.predicted_s) and not is_pinned
        if is_predicted:
            leases = (*self.predicted.ends(leases),)
        self.shadow = shadow_of(claim, nodes, leases, self.queue.bookings, self.now)
        if self.shadow is not None:
            if is_predicted:
                self.shadow = replace(self.shadow, is_predicted=True)
                self.predicted.begin(self.placer, self.shadow.at)
            # Renewed now and then, leases would let even a pinned claim wait for ever.
            self._hold(self.shadow.grants, self.shadow.at, self.now if is_pinned else inf)

    def _hold(self, grants: Iterable[Grant], at: float, kept_from: float) -> None:
        self.placer.hold(grants, at)
        if kept_from < inf:
            for gpu in gpus_of(grants):
                self.kept_from[gpu] = min(kept_from, self.kept_from.get(gpu, inf))

    def _give(self, placement: Placement) -> bool:
        if self.queue.predicted_s:
            take(self.placer, placement)
            self.predicted.take(placement)
        else:
            self.placer.take(placement)
        self.queue.limits.take(placement)
        self.offers.append(placement)
        return True

    def wait(self, claim: Claim, why: str = "") -> bool:
        self.order.append(claim.id)
        if why:
            self.blocked[claim.id] = why
        return False


def _lease_of(offer: Placement, now: float) -> Lease:
    return Lease(id=offer.claim.id, claim=offer.claim, grants=offer.grants, since=now,
                 until=now + offer.claim.term_s)


def shadow_of(claim: Claim, nodes: Mapping[str, Node], leases: Sequence[Lease],
              bookings: Sequence[Booking], now: float) -> Shadow | None:
    """Return when a claim fits, with leases and bookings taken back as they end. None: never."""
    there = {node.id: node for node in _could_ever(nodes.values(), claim)}
    if len(there) < claim.nodes:
        return None
    # A cheap bound on what a node can have free; only where it is enough one looks closely.
    free = {node.id: len([gpu for gpu in node.gpus if gpu.free_milli >= claim.share_milli])
            for node in there.values()}
    fits = {node.id: fit for node in there.values() if free[node.id] >= claim.gpus
            and (fit := _fit(node, claim, now)) is not None}
    over: dict[str, list[tuple[Lease | Booking, Grant]]] = {}  # not yet taken back
    for end, holder in _ends(leases, bookings, there, now):
        for grant in holder.grants:
            if grant.node not in there:
                continue
            over.setdefault(grant.node, []).append((holder, grant))
            free[grant.node] += len(grant.uuids) * isinstance(holder, Lease)
            if free[grant.node] < claim.gpus:
                continue
            node = there[grant.node] = _taken_back(
                there[grant.node], over.pop(grant.node), bookings, end)
            if grant.node not in fits and (fit := _fit(node, claim, end)) is not None:
                fits[grant.node] = fit
        if bookings:  # what fitted a while ago may be booked for what is left of the term
            fits = {node_id: fit for node_id in fits
                    if (fit := _fit(there[node_id], claim, end)) is not None}
        if len(fits) >= claim.nodes and (not claim.home or claim.home in fits):
            node_ids = sorted(fits, key=lambda node_id: (node_id != claim.home, node_id))
            return Shadow(claim, end, tuple(
                Grant(node_id, fits[node_id].uuids) for node_id in node_ids[:claim.nodes]))
    return None


def _could_ever(nodes: Iterable[Node], claim: Claim) -> Iterable[Node]:
    """Return the nodes that are large enough and of a model that the claim accepts."""
    large = [node for node in nodes if len(node.gpus) >= claim.gpus
             and (not claim.hosts or node.host in claim.hosts or node.id in claim.hosts)]
    if not claim.models:
        return large
    right = {model for model in {gpu.model for node in large for gpu in node.gpus}
             if accepts(claim.models, model)}
    return [node for node in large
            if len([gpu for gpu in node.gpus if gpu.model in right]) >= claim.gpus]


def _taken_back(node: Node, over: Iterable[tuple[Lease | Booking, Grant]],
                bookings: Sequence[Booking], end: float) -> Node:
    for holder, grant in over:
        if isinstance(holder, Lease):
            node = node.after_return(grant.uuids, holder.claim)
        else:
            node = node.held_until({
                uuid: min((booking.starts_at for booking in bookings
                           if booking.ends_at > end and (node.id, uuid) in booking.gpus),
                          default=inf)
                for uuid in grant.uuids})
    return node


def _ends(leases: Iterable[Lease], bookings: Iterable[Booking], there: Container[str], now: float
          ) -> Iterator[tuple[float, Lease | Booking]]:
    """Yield leases and bookings by when they end, then id. A heap, for the claim fits before most
    of thousands have ended."""
    ends: list[tuple[float, str, int, Lease | Booking]] = []
    for lease in leases:
        for grant in lease.grants:
            if grant.node in there:
                ends.append((expected_end(lease, now), lease.id, len(ends), lease))
                break
    for booking in bookings:
        if booking.ends_at > now:
            ends.append((booking.ends_at, booking.claim.id, len(ends), booking))
    heapq.heapify(ends)
    while ends:
        end, _, _, holder = heapq.heappop(ends)
        yield end, holder


def _fit(node: Node, claim: Claim, at: float) -> Candidate | None:
    return next(candidates(node, claim, at + claim.term_s), None)
