"""Which GPUs a reservation gets, and when it could begin at the earliest. Pure."""

from collections.abc import Collection, Sequence
from math import inf

from gpudeck.pool.core.claims import Booking, Claim, Grant, Lease, expected_end, uuids_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import PlacementContext, Placer

TRIES = 24


def book(claim: Claim, starts_at: float, empty: Sequence[Node], leases: Collection[Lease],
         bookings: Collection[Booking], strategy: str, context: PlacementContext, now: float
         ) -> tuple[Grant, ...] | None:
    """GPUs that nothing else needs from `starts_at` for its whole term. `empty`: what is well of
    each node, as if nothing were given out."""
    ends_at = starts_at + claim.term_s
    busy = uuids_of(grant for lease in leases if expected_end(lease, now) > starts_at
                    for grant in lease.grants)
    busy |= uuids_of(grant for each in bookings
                     if each.starts_at < ends_at and starts_at < each.ends_at
                     for grant in each.grants)
    there = [node if busy.isdisjoint(node.uuids) else node.held_from(busy, -inf) for node in empty]
    found = Placer(there, strategy, context).find(claim, starts_at)
    return None if found is None else found.grants


def first_start(claim: Claim, starts_at: float, empty: Sequence[Node], leases: Collection[Lease],
                bookings: Collection[Booking], strategy: str, context: PlacementContext, now: float
                ) -> float | None:
    """After `starts_at`, when something ends. None: not soon enough to be found."""
    ends = {expected_end(lease, now) for lease in leases} | {each.ends_at for each in bookings}
    return next((at for at in sorted(each for each in ends if each > starts_at)[:TRIES]
                 if book(claim, at, empty, leases, bookings, strategy, context, now)), None)
