"""A POST of JSON to a URL, for chats and programs."""

from typing import Any

import msgspec

from ...access.policy import Actor
from ..receivers import Receiver, shown_url, url_flaw
from ..retry import QueuedNotification
from ..transports import DeliveryResult, Transports
from ..words import AlertNotification, chat_text
from .channel import Channel, test_fields


class WebhookChannel(Channel):
    kind = "webhook"
    title = "webhook: JSON to a URL, for chats and programs"
    description = ("a URL, by a POST of JSON; its `text` is what Slack, Mattermost and their like "
                   "show")
    destination = "url"

    def flaw(self) -> str | None:
        return url_flaw(self.receiver.to)

    def shown_to(self) -> str:
        return shown_url(self.receiver.to)

    def send(self, queued: QueuedNotification, transports: Transports) -> DeliveryResult:
        fields = fields_of(queued.notice, self.receiver)
        return transports.post(self.receiver, fields, queued.notice.id)

    def test(self, actor: Actor, transports: Transports, waiting: int) -> DeliveryResult:
        return transports.post(self.receiver, test_fields(self.receiver, transports.url()), "")


def fields_of(notification: AlertNotification, receiver: Receiver) -> dict[str, Any]:
    """`text` is what chats show."""
    found: dict[str, Any] = msgspec.to_builtins(notification)
    del found["words"]
    return {"version": 1, "status": "firing" if notification.firing else "resolved", **found,
            "receiver": receiver.name, "text": chat_text(notification)}
