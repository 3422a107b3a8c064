"""Mail over TLS, to a real mail server with certificates made here: what is wrong with one is said,
and neither a mail nor a password leaves."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from dashboard.notifications.mail import SmtpSettings, attempt
from dashboard.notifications.owner_words import MailMessage
from tests.fakes.certificates import Authority, Pair
from tests.fakes.smtp import MailSink
from tests.fakes.smtp_tls import TlsMailSink

Way = Literal["starttls", "tls"]
WAYS: tuple[Way, ...] = ("starttls", "tls")


@pytest.fixture(name="authority")
def _authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Trusted, as docs/notifications.md says how."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


def smtp(port: int, tls: str, user: str | None = None, password: str | None = None) -> SmtpSettings:
    return SmtpSettings("127.0.0.1", port, "deck@example.org", tls, user, password)


def letter() -> MailMessage:
    return MailMessage("ops@example.org", "[gpudeck] Hot", f"Look at {secrets.token_hex(6)}.")


@pytest.mark.parametrize("way", WAYS)
def test_mail_and_password_travel_over_tls(authority: Authority, way: Way) -> None:
    password, one = secrets.token_urlsafe(9), letter()
    with TlsMailSink(authority.issue("mail"), way, "deck", password) as sink:
        assert attempt(smtp(sink.port, way, "deck", password), one) == ((), None)
    [(to, text, is_secret)] = sink.mails
    assert (to, is_secret) == (["ops@example.org"], True)
    assert one.text in text
    assert sink.logins == [("deck", True)]


FLAWS: dict[str, tuple[Callable[[Authority], Pair], str]] = {
    "nobody's": (lambda authority: authority.self_signed("mail"), "self-signed certificate"),
    "old": (lambda authority: authority.issue("mail", -9, -2), "expired"),
    "another's": (lambda authority: authority.issue("mail", host="mail.example.org"),
                  "not valid for '127.0.0.1'"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_wrong_certificate_is_refused_and_named(authority: Authority, way: Way, flaw: str
                                                  ) -> None:
    make, words = FLAWS[flaw]
    with TlsMailSink(make(authority), way, "deck", "secret") as sink:
        unsent, why = attempt(smtp(sink.port, way, "deck", "secret"), letter())
    assert unsent == ("ops@example.org",)
    assert why is not None
    assert f"127.0.0.1:{sink.port}" in why
    assert "certificate" in why
    assert words in why
    assert "_ssl.c" not in why
    assert (sink.mails, sink.logins) == ([], [])


def test_who_takes_the_offer_of_tls_away_hears_nothing(authority: Authority) -> None:
    with MailSink() as sink:  # it knows no STARTTLS
        unsent, why = attempt(smtp(sink.port, "starttls", "deck", "secret"), letter())
    assert unsent
    assert "offers no STARTTLS" in str(why)
    assert "smtp_tls" in str(why)
    assert sink.mails == []


def test_tls_at_once_where_it_comes_later(authority: Authority) -> None:
    with TlsMailSink(authority.issue("mail"), "starttls") as sink:
        _, why = attempt(smtp(sink.port, "tls"), letter())
    assert "no TLS from the first byte" in str(why)
    assert sink.mails == []


def test_a_wrong_password_and_nobody_there_are_said_in_words(authority: Authority) -> None:
    with TlsMailSink(authority.issue("mail"), "starttls", "deck", "right") as sink:
        _, why = attempt(smtp(sink.port, "starttls", "deck", "wrong"), letter())
        assert "rejects the user or password" in str(why)
        assert "wrong" not in str(why)
        assert sink.mails == []
    with MailSink() as plain:
        _, why = attempt(smtp(plain.port, "none", "deck", "right"), letter())
        assert "does not support signing in" in str(why)
        assert plain.mails == []
    _, why = attempt(smtp(sink.port, "starttls"), letter())
    assert f"127.0.0.1:{sink.port}" in str(why)
    assert "refused" in str(why)
