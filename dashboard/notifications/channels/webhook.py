"""A POST of JSON to a URL, for programs."""

from typing import Any

import msgspec

from ...access.policy import Actor
from ..receivers import Receiver, is_chat_url, shown_url, url_flaw
from ..retry import QueuedNotification
from ..transports import DeliveryResult, Transports
from ..webhook import WebRequest
from ..words import AlertNotification, text
from .channel import Channel, test_fields


class WebhookChannel(Channel):
    kind = "webhook"
    title = "webhook: JSON to a URL, for programs"
    description = "a URL, by a POST of JSON: see [A webhook](#a-webhook)"
    destination = "url"

    def flaw(self) -> str | None:
        flaw = url_flaw(self.receiver.to)
        if flaw is None and self.kind == WebhookChannel.kind and is_chat_url(self.receiver.to):
            # Its text is not quoted as markup: in a chat, a name could mention everybody.
            return "this is an address of Slack or Mattermost: choose the kind slack"
        return flaw

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
        return self.build_request(fields_of(notification, self.receiver), token)

    def test_request(self, url: str, token: str) -> WebRequest:
        return self.build_request(test_fields(self.receiver, url), token)

    def build_request(self, body: Any, token: str) -> WebRequest:
        return WebRequest(self.receiver.to, body, f"Bearer {token}" if token else "")


def fields_of(notification: AlertNotification, receiver: Receiver) -> dict[str, Any]:
    """Return the fields for programs. `text` is plain text: what reads markup quotes it itself."""
    fields: dict[str, Any] = msgspec.to_builtins(notification)
    del fields["words"]
    return {"version": 1, "status": "firing" if notification.firing else "resolved", **fields,
            "receiver": receiver.name, "text": text(notification)}
