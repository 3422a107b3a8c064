"""HTTP and SMTP for the channels: in native threads, so that a slow server delays nobody."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gevent.threadpool import ThreadPool

from ..trusted_networks import NetworkSet
from . import mail, webhook
from .addresses import OwnerAddresses
from .mail import SmtpSettings
from .owner_words import MailMessage
from .receivers import MAX_RECEIVERS, Receiver
from .webhook import WebRequest

SECRETS = "secrets"
NO_MAIL = "no mail server is set up (setting smtp_host)"


class DeliveryResult(NamedTuple):
    is_taken: bool
    words: str
    unsent: tuple[str, ...] = ()  # of several addresses, those that have not accepted it
    is_final: bool = False  # the same would be refused again
    retry_s: float | None = None  # the receiver asks to wait that long


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

    def post(self, receiver: Receiver, request: Callable[[str], WebRequest],
             notification_id: str) -> DeliveryResult:
        """Post to a receiver. `request` makes the request from the receiver's token."""
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
        answer = self.pool.apply(webhook.trial, (request(token), notification_id, self.inside))
        return DeliveryResult(answer.is_taken, answer.words, (), answer.is_final, answer.retry_s)

    def mail(self, message: MailMessage, unsent: tuple[str, ...] = ()) -> DeliveryResult:
        """Send a mail. `unsent`: the addresses that remain if there is no mail server."""
        if self.smtp is None:
            return DeliveryResult(False, NO_MAIL, unsent)
        unsent, why = self.pool.apply(mail.attempt, (self.smtp, message))
        return DeliveryResult(why is None, why or "", unsent)
