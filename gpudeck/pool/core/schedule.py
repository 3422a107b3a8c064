"""One pass over the queue: who gets what now, and what is kept for the first who cannot. Pure.

EASY backfill: a later claim may go first if the head of the queue can still begin when it could
have begun without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Protocol

from gpudeck.pool.core.claims import DEFAULT_TERM_S, Claim, Grant, Lease
from gpudeck.pool.core.fair_share import FairSharePolicy, held_gpus, turns, usage_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import (
    Candidate,
    Placement,
    PlacementContext,
    Placer,
    candidates,
)

OFFERS_MOST = 32  # of one pass; the next one follows at once
OVERDUE_LEAST_S = 600.0
OVERDUE_PART = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    strategy: str = "pack"
    fair_share: FairSharePolicy = field(default_factory=FairSharePolicy)
    pin_after_s: float = 4 * 3_600.0
    default_term_s: float = DEFAULT_TERM_S


class OwnerLimits(Protocol):
    """What an owner may hold; claims that are offered in a pass count from then on."""

    def why_not(self, claim: Claim) -> str: ...
    def take(self, claim: Claim) -> None: ...


class NoOwnerLimits:
    """Everybody may hold what is free."""

    def why_not(self, claim: Claim) -> str:
        return ""

    def take(self, claim: Claim) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    waiting: Sequence[Claim]
    leases: Sequence[Lease]  # that hold GPUs
    ended: Sequence[Lease] = ()  # of the last weeks
    limits: OwnerLimits


@dataclass(frozen=True, slots=True)
class Shadow:
    """When and where the head of the queue begins at the latest, if terms are honoured."""

    claim: Claim
    at: float
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """`order`: ids of those that go on waiting, first to last. `blocked`: id to why. `needed`: by
    node, GPUs that a pinned claim is to begin on: leases on them are not renewed."""

    offers: tuple[Placement, ...]
    order: tuple[str, ...]
    shadow: Shadow | None
    blocked: Mapping[str, str]
    needed: Mapping[str, frozenset[str]]


def run_pass(queue: Queue, nodes: Sequence[Node], policy: PoolPolicy, context: PlacementContext,
             now: float) -> Pass:
    """`nodes`: with what is free of them now."""
    placer = Placer(nodes, policy.strategy, context)
    usage = usage_of((*queue.leases, *queue.ended), now, policy.fair_share)
    pinned = {each.id: each.submitted_at for each in queue.waiting
              if now - each.submitted_at >= policy.pin_after_s}
    offers: list[Placement] = []
    order: list[str] = []
    blocked: dict[str, str] = {}
    shadow: Shadow | None = None
    full: set[tuple[object, ...]] = set()
    for claim in turns(queue.waiting, pinned, usage):
        if why := queue.limits.why_not(claim):
            blocked[claim.id] = why
            order.append(claim.id)
            continue
        if len(offers) == OFFERS_MOST:
            order.append(claim.id)
            continue
        wants = (*claim.wants, claim.nodes, claim.hosts, claim.term_s)
        placement = None if wants in full else placer.find(claim, now)
        if placement is None:
            full.add(wants)
            order.append(claim.id)
            if shadow is None:
                held = (*queue.leases, *(_lease_of(each, now) for each in offers))
                if (shadow := shadow_of(claim, placer.nodes, held, now)) is not None:
                    placer.hold(shadow.grants, shadow.at)
            continue
        placer.take(placement)
        queue.limits.take(claim)
        offers.append(placement)
        usage.charge(claim, held_gpus(claim) * claim.term_s)
    return Pass(tuple(offers), tuple(order), shadow, blocked, _needed(shadow, pinned))


def _needed(shadow: Shadow | None, pinned: Mapping[str, float]) -> dict[str, frozenset[str]]:
    if shadow is None or shadow.claim.id not in pinned:
        return {}
    return {grant.node: frozenset(grant.uuids) for grant in shadow.grants}


def _lease_of(offer: Placement, now: float) -> Lease:
    return Lease(id=offer.claim.id, claim=offer.claim, grants=offer.grants, since=now,
                 until=now + offer.claim.term_s)


def expected_end(lease: Lease, now: float) -> float:
    """An overdue lease is taken to end a while from now, each time twice as long (Tsafrir et al.,
    TPDS 2007); it is never ended for that."""
    if lease.until > now:
        return lease.until
    step = max(OVERDUE_LEAST_S, OVERDUE_PART * (lease.until - lease.since))
    doublings = ceil(log2((now - lease.until) / step + 1 + 1e-9))
    return lease.until + step * float(2 ** max(doublings, 1) - 1)


def shadow_of(claim: Claim, nodes: Mapping[str, Node], leases: Sequence[Lease], now: float
              ) -> Shadow | None:
    """Leases are taken back in the order of their ends until the claim fits. None: it never
    would."""
    changed: dict[str, Node] = {}
    # A cheap bound on what a node can have free; only where it is enough one looks closely.
    free = {each.id: sum(gpu.free_milli >= claim.share_milli for gpu in each.gpus)
            for each in nodes.values()}
    fits = {each.id: found for each in nodes.values() if free[each.id] >= claim.gpus
            and (found := _fit(each, claim)) is not None}
    ends = sorted(((expected_end(lease, now), lease.id, lease) for lease in leases),
                  key=lambda each: each[:2])
    for end, _, lease in ends:
        for grant in lease.grants:
            if grant.node not in nodes:
                continue
            node = changed.get(grant.node, nodes[grant.node]).got_back(grant.uuids, lease.claim)
            changed[grant.node] = node
            free[grant.node] += len(grant.uuids)
            if grant.node not in fits and free[grant.node] >= claim.gpus:
                found = _fit(node, claim)
                if found is not None:
                    fits[grant.node] = found
        if len(fits) >= claim.nodes:
            return Shadow(claim, end, tuple(
                Grant(node_id, fits[node_id].uuids) for node_id in sorted(fits)[:claim.nodes]))
    return None


def _fit(node: Node, claim: Claim) -> Candidate | None:
    if claim.hosts and node.host not in claim.hosts and node.id not in claim.hosts:
        return None
    return next(candidates(node, claim, 0.0), None)
