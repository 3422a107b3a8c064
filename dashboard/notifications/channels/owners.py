"""Mail to the owners of the tasks on what fires, each at the address of their Unix name."""

from ...access.policy import Actor
from ...alerts.core.firing_alerts import Alert
from ..retry import QueuedNotification
from ..transports import NO_MAIL, DeliveryResult, Transports
from ..words import mail
from .mail import MailChannel, send_test


class OwnersChannel(MailChannel):
    kind = "owners"
    title = "owners: mail to task owners"
    description = ("the owners of tasks on firing targets, each about their own tasks, at the "
                   "address of their Unix name (Settings, Addresses)")
    destination = "none"
    to_words = "owners of affected tasks"

    def flaw(self) -> str | None:
        if self.receiver.token or self.receiver.token_file:
            return super().flaw()
        return "owners' addresses come from the table of addresses: leave `to` empty" if (
            self.receiver.to) else None

    def owners(self, alert: Alert) -> tuple[str, ...]:
        return alert.target.users

    def reaches(self, owner: str, transports: Transports) -> bool:
        return transports.addresses.of(owner) is not None

    def send(self, queued: QueuedNotification, transports: Transports) -> DeliveryResult:
        owner = queued.notice.owner
        if not transports.has_mail:
            return DeliveryResult(False, NO_MAIL, queued.left)
        to = transports.addresses.of(owner)
        if not to:
            return DeliveryResult(False, f"no address of {owner} is known any more")
        return transports.mail(mail(queued.notice, to))._replace(unsent=())

    def test(self, actor: Actor, transports: Transports, waiting: int) -> DeliveryResult:
        if not transports.has_mail:
            return DeliveryResult(False, NO_MAIL)
        own = (transports.addresses.of(name) for name in actor.scope.unix_names)
        to = next((address for address in own if address is not None), "")
        if not to:
            return DeliveryResult(
                False, "the test would be sent to you, but no address of your Unix name is "
                "known: add the name to your Unix names, and its address")
        return send_test(self.receiver, to, transports)
