"""Choice of leases to take back for a claim of higher priority, or because their terms are over
while a claim waits: all that it needs or none. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpudeck.pool.core.claims import Claim, Grant, Lease, gpus_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import candidates
from gpudeck.pool.core.strategies import Candidate

EXACT_MOST = 8  # leases of a node; a board has no more GPUs, shares apart

Cost = tuple[int, int, float, str]  # victims, their priorities, how long they ran, node


@dataclass(frozen=True, slots=True)
class Preemption:
    """Leases to take back for a claim. `grant`: what the claim gets once the victims have gone.
    `is_overdue`: they have to since their terms are over."""

    claim: Claim
    victims: tuple[Lease, ...]
    grant: Grant
    is_overdue: bool = False


def overdue(claim: Claim, grants: Sequence[Grant], leases: Sequence[Lease], now: float
            ) -> Preemption | None:
    """Return all leases that hold GPUs kept for a claim by now; None: the term of one is not over,
    so that what the others gave would be of no use to it."""
    if len(grants) != 1:
        return None
    [grant] = grants
    gpus = gpus_of(grants)
    victims = tuple(lease for lease in leases if not gpus.isdisjoint(gpus_of(lease.grants)))
    is_over = all(lease.until <= now and lease.claim.nodes == 1 for lease in victims)
    return Preemption(claim, victims, grant, is_overdue=True) if victims and is_over else None


def preemption(claim: Claim, nodes: Mapping[str, Node], leases: Sequence[Lease],
               least_run_s: float, now: float) -> Preemption | None:
    """Return the fewest victims; of these the lowest priorities, then the youngest. None: it would
    not fit even so.

    Claims over several nodes and leases over several nodes are left alone: taking a part of either
    gives nobody anything."""
    if claim.nodes > 1:
        return None
    by_node: dict[str, list[Lease]] = {}
    for lease in leases:
        if now - lease.since >= least_run_s and may_take(claim, lease):
            by_node.setdefault(lease.grants[0].node, []).append(lease)
    options = [best for node_id, node_leases in by_node.items() if node_id in nodes
               and (best := _of_node(claim, nodes[node_id], node_leases, now)) is not None]
    return min(options, key=lambda option: option[0])[1] if options else None


def may_take(claim: Claim, lease: Lease) -> bool:
    return (lease.claim.is_preemptible and lease.claim.priority < claim.priority
            and len(lease.grants) == 1 and lease.claim.nodes == 1)


def _of_node(claim: Claim, node: Node, leases: list[Lease], now: float
             ) -> tuple[Cost, Preemption] | None:
    if claim.hosts and node.host not in claim.hosts and node.id not in claim.hosts:
        return None
    # The likeliest first, should there be more than can be searched through.
    by_likelihood = sorted(
        leases, key=lambda lease: (lease.claim.priority, now - lease.since, lease.id))
    for count in range(1, len(by_likelihood) + 1):
        fitting = [(_cost(victims, node, now),
                    Preemption(claim, victims, Grant(node.id, place.uuids)))
                   for victims in combinations(by_likelihood[:EXACT_MOST], count)
                   if (place := _place(claim, node, victims, now)) is not None]
        if fitting:
            return min(fitting, key=lambda option: option[0])
    return None


def _cost(leases: Sequence[Lease], node: Node, now: float) -> Cost:
    return (len(leases), sum(lease.claim.priority for lease in leases),
            sum(now - lease.since for lease in leases), node.host)


def _place(claim: Claim, node: Node, leases: Sequence[Lease], now: float) -> Candidate | None:
    """Return where the claim fits without these leases, clear of what is reserved within its
    term."""
    for lease in leases:
        node = node.after_return(lease.grants[0].uuids, lease.claim)
    return next(candidates(node, claim, now + claim.term_s), None)
