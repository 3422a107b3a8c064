"""Notices what changes in the pool: tells those who listen, and counts for Prometheus."""

from collections.abc import Mapping

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.link import PoolReport, ReportedLease

from ..runtime.dispatcher import Dispatcher
from .events import ClaimChanged, LeaseChanged
from .plan import PlannedPass

TOLD_MOST = 16  # claims of one pass; all of them are in the list
WAIT_BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)


class PoolWatch:
    def __init__(self, events: Dispatcher) -> None:
        self._events = events
        self._waiting: Mapping[str, Claim] | None = None  # None: no pass was made yet
        self.version = 0  # of who holds what until when
        self.waited = [0] * (len(WAIT_BOUNDS_S) + 1)  # leases granted, by how long they waited
        self.waited_s = 0.0

    def reported(self, node_id: str, before: PoolReport | None, report: PoolReport,
                 own: Mapping[str, Claim]) -> None:
        """`before` None: of what it holds nothing is new, but that this hub hears it. `own`: claims
        that were made at the hub, which know best since when they wait."""
        then = {} if before is None else {each.claim.id: each for each in before.leases}
        now = {each.claim.id: each for each in report.leases}
        changed = [each for lease_id, each in now.items() if lease_id not in then
                   or _shown(each) != _shown(then[lease_id])]
        gone = [each for lease_id, each in then.items() if lease_id not in now]
        self.version += bool(changed or gone)
        if before is None:
            return
        ends = {each.claim.id: each for each in report.ended}
        for lease in changed:
            if lease.claim.id not in then:
                self._granted(lease, own.get(lease.claim.id, lease.claim))
            self._events.dispatch(LeaseChanged(node_id, lease, True))
        for lease in gone:
            self._events.dispatch(LeaseChanged(node_id, lease, False, ends.get(lease.claim.id)))

    def _granted(self, lease: ReportedLease, claim: Claim) -> None:
        waited_s = max(0.0, lease.since - max(claim.submitted_at, claim.starts_at or 0.0))
        self.waited[sum(bound < waited_s for bound in WAIT_BOUNDS_S)] += 1
        self.waited_s += waited_s

    def planned(self, planned: PlannedPass) -> None:
        before, self._waiting = self._waiting, planned.claims
        if before is None:
            return
        new = [each for each in planned.made.order if each not in before]
        for claim, said in planned.waiting(new[:TOLD_MOST]) if new else ():
            self._events.dispatch(ClaimChanged(claim, said))
        gone = [claim for claim_id, claim in before.items() if claim_id not in planned.claims]
        for claim in gone[:TOLD_MOST]:
            self._events.dispatch(ClaimChanged(claim, None))


def _shown(lease: ReportedLease) -> tuple[object, ...]:
    """All but when it was used last."""
    return lease.uuids, lease.state, lease.until
