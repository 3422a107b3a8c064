"""Mail to the addresses of a receiver."""

from ...access.policy import Actor
from ...alerts.core.firing_alerts import Alert
from ..owner_words import MailMessage
from ..receivers import Receiver, mail_flaw
from ..retry import QueuedNotification
from ..transports import NO_MAIL, DeliveryResult, Transports
from ..words import mail
from .channel import test_fields


class MailChannel:
    kind = "mail"
    description = "the addresses that are named, up to 20"
    needs_mail = True
    beat_every_s: float | None = None

    def flaw(self, receiver: Receiver) -> str | None:
        if receiver.token or receiver.token_file:
            return "only what is sent to a URL carries a token"
        return mail_flaw(receiver.addresses)

    def shown_to(self, receiver: Receiver) -> str:
        return receiver.to

    def owners(self, alert: Alert) -> tuple[str, ...]:
        return ("",)

    def reaches(self, owner: str, transports: Transports) -> bool:
        return True

    def send(self, receiver: Receiver, queued: QueuedNotification, transports: Transports
             ) -> DeliveryResult:
        if not transports.has_mail:
            return DeliveryResult(False, NO_MAIL, queued.left)
        return transports.mail(mail(queued.notice, ", ".join(queued.left or receiver.addresses)))

    def test(self, receiver: Receiver, actor: Actor, transports: Transports, waiting: int
             ) -> DeliveryResult:
        return send_test(receiver, ", ".join(receiver.addresses), transports)

    def beat(self, receiver: Receiver, transports: Transports, firing: int, waiting: int
             ) -> DeliveryResult:
        raise NotImplementedError


def send_test(receiver: Receiver, to: str, transports: Transports) -> DeliveryResult:
    text = str(test_fields(receiver, transports.url())["text"])
    found = transports.mail(MailMessage(to, "[gpudeck] A test: nothing fires", text + "\n"))
    return DeliveryResult(found.is_taken, found.words or f"the mail server took it, to {to}")
