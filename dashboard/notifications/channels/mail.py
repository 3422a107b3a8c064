"""Mail to the addresses of a receiver."""

from ...access.policy import Actor
from ..owner_words import MailMessage
from ..receivers import Receiver, mail_flaw
from ..retry import QueuedNotification
from ..transports import NO_MAIL, DeliveryResult, Transports
from ..words import mail
from .channel import Channel, test_fields


class MailChannel(Channel):
    kind = "mail"
    description = "the addresses that are named, up to 20"
    needs_mail = True

    def flaw(self, receiver: Receiver) -> str | None:
        if receiver.token or receiver.token_file:
            return "only what is sent to a URL carries a token"
        return mail_flaw(receiver.addresses)

    def send(self, receiver: Receiver, queued: QueuedNotification, transports: Transports
             ) -> DeliveryResult:
        if not transports.has_mail:
            return DeliveryResult(False, NO_MAIL, queued.left)
        return transports.mail(mail(queued.notice, ", ".join(queued.left or receiver.addresses)))

    def test(self, receiver: Receiver, actor: Actor, transports: Transports, waiting: int
             ) -> DeliveryResult:
        return send_test(receiver, ", ".join(receiver.addresses), transports)


def send_test(receiver: Receiver, to: str, transports: Transports) -> DeliveryResult:
    text = str(test_fields(receiver, transports.url())["text"])
    found = transports.mail(MailMessage(to, "[gpudeck] A test: nothing fires", text + "\n"))
    return DeliveryResult(found.is_taken, found.words or f"the mail server took it, to {to}")
