"""Watch of the pool: notices what changes, tells listeners, and counts for Prometheus."""

from collections.abc import Mapping

from gpudeck.contract.pool_link import PoolReport, ReportedEnd, ReportedLease
from gpudeck.pool.core.claims import Claim

from ..runtime.dispatcher import Dispatcher
from .events import ClaimChanged, LeaseChanged
from .plan import PlannedPass

TOLD_MOST = 16  # claims of one pass; all of them are in the list
WAIT_BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)


class PoolWatch:
    def __init__(self, events: Dispatcher) -> None:
        self._events = events
        self._waiting: Mapping[str, Claim] | None = None  # None: no pass was made yet
        self.version = 0  # of the leases: holders, GPUs, ends
        self.waited = [0] * (len(WAIT_BOUNDS_S) + 1)  # leases granted, by how long they waited
        self.waited_s = 0.0

    def reported(self, node_id: str, before: PoolReport | None, report: PoolReport,
                 own: Mapping[str, Claim], now_utc: float) -> None:
        """Note a report. `before` None: of what it holds nothing is new, but that this hub hears
        it. `own`: claims that were made at the hub, which know best since when they wait.
        `now_utc`: when it came."""
        then = {} if before is None else {lease.claim.id: lease for lease in before.leases}
        now = {lease.claim.id: lease for lease in report.leases}
        changed = [lease for lease_id, lease in now.items() if lease_id not in then
                   or _visible_part(lease) != _visible_part(then[lease_id])]
        removed = [lease for lease_id, lease in then.items() if lease_id not in now]
        self.version += bool(changed or removed)
        if before is None:
            return
        ends = {end.claim.id: end for end in report.ended} | {
            claim.id: ReportedEnd(claim, claim.home_gpus, claim.submitted_at, now_utc, "suspended",
                                  "its work is suspended; it waits for its GPUs")
            for claim in (entry.claim for entry in report.claims) if claim.home_gpus}
        for lease in changed:
            if lease.claim.id not in then:
                self._count_wait(lease, own.get(lease.claim.id, lease.claim))
            self._events.dispatch(LeaseChanged(node_id, lease, True))
        for lease in removed:
            self._events.dispatch(LeaseChanged(node_id, lease, False, ends.get(lease.claim.id)))

    def _count_wait(self, lease: ReportedLease, claim: Claim) -> None:
        waited_s = max(0.0, lease.since - max(claim.submitted_at, claim.starts_at or 0.0))
        self.waited[sum(bound < waited_s for bound in WAIT_BOUNDS_S)] += 1
        self.waited_s += waited_s

    def planned(self, planned: PlannedPass) -> None:
        before, self._waiting = self._waiting, planned.claims
        if before is None:
            return
        new = [claim_id for claim_id in planned.outcome.order if claim_id not in before]
        for claim, standing in planned.waiting(new[:TOLD_MOST]) if new else ():
            self._events.dispatch(ClaimChanged(claim, standing))
        removed = [claim for claim_id, claim in before.items() if claim_id not in planned.claims]
        for claim in removed[:TOLD_MOST]:
            self._events.dispatch(ClaimChanged(claim, None))


def _visible_part(lease: ReportedLease) -> tuple[object, ...]:
    """Return what is shown of a lease, except when it was used last."""
    return lease.uuids, lease.state, lease.until
