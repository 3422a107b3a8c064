"""When the head of the queue will begin, by how long earlier runs took. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpudeck.pool.core.claims import Booking, Claim, Lease
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.prediction import RunTime
from gpudeck.pool.core.schedule import shadow_of
from gpudeck.pool.core.wait_estimate import WaitEstimate


def estimate(claim: Claim, nodes: Mapping[str, Node], leases: Sequence[Lease],
             bookings: Sequence[Booking], predicted: Mapping[str, RunTime], now: float
             ) -> WaitEstimate | None:
    """`predicted`: by lease. Of the others their term counts. None: nothing is known of those that
    it waits for."""
    starts = []
    known = [each for each in leases if each.id in predicted]
    for quantile in ("p25_s", "p50_s", "p75_s"):
        ends = [replace(each, until=max(each.since + getattr(predicted[each.id], quantile),
                                        now + 1.0)) if each.id in predicted else each
                for each in leases]
        found = shadow_of(claim, nodes, ends, bookings, now)
        if found is None:
            return None
        starts.append(found)
    # By one that is not predicted, it is the term that says when: no estimate.
    gone = [each for each in known
            if any(set(grant.uuids) & {uuid for one in starts[1].grants for uuid in one.uuids}
                   for grant in each.grants)]
    if not gone:
        return None
    low, likely, high = sorted(each.at - now for each in starts)
    return WaitEstimate(low, likely, high, sum(predicted[each.id].runs for each in gone))
