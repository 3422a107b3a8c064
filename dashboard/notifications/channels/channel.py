"""A channel: one kind of receiver. Its file has everything particular to it; its row in table.py
makes it known to the API, the Settings page, the store and the docs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ...access.policy import Actor
from ...alerts.core.firing_alerts import Alert
from ..receivers import Receiver
from ..retry import QueuedNotification
from ..transports import DeliveryResult, Transports

TEST = "This is a test of gpudeck: no alert is firing, and notifications arrive here."
Destination = Literal["url", "addresses", "none"]


@dataclass(frozen=True)
class Channel(ABC):
    """A channel. `title` is what the Settings page offers, `description` the row of
    docs/notifications.md. `destination`: what `to` of a receiver holds. `to_words`, `wants_words`: shown
    on the page instead of its destination and of the alerts that it wants."""

    receiver: Receiver
    kind: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    destination: ClassVar[Destination]
    needs_mail: ClassVar[bool] = False
    has_template: ClassVar[bool] = False
    to_words: ClassVar[str] = ""
    wants_words: ClassVar[str] = ""
    beat_every_s: ClassVar[float | None] = None  # None: it has no heartbeat

    @abstractmethod
    def flaw(self) -> str | None:
        """Return why nothing could be sent there, or None."""

    @abstractmethod
    def send(self, queued: QueuedNotification, transports: Transports) -> DeliveryResult: ...

    @abstractmethod
    def test(self, actor: Actor, transports: Transports, waiting: int) -> DeliveryResult: ...

    def send_heartbeat(self, transports: Transports, firing: int, waiting: int) -> DeliveryResult:
        return DeliveryResult(False, "this channel has no heartbeat")

    def shown_to(self) -> str:
        """Return `to` as people may see it."""
        return self.receiver.to

    def owners(self, alert: Alert) -> tuple[str, ...]:
        """Return the owners who get a notification each; '' for one to nobody in particular."""
        return ("",)

    def reaches(self, owner: str, transports: Transports) -> bool:
        return True


def test_fields(receiver: Receiver, url: str) -> dict[str, Any]:
    return {"version": 1, "status": "test", "receiver": receiver.name, "url": f"{url}/alerts",
            "alerts": [], "text": f"{TEST}\n\nAll alerts: {url}/alerts"}
