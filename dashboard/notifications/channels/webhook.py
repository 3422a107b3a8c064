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
    description = ("a URL, by a POST of JSON; its `text` is what Slack, Mattermost and their like "
                   "show")
    needs_mail = False

    def flaw(self, receiver: Receiver) -> str | None:
        return url_flaw(receiver.to)

    def shown_to(self, receiver: Receiver) -> str:
        return shown_url(receiver.to)

    def send(self, receiver: Receiver, queued: QueuedNotification, transports: Transports
             ) -> DeliveryResult:
        notification = queued.notice
        return transports.post(receiver, fields_of(notification, receiver), notification.id)

    def test(self, receiver: Receiver, actor: Actor, transports: Transports, waiting: int
             ) -> DeliveryResult:
        return transports.post(receiver, test_fields(receiver, transports.url()), "")


def fields_of(notification: AlertNotification, receiver: Receiver) -> dict[str, Any]:
    """`text` is what chats show."""
    found: dict[str, Any] = msgspec.to_builtins(notification)
    del found["words"]
    return {"version": 1, "status": "firing" if notification.firing else "resolved", **found,
            "receiver": receiver.name, "text": chat_text(notification)}
