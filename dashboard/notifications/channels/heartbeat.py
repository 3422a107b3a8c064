"""A dead-man's switch: a POST every minute, for as long as the hub watches its rules."""

import time

from ...access.policy import Actor
from ...alerts.core.firing_alerts import Alert
from ..receivers import Receiver
from ..transports import DeliveryResult, Transports
from .webhook import WebhookChannel


class HeartbeatChannel(WebhookChannel):
    kind = "heartbeat"
    description = ("a URL, every minute, for as long as the hub watches its rules: a dead-man's "
                   "switch")
    beat_every_s: float | None = 60.0

    def owners(self, alert: Alert) -> tuple[str, ...]:
        return ()

    def test(self, receiver: Receiver, actor: Actor, transports: Transports, waiting: int
             ) -> DeliveryResult:
        return self.beat(receiver, transports, 0, waiting)

    def beat(self, receiver: Receiver, transports: Transports, firing: int, waiting: int
             ) -> DeliveryResult:
        """Neither kept nor repeated: that it does not come is what it says."""
        return transports.post(receiver, {
            "version": 1, "status": "alive", "at": time.time(), "firing": firing,
            "waiting": waiting, "url": transports.url(),
            "text": "gpudeck watches its rules. When this stops coming, it does not."}, "")
