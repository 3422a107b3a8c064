"""Mail to the owners of tasks: the only SMTP. In native threads, so that a slow server slows
nobody else; at least once, within limits."""

import logging
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

import gevent
from gevent.queue import Full, Queue

from gpudeck.errors import CommandError, ExitCode

from .addresses import Addresses
from .core.notices import Mail, Told, mail_of, unreached
from .settings import HubSettings

log = logging.getLogger("gpudeck.notify")

WITHIN_S = 20.0
WAITING_MOST = 1_000
AGAIN_AFTER_S = (5.0, 30.0, 120.0)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Smtp:
    host: str
    port: int
    sender: str
    tls: str  # starttls | tls | none
    user: str | None
    password: str | None

    @classmethod
    def of(cls, settings: HubSettings) -> "Smtp | None":
        if settings.smtp_host is None:
            return None
        if settings.smtp_from is None:
            raise CommandError("smtp_host is set, and smtp_from is not: say from which address "
                               "owners are written to", ExitCode.USAGE)
        if settings.smtp_user and settings.smtp_tls == "none" and (
                settings.smtp_host not in LOOPBACK):
            raise CommandError("the password for the mail server would travel in clear; set "
                               "smtp_tls to starttls or tls", ExitCode.USAGE)
        return cls(settings.smtp_host, settings.smtp_port, settings.smtp_from, settings.smtp_tls,
                   settings.smtp_user, settings.smtp_password)


def send(smtp: Smtp, mail: Mail) -> None:
    """Raises OSError or SMTPException, which is one."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = smtp.sender, mail.to, mail.subject
    message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="gpudeck.invalid")
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
    message.set_content(mail.text)
    context = ssl.create_default_context()
    server = (smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=WITHIN_S, context=context)
              if smtp.tls == "tls" else smtplib.SMTP(smtp.host, smtp.port, timeout=WITHIN_S))
    with server:
        if smtp.tls == "starttls":
            server.starttls(context=context)
        if smtp.user is not None:
            server.login(smtp.user, smtp.password or "")
        server.send_message(message)


def _try(smtp: Smtp, mail: Mail) -> str | None:
    """Why it was not sent: an exception that leaves a native thread would be printed."""
    try:
        send(smtp, mail)
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return None


class Notifier:
    def __init__(self, smtp: Smtp | None, addresses: Addresses, url: Callable[[], str],
                 note: Callable[[str, dict[str, Any]], None],
                 again_after_s: tuple[float, ...] = AGAIN_AFTER_S) -> None:
        self._smtp = smtp
        self._addresses = addresses
        self._url = url
        self._note = note
        self._again_after_s = again_after_s
        self._waiting: Queue[tuple[Mail, Told]] = Queue(WAITING_MOST)

    def unreached(self, owner: str | None) -> str | None:
        """For the preview: why this owner hears of it at terminals only."""
        return unreached(owner, self._smtp is not None, self._addresses.of(owner) is not None)

    def tell(self, owner: str | None, told: Told) -> bool:
        """Whether a mail is on its way. It waits for nothing."""
        to = self._addresses.of(owner)
        if self._smtp is None or to is None:
            return False
        try:
            self._waiting.put_nowait((mail_of(to, told, self._url()), told))
        except Full:
            self._outcome(to, told, "more mail is waiting than is kept")
            return False
        return True

    def run(self) -> None:
        while True:
            mail, told = self._waiting.get()
            gevent.spawn(self._deliver, mail, told)  # one that has to wait holds up no other

    def _deliver(self, mail: Mail, told: Told) -> None:
        assert self._smtp is not None
        why: str | None = None
        for wait_s in (0.0, *self._again_after_s):
            gevent.sleep(wait_s)
            why = gevent.get_hub().threadpool.apply(_try, (self._smtp, mail))
            if why is None:
                break
            log.warning("mail_not_sent reason=%r", why)
        self._outcome(mail.to, told, why)

    def _outcome(self, to: str, told: Told, why: str | None) -> None:
        ended = "was told by mail" if why is None else f"could not be told by mail: {why}"[:300]
        self._note("notice", {
            "action": told.action, "actor": told.by, "host": told.host, "task_id": told.task_id,
            "outcome": "done" if why is None else "failed", "sentence": f"{to} {ended}"})
