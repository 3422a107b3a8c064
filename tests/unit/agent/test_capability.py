from typing import get_args

import pytest

from agent.capability import Capability, handler_table, ignore
from gpudeck.contract import wire

TYPES = get_args(wire.FromHub)


def test_each_message_goes_to_the_capability_that_registered_for_it() -> None:
    messages: list[tuple[str, object]] = []
    pings = Capability(name="pings", handlers={
        wire.Probe: lambda message, now: messages.append(("pings", message))})
    rest = Capability(name="rest", handlers={
        message_type: ignore for message_type in TYPES if message_type is not wire.Probe})
    handlers = handler_table((rest, pings), TYPES)
    probe = wire.Probe(7, 1e9)
    handlers[wire.Probe](probe, 0.0)
    handlers[wire.Ack](wire.Ack(1), 0.0)
    assert messages == [("pings", probe)]


def test_a_second_handler_of_a_message_fails_to_start() -> None:
    pair = [Capability(name=name, handlers={wire.Ack: ignore}) for name in ("link", "pool")]
    with pytest.raises(ValueError, match="Ack has a second handler, in pool"):
        handler_table(pair, [])


def test_a_message_without_a_handler_fails_to_start() -> None:
    link = Capability(name="link", handlers={wire.Ack: ignore})
    with pytest.raises(ValueError, match="no handler of Probe"):
        handler_table([link], [wire.Ack, wire.Probe])


def test_a_capability_without_parts_does_nothing() -> None:
    capability = Capability(name="none")
    capability.step(1.0, True)
    capability.note_outcome()
    capability.close()
    assert [*capability.poll(1.0)] == []
    assert capability.due_at() == float("inf")
    assert capability.trouble() == ""
