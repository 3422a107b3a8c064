"""Estimate of when the head of the queue will begin, by how long leases lasted that have ended."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import Booking, Claim, Lease, gpus_of
from gpudeck.pool.core.estimates import estimate
from gpudeck.pool.core.feasibility import suits
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.wait_estimate import WaitEstimate

from .run_times import RunTimes

AGAIN_AFTER_S = 60.0
LEASES_MOST = 512  # for more of them it would take too long


@dataclass(slots=True)
class WaitEstimates:
    """Wait estimates, for the head of the queue only: all behind it wait for it, too."""

    run_times: RunTimes
    _last: tuple[str, float, WaitEstimate | None] = field(init=False, default=("", 0.0, None))

    def of(self, claim: Claim, free: Callable[[], Mapping[str, Node]], leases: Sequence[Lease],
           bookings: Collection[Booking], now: float, mono: float) -> WaitEstimate | None:
        if self._last[0] == claim.id and mono - self._last[1] < AGAIN_AFTER_S:
            return self._last[2]
        nodes = free()
        gpus = {(node.id, uuid) for node in nodes.values()
                for uuid, gpu in zip(node.uuids, node.gpus, strict=True) if suits(claim, gpu)}
        there = [lease for lease in leases if not gpus.isdisjoint(gpus_of(lease.grants))]
        wait = None
        if self.run_times.is_proven and len(there) <= LEASES_MOST:
            wait = estimate(claim, nodes, there, list(bookings),
                            self.run_times.of_leases(there, now), now)
        self._last = claim.id, mono, wait
        return wait
