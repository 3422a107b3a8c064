"""Leases that are extended at the hub: their nodes hear of it until they report it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpudeck.contract.pool_link import ReportedLease

SAME_TIME_S = 2.0  # the clocks of node and hub may differ by


@dataclass(slots=True)
class LeaseExtensions:
    """Ends of leases that their nodes do not report yet, by node and lease."""

    _ends: dict[str, dict[str, float]] = field(default_factory=dict)

    def until(self, node_id: str, lease: ReportedLease) -> float:
        """Return when a lease ends, with what its node does not know yet."""
        return max(lease.until, self.of_node(node_id).get(lease.claim.id, lease.until))

    def add(self, node_id: str, lease: ReportedLease, by_s: float) -> None:
        until = self.until(node_id, lease) + by_s
        self._ends.setdefault(node_id, {})[lease.claim.id] = until

    def of_node(self, node_id: str) -> Mapping[str, float]:
        return self._ends.get(node_id, {})

    def reported(self, node_id: str, leases: Iterable[ReportedLease]) -> None:
        until = {lease.claim.id: lease.until for lease in leases}
        self._ends[node_id] = {
            lease_id: utc for lease_id, utc in self.of_node(node_id).items()
            if lease_id in until and until[lease_id] < utc - SAME_TIME_S}

    def forget(self, node_id: str) -> None:
        self._ends.pop(node_id, None)
