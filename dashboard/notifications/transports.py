"""HTTP and SMTP as the channels use them: in native threads, so that a slow server slows nobody."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gevent.threadpool import ThreadPool

from ..trusted_networks import NetworkSet
from . import mail, webhook
from .addresses import OwnerAddresses
from .mail import SmtpSettings
from .owner_words import MailMessage
from .receivers import MAX_RECEIVERS, Receiver

SECRETS = "secrets"
NO_MAIL = "no mail server is set up (setting smtp_host)"


class DeliveryResult(NamedTuple):
    is_taken: bool
    words: str
    left: tuple[str, ...] = ()  # of several addresses, those that have not taken it


@dataclass(frozen=True, slots=True)
class Transports:
    smtp: SmtpSettings | None
    addresses: OwnerAddresses
    folder: Path  # of the hub's data
    url: Callable[[], str]  # of the hub
    inside: NetworkSet  # the networks of the site that webhooks may reach
    # One thread for each receiver, and one for tests.
    pool: ThreadPool = field(default_factory=lambda: ThreadPool(MAX_RECEIVERS + 1))

    @property
    def has_mail(self) -> bool:
        return self.smtp is not None

    def post(self, receiver: Receiver, fields: Any, notification_id: str) -> DeliveryResult:
        token = receiver.token
        if receiver.token_file:
            try:
                token = (self.folder / SECRETS / receiver.token_file).read_text().strip()
            except (OSError, ValueError):
                return DeliveryResult(
                    False, f"the token's file {receiver.token_file} cannot be read in the "
                    f"folder {SECRETS} of the hub's data folder")
            if not token.isascii() or not token.isprintable() or " " in token:
                return DeliveryResult(False, f"{receiver.token_file} has no token")
        return DeliveryResult(*self.pool.apply(
            webhook.trial, (receiver.to, fields, token, notification_id, self.inside)))

    def mail(self, message: MailMessage, left: tuple[str, ...] = ()) -> DeliveryResult:
        """`left`: of its addresses, if nothing can be tried."""
        if self.smtp is None:
            return DeliveryResult(False, NO_MAIL, left)
        left, why = self.pool.apply(mail.attempt, (self.smtp, message))
        return DeliveryResult(why is None, why or "", left)
