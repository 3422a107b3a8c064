"""A peer of the same wire version that sends more than today's contract: all else goes on."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudeck.contract.wire import (
    EVENT,
    MAX_MESSAGE_BYTES,
    MAX_UNKNOWN_TYPES,
    NAMESPACE,
    Backfill,
    Event,
    Ignored,
    UnknownMessage,
    decode_from_agent,
    decode_passed,
    encode,
)
from tests.fakes.hub import FakeHub
from tests.integration.hubs import HubProcess, WireAgent, wait_for
from tests.integration.test_agent_process import an_agent, flags

FUTURE = f"power_curve_{secrets.token_hex(4)}"


def of_the_future(kind: str = FUTURE, **more: Any) -> bytes:
    return msgspec.msgpack.encode({"type": kind, "curve": [[1.5, None], {"x": b"y"}], **more})


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        yield hub


@pytest.fixture(name="agent")
def _agent(hub: HubProcess) -> Iterator[WireAgent]:
    agent = WireAgent(secrets.token_hex(4))
    agent.connect(hub)
    yield agent
    agent.close()


def test_a_newer_agent_keeps_its_connection_and_the_hub_says_so(
        hub: HubProcess, agent: WireAgent) -> None:
    def unknown() -> Any:
        return hub.get(f"/api/v1/nodes/{agent.node_id}")["unknown_types"]

    agent.tick()
    for _ in range(3):
        agent.seq += 1
        agent._emit(of_the_future(seq=agent.seq))
    agent._emit(of_the_future())
    last = agent.tick()
    wait_for(lambda: agent.acked == last, why="all acked, what is not understood too")
    assert agent.ignored == [Ignored(FUTURE)]
    assert unknown() == [FUTURE]
    agent.seq += 1
    old = of_the_future("from_an_outage", seq=agent.seq)
    agent.seq += 1
    agent.say(Backfill((old, encode(Event(agent.seq, time.time() - 60, "node_began")))))
    wait_for(lambda: agent.acked == agent.seq, why="the Backfill around it")
    assert unknown() == [FUTURE, "from_an_outage"]
    assert (len(agent.welcomes), agent.rejections) == (1, [])
    agent.close()
    agent.connect(hub)  # as an older one
    agent.tick()
    wait_for(lambda: unknown() == [], why="a new connection")


def test_types_that_are_invented_fill_nothing(hub: HubProcess, agent: WireAgent) -> None:
    for at in range(2 * MAX_UNKNOWN_TYPES):
        agent._emit(of_the_future(f"invented_{at}"))
    last = agent.tick()
    wait_for(lambda: agent.acked == last)
    types = hub.get(f"/api/v1/nodes/{agent.node_id}")["unknown_types"]
    assert len(types) == len(agent.ignored) == MAX_UNKNOWN_TYPES


@pytest.mark.parametrize("payload", [
    of_the_future()[:-1], of_the_future() + b"\x00", of_the_future("Not A Type\n"),
    of_the_future("x" * 33), of_the_future("welcome"), of_the_future(seq=-1), b"\x90"],
    ids=["cut", "more", "name", "long", "other side", "seq", "empty"])
def test_what_is_not_well_formed_still_ends_it(agent: WireAgent, payload: bytes) -> None:
    agent._emit(payload)
    wait_for(lambda: not agent.is_connected, why="closed")
    assert agent.rejections


def test_a_newer_hub_keeps_its_agent(tmp_path: Path) -> None:
    hub = FakeHub()
    try:
        with an_agent(*flags(hub, tmp_path), "--backend", "simulated") as agent:
            wait_for(lambda: hub.hellos)
            for _ in range(3):
                send(hub, of_the_future())
            for at in range(2 * MAX_UNKNOWN_TYPES):
                send(hub, of_the_future(f"invented_{at}"))
            hub.tell(Ignored("what_we_say"))
            hub.probe(4_711)
            wait_for(lambda: any(echo.probe_id == 4_711 for echo in hub.echoes))
            assert len(hub.hellos) == 1
            send(hub, of_the_future() + b"\x00")
            wait_for(lambda: len(hub.hellos) > 1, why="a new connection: that was no message")
            send(hub, of_the_future(more=bytes(MAX_MESSAGE_BYTES)))
            wait_for(lambda: len(hub.hellos) > 2, why="a new connection: that was too large")
            agent.terminate()
            assert agent.stderr is not None
            lines = agent.stderr.read().splitlines()
    finally:
        hub.close()
    assert hub.broken == []
    newer = [line for line in lines if "hub_newer" in line]
    assert len(newer) <= MAX_UNKNOWN_TYPES
    assert sum(FUTURE in line for line in newer) == 1


def send(hub: FakeHub, body: bytes) -> None:
    for sid in list(hub._streams):
        hub._sio.emit(EVENT, body, to=sid, namespace=NAMESPACE)


def test_it_is_told_from_what_is_wrong() -> None:
    assert decode_from_agent(of_the_future(seq=7)) == UnknownMessage(FUTURE, 7)
    assert decode_passed(of_the_future(seq=7)) == UnknownMessage(FUTURE, 7)
