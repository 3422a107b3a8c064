"""Mail: the only SMTP. It waits for a server, and so it runs in native threads."""

import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from gpudeck.errors import CommandError, ExitCode

from ..settings import HubSettings
from .owner_words import MailMessage

WITHIN_S = 20.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class SmtpSettings:
    host: str
    port: int
    sender: str
    tls: str  # starttls | tls | none
    user: str | None
    password: str | None

    @classmethod
    def of(cls, settings: HubSettings) -> "SmtpSettings | None":
        if settings.smtp_host is None:
            return None
        if settings.smtp_from is None:
            raise CommandError("smtp_host is set, and smtp_from is not: set the sender's "
                               "address", ExitCode.USAGE)
        if settings.smtp_user and settings.smtp_tls == "none" and (
                settings.smtp_host not in LOOPBACK):
            raise CommandError("the password for the mail server would travel in clear; set "
                               "smtp_tls to starttls or tls", ExitCode.USAGE)
        return cls(settings.smtp_host, settings.smtp_port, settings.smtp_from, settings.smtp_tls,
                   settings.smtp_user, settings.smtp_password)


def send(smtp: SmtpSettings, mail: MailMessage) -> tuple[str, ...]:
    """Send a mail, and return which of its addresses were refused. Raises OSError, which
    SMTPException is, if all were."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = smtp.sender, mail.to, mail.subject
    message["Date"] = formatdate()
    for name, value in mail.headers or (("Message-ID", make_msgid(domain="gpudeck.invalid")),):
        message[name] = value  # raises on a line end
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
    message.set_content(mail.text)
    context = ssl.create_default_context()
    server = (smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=WITHIN_S, context=context)
              if smtp.tls == "tls" else smtplib.SMTP(smtp.host, smtp.port, timeout=WITHIN_S))
    try:
        if smtp.tls == "starttls":
            server.starttls(context=context)
        if smtp.user is not None:
            server.login(smtp.user, smtp.password or "")
        rejected = tuple(server.send_message(message))
        with suppress(OSError):  # the mail is accepted even if QUIT fails
            server.quit()
        return rejected
    finally:
        server.close()


def attempt(smtp: SmtpSettings, mail: MailMessage) -> tuple[tuple[str, ...], str | None]:
    """Try to send a mail, and return the addresses to retry, with the reason. Errors are returned,
    as an exception that leaves a native thread would be printed."""
    everyone = tuple(part.strip() for part in mail.to.split(","))
    try:
        rejected = send(smtp, mail)
    except (OSError, ValueError) as error:
        return everyone, f"mail server {smtp.host}:{smtp.port}: {_plain(error)}"[:300]
    return rejected, f"the mail server refuses {', '.join(rejected)}" if rejected else None


def _plain(error: Exception) -> str:
    """Return the reason, with a remedy where one is known. SMTPException and SSLError are
    OSErrors."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return "it speaks no TLS from the first byte; set smtp_tls to starttls, or its port"
        case smtplib.SMTPNotSupportedError() if "STARTTLS" in str(error):
            return "it offers no STARTTLS; set smtp_tls to tls, or to none on a trusted network"
        case smtplib.SMTPNotSupportedError() if "AUTH" in str(error):
            return "it does not support signing in; remove smtp_user, or use its other port"
        case smtplib.SMTPAuthenticationError():
            return f"it rejects the user or password (it answered {error.smtp_code})"
        case smtplib.SMTPRecipientsRefused():
            return "it refuses " + ", ".join(
                f"{to} ({code} {_text(reply)})" for to, (code, reply) in error.recipients.items())
        case smtplib.SMTPResponseException():
            return f"it says {error.smtp_code} {_text(error.smtp_error)}"
        case TimeoutError():
            return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _text(reply: bytes | str) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else reply
