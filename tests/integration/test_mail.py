"""Mail to owners, over a real connection to a mail server."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

import gevent
import pytest

from dashboard.actions.standing_store import StandingStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.notifications.addresses import OwnerAddresses, address_flaw
from dashboard.notifications.mail import SmtpSettings
from dashboard.notifications.owner_mail import OwnerMailer
from dashboard.notifications.owner_words import OwnerActionNotification
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.runner import Loop, Runner
from dashboard.settings import hub_settings
from dashboard.state import HubState
from gpudeck.errors import CommandError
from tests.fakes.smtp import MailSink
from tests.patience import GIVE_UP_S


class Post:
    """A notifier with its surroundings, in this process."""

    def __init__(self, folder: Path, sink: MailSink, **smtp: Any) -> None:
        folder.chmod(0o700)
        self.state = HubState.open(folder)
        self.audit = AuditRecorder(self.state.store(AuditStore), None, Dispatcher())
        self.addresses = OwnerAddresses(self.state.store(StandingStore), self.audit)
        self.notifier = OwnerMailer(
            SmtpSettings("127.0.0.1", sink.port, "gpudeck@example.org", "none", None, None),
            self.addresses, lambda: "https://deck.example.org", self.audit.note, (0.05, 0.05))
        loop = Loop("owner mail", self.notifier.step, 1.0, self.notifier.wake)
        [self._running] = Runner([loop], lambda: None).start()

    def kinds(self) -> list[str]:
        return [link.body for link in self.state.store(AuditStore).links()
                if '"notice"' in link.body]

    def close(self) -> None:
        self._running.kill()
        self.state.close()


@pytest.fixture(name="post")
def _post(tmp_path: Path) -> Iterator[Callable[..., tuple[Post, MailSink]]]:
    with ExitStack() as stack:
        def start_post(refuses: int = 0) -> tuple[Post, MailSink]:
            sink = stack.enter_context(MailSink(refuses))
            post = Post(tmp_path, sink)
            stack.callback(post.close)
            return post, sink
        yield start_post


def soon(what: Callable[[], Any], within_s: float = GIVE_UP_S) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline
        gevent.sleep(0.02)


def notification(**fields: Any) -> OwnerActionNotification:
    usual = OwnerActionNotification("end", "n1", "boot-1:1:1", "python train.py", "carol", "idle",
                                    grace_s=30.0)
    return replace(usual, **fields)


def parsed(mail: tuple[str, str, str]) -> Message:
    return message_from_string(mail[2])


def test_the_owner_hears_who_why_and_what_now(post: Any) -> None:
    one, sink = post()
    reason = f"idle since {secrets.token_hex(4)}"
    one.state.store(StandingStore).put_address("alice", "alice@example.org")
    assert one.notifier.unreached("alice") is None
    assert one.notifier.send("alice", notification(reason=reason))
    soon(lambda: sink.mails and one.kinds())
    mail = parsed(sink.mails[0])
    assert "<alice@example.org>" in sink.mails[0][1]
    assert mail["To"] == "alice@example.org"
    assert mail["Subject"] == "[gpudeck] Your task on n1 is being ended"
    text = str(mail.get_payload())
    for word in (reason, "carol", "python train.py", "boot-1:1:1", "within 30 s"):
        assert word in text
    assert len(sink.mails) == 1
    assert '"outcome":"done"' in one.kinds()[0]


def test_who_has_no_address_is_not_written_to_and_the_preview_says_so(post: Any) -> None:
    one, sink = post()
    one.state.store(StandingStore).put_address("alice", "alice@example.org")
    assert not one.notifier.send("bob", notification())
    assert not one.notifier.send(None, notification())
    assert "no address of bob" in str(one.notifier.unreached("bob"))
    assert "is unknown" in str(one.notifier.unreached(None))
    without = OwnerMailer(None, one.addresses, str, one.audit.note)
    assert "smtp_host" in str(without.unreached("alice"))
    assert not without.send("alice", notification())
    assert one.notifier.send("alice", notification())  # the control: mail does come here
    soon(lambda: sink.mails)
    assert len(sink.mails) == 1


def test_a_server_that_is_busy_is_asked_again(post: Any) -> None:
    one, sink = post(refuses=2)
    one.state.store(StandingStore).put_address("alice", "alice@example.org")
    one.notifier.send("alice", notification())
    soon(lambda: sink.mails)
    assert sink.refusals == 2


def test_what_cannot_be_sent_is_recorded(post: Any) -> None:
    one, sink = post(refuses=100)
    one.state.store(StandingStore).put_address("alice", "alice@example.org")
    one.notifier.send("alice", notification())
    soon(one.kinds)
    assert '"outcome":"failed"' in one.kinds()[0]
    assert sink.mails == []


def test_text_from_nodes_adds_no_header_and_no_line(post: Any) -> None:
    one, sink = post()
    one.state.store(StandingStore).put_address("alice", "alice@example.org")
    one.notifier.send("alice", notification(host="n1\r\nBcc: eve@example.org",
                                            command="x\r\n.\r\nMAIL FROM:<eve@example.org>"))
    soon(lambda: sink.mails)
    mail = parsed(sink.mails[0])
    assert mail["Bcc"] is None
    assert len(sink.mails) == 1
    assert "\n.\n" not in str(mail.get_payload()).replace("\r", "")


@pytest.mark.parametrize("address", [
    "alice", "alice@", "a b@example.org", "alice@example.org\nBcc: x@y", "<alice@example.org>",
    "alice@example.org, bob@example.org", "a" * 65 + "@example.org"])
def test_what_is_no_address_is_not_taken(address: str) -> None:
    assert address_flaw("alice", address) is not None
    assert address_flaw("alice", "alice@example.org") is None


def test_a_password_does_not_travel_in_clear(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("x\n")
    env = {"GPUDECK_SMTP_PASSWORD_FILE": str(secret)}
    flags = ["--smtp-host", "mail.example.org", "--smtp-from", "a@b.org", "--smtp-user", "u"]
    settings = hub_settings([*flags, "--smtp-tls", "none"], env)
    with pytest.raises(CommandError, match="in clear"):
        SmtpSettings.of(settings)
    smtp = SmtpSettings.of(hub_settings(flags, env))
    assert smtp is not None
    assert (smtp.password, smtp.tls) == ("x", "starttls")
    with pytest.raises(CommandError, match="smtp_from"):
        SmtpSettings.of(hub_settings(flags[:2], env))
