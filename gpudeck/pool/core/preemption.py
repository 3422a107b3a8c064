"""Which leases are taken back for a claim of higher priority, or since their terms are over while a
claim waits: all that it needs or none. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpudeck.pool.core.claims import Claim, Grant, Lease, uuids_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import candidates
from gpudeck.pool.core.strategies import Candidate

EXACT_MOST = 8  # leases of a node; a board has no more GPUs, shares apart

Cost = tuple[int, int, float, str]  # victims, their priorities, how long they ran, node


@dataclass(frozen=True, slots=True)
class Preemption:
    """`grant`: what the claim gets once the victims have gone. `is_overdue`: they have to since
    their terms are over."""

    claim: Claim
    victims: tuple[Lease, ...]
    grant: Grant
    is_overdue: bool = False


def overdue(claim: Claim, grants: Sequence[Grant], leases: Sequence[Lease], now: float
            ) -> Preemption | None:
    """All that hold GPUs which are kept for a claim by now; None: the term of one of them is not
    over, so that what the others gave would be of no use to it."""
    if len(grants) != 1:
        return None
    [grant] = grants
    victims = tuple(each for each in leases if not uuids_of(each.grants).isdisjoint(grant.uuids))
    is_over = all(each.until <= now and each.claim.nodes == 1 for each in victims)
    return Preemption(claim, victims, grant, is_overdue=True) if victims and is_over else None


def preemption(claim: Claim, nodes: Mapping[str, Node], leases: Sequence[Lease],
               least_run_s: float, now: float) -> Preemption | None:
    """Fewest; of these the lowest priorities, then the youngest. None: it would not fit even so.

    Claims over several nodes and leases over several nodes are left alone: taking a part of either
    gives nobody anything."""
    if claim.nodes > 1:
        return None
    by_node: dict[str, list[Lease]] = {}
    for lease in leases:
        if now - lease.since >= least_run_s and may_take(claim, lease):
            by_node.setdefault(lease.grants[0].node, []).append(lease)
    found = [best for node_id, those in by_node.items() if node_id in nodes
             and (best := _of_node(claim, nodes[node_id], those, now)) is not None]
    return min(found, key=lambda each: each[0])[1] if found else None


def may_take(claim: Claim, lease: Lease) -> bool:
    return (lease.claim.is_preemptible and lease.claim.priority < claim.priority
            and len(lease.grants) == 1 and lease.claim.nodes == 1)


def _of_node(claim: Claim, node: Node, leases: list[Lease], now: float
             ) -> tuple[Cost, Preemption] | None:
    if claim.hosts and node.host not in claim.hosts and node.id not in claim.hosts:
        return None
    # The likeliest first, should there be more than can be searched through.
    those = sorted(leases, key=lambda each: (each.claim.priority, now - each.since, each.id))
    for count in range(1, len(those) + 1):
        fitting = [(_cost(each, node, now), Preemption(claim, each, Grant(node.id, place.uuids)))
                   for each in combinations(those[:EXACT_MOST], count)
                   if (place := _place(claim, node, each, now)) is not None]
        if fitting:
            return min(fitting, key=lambda each: each[0])
    return None


def _cost(leases: Sequence[Lease], node: Node, now: float) -> Cost:
    return (len(leases), sum(each.claim.priority for each in leases),
            sum(now - each.since for each in leases), node.host)


def _place(claim: Claim, node: Node, leases: Sequence[Lease], now: float) -> Candidate | None:
    """What somebody has reserved within its term is not taken."""
    for lease in leases:
        node = node.got_back(lease.grants[0].uuids, lease.claim)
    return next(candidates(node, claim, now + claim.term_s), None)
