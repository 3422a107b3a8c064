"""A hub with the times of the product: what is over is known at every kind of receiver within 15 s,
in the past tense. It takes a minute and a half, because ten alerts at once would be one
notification."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from dashboard.notifications.channels.table import TABLE
from tests.fakes.smtp import MailSink
from tests.fakes.webhook import HttpSink
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess
from tests.integration.test_alerts import alerts, host_of, hot, new_teller, put
from tests.integration.test_notifications import receiver
from tests.patience import GIVE_UP_S

pytestmark = pytest.mark.soak
TIMES = 10
WITHIN_S = 15.0
APART_S = 2.0
TEMPLATE = '{"status": "{{status}}", "title": "{{title}}", "text": "{{text}}"}'
# Of each kind what a receiver of it has besides a URL.
MORE: dict[str, dict[str, Any]] = {
    "webhook": {}, "alertmanager": {}, "pagerduty": {"token": "R0"}, "jsm": {"token": "K"},
    "slack": {}, "teams": {}, "discord": {}, "ntfy": {}, "custom": {"template": TEMPLATE},
    "mail": {"to": "ops@example.org"}}


class Receivers:
    """A receiver of each kind, and what came to it."""

    def __init__(self, hub: HubProcess, sinks: dict[str, HttpSink], post: MailSink) -> None:
        self._sinks, self._post = sinks, post
        self._mailed_at: list[float] = []
        for kind, more in MORE.items():
            to = {} if kind == "mail" else {"to": f"{sinks[kind].url}/hook"}
            receiver(hub, kind=kind, name=kind, **to, **more)

    def note_mails(self) -> None:
        self._mailed_at += [time.time()] * (len(self._post.mails) - len(self._mailed_at))

    def came(self, kind: str) -> list[tuple[float, str]]:
        """Return when each message came, and all its words."""
        if kind == "mail":
            read = [message_from_string(mail[2], policy=default) for mail in self._post.mails]
            return [(at, f"{mail['Subject']}\n{mail.get_content()}")
                    for at, mail in zip(self._mailed_at, read, strict=False)]
        sink = self._sinks[kind]
        return [(at, json.dumps(body, ensure_ascii=False)) for at, body in zip(
            sink.times, sink.got, strict=False)]

    def about(self, kind: str, teller: Teller) -> list[tuple[float, str]]:
        return [message for message in self.came(kind) if host_of(teller) in message[1]]


@pytest.fixture(name="hub")
def _hub(tmp_path: Path, post: MailSink) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data", 0, "--smtp-host", "127.0.0.1", "--smtp-port",
                    str(post.port), "--smtp-from", "deck@example.org", "--smtp-tls", "none") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


@pytest.fixture(name="post")
def _post() -> Iterator[MailSink]:
    with MailSink() as sink:
        yield sink


def test_every_kind_of_receiver_is_in_it() -> None:
    assert MORE.keys() == {channel.kind for channel in TABLE} - {"owners", "heartbeat"}


def test_ten_of_ten_are_resolved_within_15_s_at_every_receiver(
    hub: HubProcess, post: MailSink
) -> None:
    with ExitStack() as stack:
        sinks = {kind: stack.enter_context(HttpSink()) for kind in MORE if kind != "mail"}
        receivers = Receivers(hub, sinks, post)
        rule = put(hub, hot(**{"for": "0s"}))
        tellers = [new_teller(hub, 1) for _ in range(TIMES)]

        def each_in_turn(margin_c: float, is_told: Callable[[], bool]) -> None:
            began, turn = time.monotonic(), 0
            while not (turn == TIMES and is_told()):
                if turn < TIMES and time.monotonic() - began >= turn * APART_S:
                    tellers[turn].slow[0]["temp_margin_c"] = margin_c
                    turn += 1
                for teller in tellers:
                    teller.tell()
                receivers.note_mails()
                assert time.monotonic() - began < GIVE_UP_S, {
                    kind: len(receivers.came(kind)) for kind in MORE}
                time.sleep(0.25)

        def all_came(count: int) -> Callable[[], bool]:
            return lambda: all(len(receivers.about(kind, teller)) >= count
                               for kind in MORE for teller in tellers)

        each_in_turn(1.0, all_came(1))
        each_in_turn(30.0, all_came(2))
        late: dict[str, list[float]] = {kind: [] for kind in MORE}
        for teller in tellers:
            [alert] = [row for row in alerts(hub, teller, "ended") if row["rule"] == rule]
            for kind in MORE:
                (_, first), (at, last) = receivers.about(kind, teller)
                assert "fires at" in first
                assert "fires at" not in last, (kind, last)
                assert kind == "jsm" or "fired at" in last, (kind, last)
                late[kind].append(at - alert["ended_at"])
    print("\n" + "\n".join(f"{kind:13} {' '.join(f'{delay:5.1f}' for delay in delays)} s"
                           for kind, delays in late.items()))
    assert all(delay <= WITHIN_S for delays in late.values() for delay in delays), late
