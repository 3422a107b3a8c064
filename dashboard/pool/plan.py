"""From what nodes report to what each of them is told. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.feasibility import why_waits
from gpudeck.pool.core.fragmentation import LEAST_CLAIMS, ClaimMix
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from gpudeck.pool.core.placement import PlacementContext
from gpudeck.pool.core.schedule import OwnerLimits, Pass, PoolPolicy, Queue, run_pass
from gpudeck.pool.link import (
    CLAIMS_MOST,
    ClaimStanding,
    LeaseOffer,
    PoolPlan,
    PoolReport,
    ReportedEnd,
)


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A connected node that gives out GPUs."""

    id: str
    host: str
    report: PoolReport


@dataclass(frozen=True, slots=True)
class PendingOffer:
    """Proposed to a node that has not said yet whether it took it."""

    claim: Claim
    grants: tuple[Grant, ...]
    at_mono: float


def empty_node(node: PoolNode) -> Node:
    """As if nothing were given out, and all were well."""
    return _node(node, {each.uuid for each in node.report.gpus})


def free_node(node: PoolNode, pending: Collection[PendingOffer]) -> Node:
    free = _node(node, {each.uuid for each in node.report.gpus if not each.trouble})
    held = [(each.claim, each.uuids) for each in node.report.leases]
    held += [(each.claim, grant.uuids) for each in pending for grant in each.grants
             if grant.node == node.id]
    for claim, uuids in held:
        free = free.given([uuid for uuid in uuids if uuid in free.uuids], claim)
    return free


def _node(node: PoolNode, there: Collection[str]) -> Node:
    """GPU 0 goes last: programs that name no device take that one."""
    return node_of(node.id, node.host, [
        (each.uuid, FreeGpu(each.model, each.is_mig, each.clique, each.numa,
                            None if each.mem_bytes is None else int(each.mem_bytes)))
        for each in sorted(node.report.gpus, key=lambda gpu: -gpu.index) if each.uuid in there])


def waiting_claims(nodes: Collection[PoolNode], own: Collection[Claim],
                   pending: Mapping[str, PendingOffer]) -> list[Claim]:
    """What was asked on a node is for that node, unless it names others."""
    held = {each.claim.id for node in nodes for each in node.report.leases}
    asked = [replace(each.claim, hosts=each.claim.hosts or (node.id,))
             for node in nodes for each in node.report.claims]
    return [each for each in (*asked, *own) if each.id not in held and each.id not in pending]


def leases_of(nodes: Collection[PoolNode], pending: Collection[PendingOffer], now: float
              ) -> list[Lease]:
    reported = [Lease(id=each.claim.id, claim=each.claim, grants=(Grant(node.id, each.uuids),),
                      since=each.since, until=each.until)
                for node in nodes for each in node.report.leases]
    return reported + [Lease(id=each.claim.id, claim=each.claim, grants=each.grants, since=now,
                             until=now + each.claim.term_s) for each in pending]


def ended_lease(node_id: str, end: ReportedEnd) -> Lease:
    return Lease(id=end.claim.id, claim=end.claim, grants=(Grant(node_id, end.uuids),),
                 since=end.since, until=end.ended_at, ended_at=end.ended_at)


def scheduled(nodes: Sequence[PoolNode], own: Collection[Claim],
              pending: Mapping[str, PendingOffer], ended: Sequence[Lease], limits: OwnerLimits,
              policy: PoolPolicy, now: float) -> Pass:
    waiting = waiting_claims(nodes, own, pending)
    recent = [each.claim for each in ended[-LEAST_CLAIMS * 40:]]
    return run_pass(
        Queue(waiting=waiting, leases=leases_of(nodes, pending.values(), now), ended=ended,
              limits=limits),
        [free_node(node, pending.values()) for node in nodes], policy,
        PlacementContext(mix=ClaimMix([*recent, *waiting])), now)


def plan_for(node: PoolNode, made: Pass, claims: Mapping[str, Claim],
             pending: Mapping[str, PendingOffer], nodes: Sequence[PoolNode], now: float,
             give_back: Mapping[str, str]) -> PoolPlan:
    """What this node is told: its GPUs that are offered, and how its claims stand."""
    asked = {each.claim.id for each in node.report.claims}
    offers = tuple(LeaseOffer(each.claim.id, grant.uuids,
                              None if each.claim.id in asked else each.claim)
                   for each in pending.values() for grant in each.grants if grant.node == node.id)
    standings = tuple(standing(claims[claim_id], place, made, nodes, pending, now)
                      for place, claim_id in enumerate(made.order, 1) if claim_id in asked)
    return PoolPlan(offers[:CLAIMS_MOST], standings[:CLAIMS_MOST], dict(give_back))


def standing(claim: Claim, place: int, made: Pass, nodes: Sequence[PoolNode],
             pending: Mapping[str, PendingOffer], now: float) -> ClaimStanding:
    shadow = made.shadow
    wait_s = shadow.at - now if shadow is not None and shadow.claim.id == claim.id else None
    why = made.blocked.get(claim.id)
    if why is None:
        there = [node for node in nodes
                 if not claim.hosts or node.host in claim.hosts or node.id in claim.hosts]
        why = why_waits(claim, [empty_node(node) for node in there],
                        [free_node(node, pending.values()) for node in there])
    return ClaimStanding(claim.id, place, why[:1_024], wait_s)
