"""A channel: one kind of receiver. Its file has all that is particular to it, its row in table.py
makes it known to the API, the store and the docs."""

from typing import Any, Protocol

from ...access.policy import Actor
from ...alerts.core.firing_alerts import Alert
from ..receivers import Receiver
from ..retry import QueuedNotification
from ..transports import DeliveryResult, Transports

TEST = "This is a test of gpudeck: nothing fires, and notices come here."


class Channel(Protocol):
    """`description` is the row of docs/notices.md."""

    kind: str
    description: str
    needs_mail: bool
    beat_every_s: float | None = None  # None: it has no heartbeat

    def flaw(self, receiver: Receiver) -> str | None:
        """Why nothing could be sent there."""

    def send(self, receiver: Receiver, queued: QueuedNotification, transports: Transports
             ) -> DeliveryResult: ...

    def test(self, receiver: Receiver, actor: Actor, transports: Transports, waiting: int
             ) -> DeliveryResult: ...

    def beat(self, receiver: Receiver, transports: Transports, firing: int, waiting: int
             ) -> DeliveryResult:
        return DeliveryResult(False, "this channel has no heartbeat")

    def shown_to(self, receiver: Receiver) -> str:
        """`to` as people may see it."""
        return receiver.to

    def owners(self, alert: Alert) -> tuple[str, ...]:
        """Who gets a notification of their own; '' for one that is for nobody in particular."""
        return ("",)

    def reaches(self, owner: str, transports: Transports) -> bool:
        return True


def test_fields(receiver: Receiver, url: str) -> dict[str, Any]:
    return {"version": 1, "status": "test", "receiver": receiver.name, "url": f"{url}/alerts",
            "alerts": [], "text": f"{TEST}\n\nAll alerts: {url}/alerts"}
