"""A POST of JSON to a URL, for chats and programs."""

from typing import Any

import msgspec

from ...access.policy import Actor
from ..receivers import Receiver, shown_url, url_flaw
from ..retry import QueuedNotification
from ..transports import DeliveryResult, Transports
from ..webhook import WebRequest
from ..words import AlertNotification, chat_text, text
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
        return transports.post(self.receiver,
                               lambda token: self.request(queued.notice, token),
                               queued.notice.id)

    def test(self, actor: Actor, transports: Transports, waiting: int) -> DeliveryResult:
        return transports.post(self.receiver,
                               lambda token: self.test_request(transports.url(), token), "")

    def request(self, notification: AlertNotification, token: str) -> WebRequest:
        return self.posted(fields_of(notification, self.receiver), token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self.posted(test_fields(self.receiver, url), token)

    def posted(self, body: Any, token: str) -> WebRequest:
        return WebRequest(self.receiver.to, body, f"Bearer {token}" if token else "")


def fields_of(notification: AlertNotification, receiver: Receiver) -> dict[str, Any]:
    """`text` is what chats show, `plain` the same for who reads no markup."""
    found: dict[str, Any] = msgspec.to_builtins(notification)
    del found["words"]
    return {"version": 1, "status": "firing" if notification.firing else "resolved", **found,
            "receiver": receiver.name, "text": chat_text(notification),
            "plain": text(notification)}
