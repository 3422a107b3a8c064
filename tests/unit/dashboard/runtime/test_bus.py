"""Behaviour that every Bus shares."""

import random

import pytest

from dashboard.runtime.bus import Bus, InProcessBus


@pytest.fixture(name="bus", params=[InProcessBus])
def _bus(request: pytest.FixtureRequest) -> Bus:
    bus: Bus = request.param()
    return bus


def test_all_listeners_of_a_topic_hear_all_of_it_in_order(bus: Bus) -> None:
    messages = [random.randbytes(8) for _ in range(20)]
    inboxes: list[list[bytes]] = [[], []]
    other: list[bytes] = []
    for inbox in inboxes:
        bus.subscribe("a", inbox.append)
    bus.subscribe("b", other.append)
    for message in messages:
        bus.publish("a", message)
    assert (inboxes, other) == ([messages, messages], [])


def test_who_has_left_hears_nothing_more(bus: Bus) -> None:
    inbox: list[bytes] = []
    leave = bus.subscribe("a", inbox.append)
    bus.publish("a", b"1")
    leave()
    bus.publish("a", b"2")
    assert inbox == [b"1"]


def test_one_that_fails_keeps_nobody_else_from_hearing(bus: Bus) -> None:
    inbox: list[bytes] = []

    def fail(_: bytes) -> None:
        raise ZeroDivisionError

    bus.subscribe("a", fail)
    bus.subscribe("a", inbox.append)
    bus.publish("a", b"1")
    assert inbox == [b"1"]
