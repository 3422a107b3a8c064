"""Wakes requests that wait for a lease to begin or to end."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gevent.event import Event


@dataclass(slots=True, eq=False)
class LeaseWait:
    lease_id: str
    came: Event = field(default_factory=Event)
    refusal: str = ""


class LeaseNews:
    def __init__(self) -> None:
        self._waits: set[LeaseWait] = set()

    def wait(self, lease_id: str, within_s: float) -> str:
        """Wait until a lease begins or ends; blocks its own greenlet alone. Return why a node
        refused that lease last; "": none did."""
        wait = LeaseWait(lease_id)
        self._waits.add(wait)
        try:
            wait.came.wait(within_s)
        finally:
            self._waits.discard(wait)
        return wait.refusal

    def notify(self, changed: Collection[str], refusals: Mapping[str, str]) -> None:
        """Wake requests. `changed`: leases that began or ended."""
        for wait in self._waits:
            wait.refusal = refusals.get(wait.lease_id, wait.refusal)
            if wait.lease_id in changed:
                wait.came.set()
