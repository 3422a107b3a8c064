"""Mail to the addresses of a receiver."""

from typing import ClassVar

from ...access.policy import Actor
from ..owner_words import MailMessage
from ..receivers import Receiver, mail_flaw
from ..retry import QueuedNotification
from ..transports import DeliveryResult, Transports
from ..words import mail
from .channel import Channel, Destination, test_fields


class MailChannel(Channel):
    kind = "mail"
    title = "mail: to addresses"
    description = "these addresses, up to 20"
    destination: ClassVar[Destination] = "addresses"
    needs_mail = True

    def flaw(self) -> str | None:
        if self.receiver.token or self.receiver.token_file:
            return "only what is sent to a URL carries a token"
        return mail_flaw(self.receiver.addresses)

    def send(self, queued: QueuedNotification, transports: Transports) -> DeliveryResult:
        to = ", ".join(queued.left or self.receiver.addresses)
        return transports.mail(mail(queued.notice, to), queued.left)

    def test(self, actor: Actor, transports: Transports, waiting: int) -> DeliveryResult:
        return send_test(self.receiver, ", ".join(self.receiver.addresses), transports)


def send_test(receiver: Receiver, to: str, transports: Transports) -> DeliveryResult:
    text = str(test_fields(receiver, transports.url())["text"])
    result = transports.mail(MailMessage(to, "[gpudeck] Test: no alert is firing", text + "\n"))
    return DeliveryResult(result.is_taken, result.words or f"accepted by the mail server, to {to}")
