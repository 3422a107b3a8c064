"""Estimate of when the head of the queue will begin, by how long earlier runs took. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpudeck.pool.core.claims import Booking, Claim, Lease, gpus_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.prediction import RunTime
from gpudeck.pool.core.schedule import shadow_of
from gpudeck.pool.core.wait_estimate import WaitEstimate


def estimate(claim: Claim, nodes: Mapping[str, Node], leases: Sequence[Lease],
             bookings: Sequence[Booking], predicted: Mapping[str, RunTime], now: float
             ) -> WaitEstimate | None:
    """Estimate the wait of a claim. `predicted`: by lease; of the others their term counts. None:
    nothing is known of those that it waits for."""
    starts = []
    predicted_leases = [lease for lease in leases if lease.id in predicted]
    for quantile in ("p25_s", "p50_s", "p75_s"):
        ends = [replace(lease, until=max(lease.since + getattr(predicted[lease.id], quantile),
                                         now + 1.0)) if lease.id in predicted else lease
                for lease in leases]
        shadow = shadow_of(claim, nodes, ends, bookings, now)
        if shadow is None:
            return None
        starts.append(shadow)
    # By one that is not predicted, it is the term that says when: no estimate.
    gpus = gpus_of(starts[1].grants)
    awaited = [lease for lease in predicted_leases if not gpus.isdisjoint(gpus_of(lease.grants))]
    if not awaited:
        return None
    low, likely, high = sorted(shadow.at - now for shadow in starts)
    return WaitEstimate(low, likely, high, sum(predicted[lease.id].runs for lease in awaited))
