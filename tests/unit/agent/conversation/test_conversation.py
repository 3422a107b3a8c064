"""Turns of the conversation: which messages reach a handler, and when the node calls again."""

from types import SimpleNamespace
from typing import Any, get_args

import pytest

from agent.capability import Handler
from agent.conversation.conversation import BEFORE_LIVE, HubConversation, UnknownMessageLog
from agent.link.socket import ConnectionOpened, LinkEvent, MessageReceived
from gpudeck.contract import wire
from tests.unit.agent.link.test_protocol import BEAT, CHALLENGE, Backlog, new_link

WELCOME = wire.Welcome(1, "hub", 1, 0.0, 0)


class Link:
    """Link whose events the test puts."""

    def __init__(self) -> None:
        self.url, self.acks_wake = "https://hub", True
        self.coming: list[LinkEvent] = []
        self.dials = 0

    def events(self) -> list[LinkEvent]:
        events, self.coming = self.coming, []
        return events

    def dial(self) -> None:
        self.dials += 1

    def say(self, body: bytes) -> None:
        """Do nothing: what is sent is tested with the state machine."""

    def hang_up(self) -> None:
        """Do nothing: nothing is open."""


class Bench:
    def __init__(self) -> None:
        self.link, self.machine, self.welcomes = Link(), new_link(Backlog()), 0
        self.messages: list[wire.FromHub] = []
        self.latest = SimpleNamespace(state=SimpleNamespace(reader="starting"), driver_version=None)
        handlers: dict[type, Handler] = {
            message_type: lambda message, now: self.messages.append(message)
            for message_type in get_args(wire.FromHub)}
        core: Any = SimpleNamespace(host="host", outbox=SimpleNamespace(
            pending=0, dropped=0, drop_event=lambda now, at: None))
        link: Any = self.link
        latest: Any = self.latest
        self.conversation = HubConversation(
            core, link, self.machine, handlers | dict.fromkeys(BEFORE_LIVE, self.advance),
            UnknownMessageLog(), latest, lambda: BEAT, self.count_welcome, None)
        self.machine.hold_until(0.0)

    def advance(self, message: wire.FromHub, now: float) -> None:
        self.machine.receive(message, now, 0.0)

    def count_welcome(self) -> None:
        self.welcomes += 1

    def turn(self, now: float, *messages: wire.FromHub) -> None:
        self.link.coming += map(MessageReceived, messages)
        self.conversation.receive(now)
        self.conversation.step(now)
        self.conversation.end_turn(now)

    def connect(self, now: float) -> None:
        self.turn(now)
        self.link.coming.append(ConnectionOpened())
        self.turn(now, CHALLENGE, WELCOME)
        assert self.conversation.is_live


@pytest.fixture
def bench() -> Bench:
    return Bench()


PROBE, TIME = wire.Probe(1, 0.0), wire.Time(1, 0.0)


def test_nothing_reaches_a_capability_before_the_hub_has_proved_itself(bench: Bench) -> None:
    bench.turn(0.0)
    bench.link.coming.append(ConnectionOpened())
    bench.turn(0.0, TIME, PROBE)
    bench.turn(0.0, CHALLENGE, TIME)
    assert bench.messages == []
    bench.turn(0.0, WELCOME, TIME)
    assert bench.messages == [TIME]


def test_each_connection_is_welcomed_once(bench: Bench) -> None:
    bench.connect(0.0)
    assert bench.welcomes == 1
    bench.turn(0.1, WELCOME)
    assert bench.welcomes == 1


def test_another_driver_version_makes_it_connect_again(bench: Bench) -> None:
    bench.connect(0.0)
    bench.latest.driver_version = "570.1"
    bench.turn(1.0)
    assert not bench.conversation.is_live
    bench.turn(1.1)
    assert bench.link.dials == 2


def test_it_calls_as_soon_as_the_first_reading_is_there(bench: Bench) -> None:
    bench.machine.hold_until(60.0)
    bench.turn(1.0)
    assert bench.link.dials == 0
    bench.latest.state.reader = "ok"
    bench.turn(1.1)
    assert bench.link.dials == 1


def test_an_unknown_type_is_logged_once_until_the_next_connection(
        bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    unknown = UnknownMessageLog()
    for _ in range(3):
        unknown.log_newer(wire.UnknownMessage("later"), 0.0)
    assert len(caplog.records) == 1
    unknown.clear()
    unknown.log_newer(wire.UnknownMessage("later"), 0.0)
    assert len(caplog.records) == 2
