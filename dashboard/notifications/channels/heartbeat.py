"""A dead-man's switch: a POST every minute, for as long as the hub evaluates its rules."""

import time

from ...access.policy import Actor
from ...alerts.core.firing_alerts import Alert
from ..transports import DeliveryResult, Transports
from .webhook import WebhookChannel


class HeartbeatChannel(WebhookChannel):
    kind = "heartbeat"
    title = "heartbeat: to a URL every minute, a dead-man's switch"
    description = ("a URL, every minute, while the hub evaluates its rules: a dead-man's switch")
    wants_words = "every minute"
    beat_every_s = 60.0

    def owners(self, alert: Alert) -> tuple[str, ...]:
        return ()

    def test(self, actor: Actor, transports: Transports, waiting: int) -> DeliveryResult:
        return self.send_heartbeat(transports, 0, waiting)

    def send_heartbeat(self, transports: Transports, firing: int, waiting: int) -> DeliveryResult:
        """Send a heartbeat. It is neither stored nor repeated: its absence is the message."""
        return transports.post(self.receiver, lambda token: self.build_request({
            "version": 1, "status": "alive", "at": time.time(), "firing": firing,
            "waiting": waiting, "url": transports.url(),
            "text": "gpudeck evaluates its rules. When these messages stop, it does not.",
        }, token), "")
