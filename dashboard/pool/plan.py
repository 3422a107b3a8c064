"""From what nodes report to what each of them is told. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Protocol

from gpudeck.pool.core.claims import Booking, Claim, Grant, Lease
from gpudeck.pool.core.estimates import WaitEstimate
from gpudeck.pool.core.fair_share import EndedUsage
from gpudeck.pool.core.feasibility import why_waits
from gpudeck.pool.core.fragmentation import LEAST_CLAIMS, ClaimMix
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.placement import PlacementContext, candidates
from gpudeck.pool.core.schedule import OwnerLimits, Pass, PoolPolicy, Queue, run_pass
from gpudeck.pool.link import (
    CLAIMS_MOST,
    ClaimStanding,
    LeaseOffer,
    PoolPlan,
    PoolReport,
)
from gpudeck.pool.messages import ELSEWHERE_MOST


class BookedClaims(Protocol):
    """`never`: claim to why it cannot be kept."""

    @property
    def never(self) -> Mapping[str, str]: ...

    def kept(self, claim_id: str) -> Collection[str]: ...  # GPUs


@dataclass(frozen=True)
class PoolNode:
    """A connected node that gives out GPUs; what follows from its report is worked out once."""

    id: str
    host: str
    report: PoolReport

    @cached_property
    def empty(self) -> Node:
        """As if nothing were given out, and all were well."""
        return self._with({each.uuid for each in self.report.gpus})

    @cached_property
    def well(self) -> Node:
        """As if nothing were given out of what is well now."""
        return self._with({each.uuid for each in self.report.gpus if not each.trouble})

    @cached_property
    def unleased(self) -> Node:
        return _given(self.well, [(each.claim, each.uuids) for each in self.report.leases])

    @cached_property
    def leases(self) -> Sequence[Lease]:
        return [Lease(id=each.claim.id, claim=each.claim, grants=(Grant(self.id, each.uuids),),
                      since=each.since, until=each.until) for each in self.report.leases]

    @cached_property
    def claims(self) -> Sequence[Claim]:
        """What was asked on a node is for that node, unless it names others."""
        return [replace(each.claim, hosts=each.claim.hosts or (self.id,))
                for each in self.report.claims]

    def _with(self, there: Collection[str]) -> Node:
        """GPU 0 goes last: programs that name no device take that one."""
        return node_of(self.id, self.host, [
            (each.uuid, FreeGpu(each.model, each.is_mig, each.clique, each.numa,
                                None if each.mem_bytes is None else int(each.mem_bytes)))
            for each in sorted(self.report.gpus, key=lambda gpu: -gpu.index)
            if each.uuid in there])


def _given(node: Node, held: Iterable[tuple[Claim, Collection[str]]]) -> Node:
    for claim, uuids in held:
        node = node.given([uuid for uuid in uuids if uuid in node.uuids], claim)
    return node


@dataclass(frozen=True, slots=True)
class PendingOffer:
    """Proposed to a node that has not said yet whether it took it."""

    claim: Claim
    grants: tuple[Grant, ...]
    at_mono: float
    taken: frozenset[str] = frozenset()  # nodes that have


def free_nodes(nodes: Iterable[PoolNode], pending: Iterable[PendingOffer]) -> dict[str, Node]:
    offered: dict[str, list[tuple[Claim, Collection[str]]]] = {}
    for each in pending:
        for grant in each.grants:
            if grant.node not in each.taken:
                offered.setdefault(grant.node, []).append((each.claim, grant.uuids))
    return {node.id: _given(node.unleased, offered.get(node.id, ())) for node in nodes}


def waiting_claims(nodes: Collection[PoolNode], own: Collection[Claim],
                   pending: Mapping[str, PendingOffer]) -> list[Claim]:
    held = {each.id for node in nodes for each in node.leases}
    # A reservation that the hub has made its own is asked for until its node has heard of it.
    found = {each.id: each for node in nodes for each in node.claims}
    found |= {each.id: each for each in own}
    return [each for each in found.values() if each.id not in held and each.id not in pending]


def leases_of(nodes: Collection[PoolNode], pending: Collection[PendingOffer], now: float
              ) -> list[Lease]:
    proposed = [(each.claim, tuple(grant for grant in each.grants if grant.node not in each.taken))
                for each in pending]
    return [each for node in nodes for each in node.leases] + [
        Lease(id=claim.id, claim=claim, grants=grants, since=now, until=now + claim.term_s)
        for claim, grants in proposed]


def scheduled(nodes: Sequence[PoolNode], waiting: Sequence[Claim],
              pending: Mapping[str, PendingOffer], ended: Sequence[Lease], had: EndedUsage | None,
              bookings: Collection[Booking], limits: OwnerLimits, policy: PoolPolicy, now: float
              ) -> Pass:
    """`ended`: of late; `had`: what all that ended count."""
    asking = {each.id for each in waiting}
    recent = [each.claim for each in ended[-LEAST_CLAIMS * 40:]]
    return run_pass(
        Queue(waiting=waiting, leases=leases_of(nodes, pending.values(), now), had=had,
              bookings=[each for each in bookings if each.claim.id in asking],
              limits=limits),
        [*free_nodes(nodes, pending.values()).values()], policy,
        PlacementContext(mix=ClaimMix([*recent, *waiting])), now)


class PlannedPass:
    """What a pass means for each node and claim. Built once, asked thousands of times."""

    def __init__(self, made: Pass, nodes: Sequence[PoolNode], claims: Mapping[str, Claim],
                 pending: Mapping[str, PendingOffer], notes: Mapping[str, str],
                 estimate: WaitEstimate | None, bookings: BookedClaims, now: float) -> None:
        """`notes`: claim to what else its owner is told. `estimate`: for the head of the queue."""
        self.made = made
        self._estimate = estimate
        self._bookings = bookings
        self._notes = notes
        self.nodes = nodes
        self.claims = claims
        self._now = now
        self._named: dict[str, list[PoolNode]] = {}
        for node in nodes:
            for name in {node.id, node.host}:
                self._named.setdefault(name, []).append(node)
        self.free = free_nodes(nodes, pending.values())
        self._places = {claim_id: place for place, claim_id in enumerate(made.order, 1)}
        self._offers: dict[str, list[tuple[Claim, Grant]]] = {}
        for each in pending.values():
            for grant in each.grants:
                if grant.node in each.taken:
                    continue
                self._offers.setdefault(grant.node, []).append((each.claim, grant))
        self._whys: dict[tuple[object, ...], str] = {}
        self._roomy = [each for each in made.nodes.values()
                       if any(gpu.free_milli for gpu in each.gpus)]
        self._fitting: dict[tuple[object, ...], tuple[Node, ...]] = {}

    def plan(self, node: PoolNode, give_back: Mapping[str, str], preempt: Mapping[str, str],
             extend: Mapping[str, float], withdrawn: Mapping[str, str], grace_s: float) -> PoolPlan:
        """What this node is told: its GPUs that are offered, how its claims stand, and which leases
        are not renewed past what others wait for."""
        asked = {each.claim.id for each in node.report.claims}
        offers = tuple(LeaseOffer(claim.id, grant.uuids, None if claim.id in asked else claim)
                       for claim, grant in self._offers.get(node.id, ()))
        standings = tuple(self.standing(self.claims[claim_id])
                          for claim_id in sorted(asked & self._places.keys(),
                                                 key=self._places.__getitem__))
        keep_until = {each.claim.id: until for each in node.report.leases
                      if (until := self.made.kept_until(each.uuids)) is not None}
        return PoolPlan(offers[:CLAIMS_MOST], standings[:CLAIMS_MOST], dict(give_back),
                        dict(preempt), keep_until, dict(extend), dict(withdrawn), grace_s)

    def standing(self, claim: Claim) -> ClaimStanding:
        shadow = self.made.shadow
        is_head = shadow is not None and shadow.claim.id == claim.id
        wait_s = shadow.at - self._now if is_head and shadow is not None else None
        why = self._notes.get(claim.id) or self.made.blocked.get(claim.id) or self._why(claim)
        return ClaimStanding(claim.id, self._places[claim.id], why[:1_024], wait_s,
                             self._estimate if is_head else None, self._elsewhere(claim),
                             tuple(self._bookings.kept(claim.id)) if claim.starts_at else (),
                             self._bookings.never.get(claim.id, ""))

    def _elsewhere(self, claim: Claim) -> tuple[str, ...]:
        """Other nodes that have free now what was asked on one."""
        if claim.nodes > 1 or len(claim.hosts) != 1 or claim.hosts[0] not in self.free:
            return ()
        key = *claim.wants, claim.term_s
        if key not in self._fitting:
            anywhere = replace(claim, hosts=())
            fitting = (each for each in self._roomy
                       if next(candidates(each, anywhere, self._now + claim.term_s), None))
            self._fitting[key] = tuple(islice(fitting, ELSEWHERE_MOST + 1))
        return tuple(each.host for each in self._fitting[key]
                     if each.id != claim.hosts[0])[:ELSEWHERE_MOST]

    def _why(self, claim: Claim) -> str:
        """Claims that ask for the same wait for the same."""
        key = (*claim.wants, claim.nodes, claim.hosts)
        if key not in self._whys:
            there = self.nodes if not claim.hosts else [
                node for name in claim.hosts for node in self._named.get(name, ())]
            self._whys[key] = why_waits(claim, [node.empty for node in there],
                                        [self.free[node.id] for node in there])
        return self._whys[key]

    def waiting(self, claim_ids: Collection[str]) -> list[tuple[Claim, ClaimStanding]]:
        """In their order."""
        return [(self.claims[claim_id], self.standing(self.claims[claim_id]))
                for claim_id in self.made.order if claim_id in claim_ids]
