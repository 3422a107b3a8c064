"""What every Bus does."""

import random

import pytest

from dashboard.runtime.bus import Bus, InProcessBus


@pytest.fixture(name="bus", params=[InProcessBus])
def _bus(request: pytest.FixtureRequest) -> Bus:
    made: Bus = request.param()
    return made


def test_all_listeners_of_a_topic_hear_all_of_it_in_order(bus: Bus) -> None:
    messages = [random.randbytes(8) for _ in range(20)]
    heard: list[list[bytes]] = [[], []]
    other: list[bytes] = []
    for each in heard:
        bus.subscribe("a", each.append)
    bus.subscribe("b", other.append)
    for message in messages:
        bus.publish("a", message)
    assert (heard, other) == ([messages, messages], [])


def test_who_has_left_hears_nothing_more(bus: Bus) -> None:
    heard: list[bytes] = []
    leave = bus.subscribe("a", heard.append)
    bus.publish("a", b"1")
    leave()
    bus.publish("a", b"2")
    assert heard == [b"1"]


def test_one_that_fails_keeps_nobody_else_from_hearing(bus: Bus) -> None:
    heard: list[bytes] = []

    def fail(_: bytes) -> None:
        raise ZeroDivisionError

    bus.subscribe("a", fail)
    bus.subscribe("a", heard.append)
    bus.publish("a", b"1")
    assert heard == [b"1"]
