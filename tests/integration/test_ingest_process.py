"""Agents whose sockets the ingest process serves are as well off, and as bounded, as those that the
hub serves itself; and lose nothing by its death."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from gpudeck.contract.wire import (
    EVENT,
    NAMESPACE,
    Backfill,
    Call,
    Clock,
    Event,
    Refused,
    Time,
    decode_from_hub,
    encode,
)
from gpudeck.network.websocket import frame
from tests.fakes.certificates import Authority
from tests.integration.hubs import Caller, HubProcess, RawSocket, WireAgent, raw_agent, wait_for
from tests.integration.test_hub_wire import seqs_on_disk
from tests.integration.test_nodes import post
from tests.integration.test_transport import acked
from tests.integration.test_transport import agent as running_agent

FROM_ONE = ("--ingest-process-from", "1")


@contextmanager
def hub_of(folder: Path, *flags: str) -> Iterator[HubProcess]:
    with HubProcess(folder / "data", 0, *flags) as hub:
        yield hub


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with hub_of(tmp_path, *FROM_ONE) as hub:
        yield hub


@pytest.fixture(name="hubs", scope="module")
def _hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, HubProcess]]:
    """A hub that serves sockets itself, and one that hands them over."""
    with (hub_of(tmp_path_factory.mktemp("alone"), "--ingest-process-from", "0") as alone,
          hub_of(tmp_path_factory.mktemp("handing"), *FROM_ONE) as handing):
        yield alone, handing


def ingest_pid(hub: HubProcess) -> int:
    pid: int = wait_for(lambda: next(iter(hub.children("ingest.process")), None), why="it runs")
    return pid


def served(hub: HubProcess) -> set[tuple[str, int]]:
    """Return the addresses of the agents whose sockets the process has."""
    return {(connection.raddr.ip, connection.raddr.port)
            for connection in psutil.Process(ingest_pid(hub)).net_connections("tcp")
            if connection.raddr}


def until_served(hub: HubProcess, *agents: WireAgent) -> None:
    """Let the agents, all that are connected, send until the process serves their sockets."""
    def is_served() -> bool:
        for agent in agents:
            agent.tick()
        time.sleep(0.1)  # as fast as they may
        return len(served(hub)) == len(agents)

    wait_for(is_served, why="handed over")


def served_agent(hub: HubProcess, name: str) -> RawSocket:
    """Return the socket of an agent of which the process has it."""
    raw = raw_agent(hub, name)

    def is_served() -> bool:
        raw.emit(EVENT, encode(Clock(7)))
        time.sleep(0.1)
        return raw.socket.getsockname() in served(hub)

    wait_for(is_served, why="handed over")
    return raw


def test_what_it_says_arrives_and_is_acked_and_answered(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    until_served(hub, agent)
    agent.tick()
    gpus = wait_for(lambda: [gpu for gpu in hub.get("/api/v1/gpus")["items"]
                             if gpu["values"].get("util_pct") == pytest.approx(
                                 agent.util[0], abs=0.001)],
                    why="its newest values")
    assert len(gpus) == 1
    wait_for(lambda: agent.acked == agent.seq, why="all acked")
    raw = served_agent(hub, "n2")
    raw.emit(EVENT, encode(Clock(41)))
    answers = iter(lambda: decode_from_hub(raw.event(EVENT)), None)
    assert any(isinstance(answer, Time) and answer.clock_id == 41 for answer in answers)
    agent.close()


def test_killed_it_is_there_again_and_nothing_acked_is_lost(hub: HubProcess) -> None:
    agents = [WireAgent(f"n{number}") for number in range(4)]
    for _ in range(3):
        for agent in agents:
            agent.connect(hub)
        until_served(hub, *agents)
        pid = ingest_pid(hub)
        for _ in range(5):
            for agent in agents:
                agent.tick()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(agent.is_connected for agent in agents), why="they hear of it")
    for agent in agents:
        agent.connect(hub)
        wait_for(lambda agent=agent: agent.acked == agent.seq,  # type: ignore[misc]
                 why="what was not acked is brought again")
        frames = hub.get(f"/api/v1/nodes/{agent.node_id}")["frames"]
        assert (frames["last_seq"], frames["missing"]) == (agent.seq, 0)
    hub.stop()
    for agent in agents:
        assert sorted(seqs_on_disk(hub)[agent.node_id]) == list(range(1, agent.seq + 1))
        agent.close()


def test_one_that_hangs_is_ended(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    until_served(hub, agent)
    pid = ingest_pid(hub)
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: not agent.is_connected, why="the agent is free to come again")
    assert "it does not answer" in hub.log.read_text()
    agent.connect(hub)
    wait_for(lambda: agent.acked == agent.seq, why="all acked")
    agent.close()


# As they stand in a frame of their own, and what the hub says to it.
WRONG: list[tuple[str, Any, type | None]] = [
    ("text", "2", None), ("text", "hello", None), ("binary", b"", None),
    ("binary", b"\xc1", None), ("binary", b"\x90", None),
    ("packet", {"type": 2, "nsp": "/agent", "data": ["other", b""]}, None),
    ("packet", {"type": 2, "nsp": "/agent", "data": ["connect", b""]}, None),
    ("packet", {"type": 2, "nsp": "/agent", "data": [EVENT]}, None),
    ("packet", {"type": 2, "nsp": "/agent", "data": [EVENT, "text"]}, None),
    ("packet", {"type": 2, "nsp": "/agent", "data": [EVENT, b"", b""]}, None),
    ("packet", {"type": 2, "nsp": "/agent", "data": {}}, None),
    ("packet", {"type": 5, "nsp": "/agent", "data": [EVENT, b""]}, None),
    ("wire", b"not a message", Refused), ("wire", encode(Call(bytes(32))), Refused),
    ("bytes", b"\x82\x05hello", None),  # not masked
    ("bytes", b"\xf2\x80\0\0\0\0", None),  # extensions that were not agreed on
    ("bytes", b"\x82\xff\0\0\0\0\0\xff\xff\xff\0\0\0\0", None),  # more than fits
    ("bytes", b"\x88\x80\0\0\0\0", None),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_it_may_not_say_ends_in_the_same_words(
        hubs: tuple[HubProcess, HubProcess], number: int) -> None:
    kind, data, answer = WRONG[number]
    ends = []
    for hub in hubs:
        raw = (served_agent if hub is hubs[1] else raw_agent)(hub, f"wrong-{number}")
        match kind:
            case "text":
                raw.ws.send(data)
            case "binary":
                raw.ws.send_binary(data)
            case "packet":
                raw.send(data)
            case "wire":
                raw.emit(EVENT, data)
            case "bytes":
                raw.send_bytes(data)
        refusals: list[type] = []
        while (packet := raw.receive()) is not None:
            message = decode_from_hub(packet["data"][1])
            refusals += [type(message)] if isinstance(message, Refused) else []
        ends.append((raw.close_code, raw.close_reason, refusals))
    assert ends[0] == ends[1]
    assert ends[0][2] == ([] if answer is None else [answer])


def test_one_that_is_too_fast_is_refused_in_the_same_words(
        hubs: tuple[HubProcess, HubProcess]) -> None:
    reasons = []
    for hub in hubs:
        raw = (served_agent if hub is hubs[1] else raw_agent)(hub, "fast")
        repeated = encode(Event(1, time.time(), "x"))
        with contextlib.suppress(OSError):  # it is refused before it has sent all
            for _ in range(230):  # 200 at once, and 20 a second
                raw.emit(EVENT, repeated)
        while True:
            packet = raw.receive()
            assert packet is not None, "it is told why"
            if isinstance(message := decode_from_hub(packet["data"][1]), Refused):
                reasons.append(message.reason)
                break
    assert reasons[0] == reasons[1]
    assert "more messages than allowed" in reasons[0]


def test_one_that_is_turned_out_proves_itself_again_or_is_nobody(
        hubs: tuple[HubProcess, HubProcess]) -> None:
    """Messages that it sent before it heard of its end are dropped: a Hello among them would take
    over the connection of any node without a proof."""
    def packet(payload: bytes) -> bytes:
        event = {"type": 2, "nsp": NAMESPACE, "data": [EVENT, payload]}
        return frame(msgspec.msgpack.encode(event), mask=b"\1\2\3\4")

    for hub in hubs:
        victim = WireAgent("victim")
        victim.connect(hub)
        hello = msgspec.structs.replace(victim.caller.said, signature=bytes(64))
        thief = (served_agent if hub is hubs[1] else raw_agent)(hub, "thief")
        with contextlib.suppress(OSError):
            past = tuple(encode(Event(seq, time.time(), "x")) for seq in range(1, 65))
            thief.send_bytes(packet(encode(Backfill(past))) * 3  # one more than may wait
                             + packet(encode(hello)) * 190)
        wait_for(lambda hub=hub: "agent_quarantined" in hub.log.read_text(),  # type: ignore[misc]
                 why="turned out")
        time.sleep(1)
        assert "agent_taken_over" not in hub.log.read_text()
        assert "closed peer=" not in hub.log.read_text().partition("agent_quarantined")[2]
        assert victim.is_connected
        assert victim.rejections == []
        victim.close()


def test_it_has_nothing_of_the_hub_but_sockets(hub: HubProcess) -> None:
    agent = WireAgent("n1")
    agent.connect(hub)
    until_served(hub, agent)
    process = psutil.Process(ingest_pid(hub))
    assert [file.fd for file in process.open_files()] in ([], [2])  # where its errors go
    assert len(process.net_connections("tcp")) == 1  # not the one that listens
    assert len(process.net_connections("unix")) == 1
    hub.kill()
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
             why="it ends with the hub")
    wait_for(lambda: not agent.is_connected, why="and its sockets with it")


def test_a_revoked_node_is_out_at_once(hub: HubProcess) -> None:
    raw = served_agent(hub, "n1")
    node_id = Caller("n1").node_id
    began = time.monotonic()
    post(hub, f"nodes/{node_id}/revoke")
    assert raw.closed()[0] == 1008
    assert time.monotonic() - began < 5
    assert hub.get(f"/api/v1/nodes/{node_id}")["state"] != "live"


def test_what_comes_by_tls_stays_with_the_hub(tmp_path: Path) -> None:
    """The key of a connection is in the hub alone."""
    authority = Authority(tmp_path)
    with (hub_of(tmp_path, *FROM_ONE, *authority.issue("good").flags) as hub,
          running_agent(hub, tmp_path / "node", "--ca-file", str(authority.file),
                        token=hub.token().text)):
        ingest_pid(hub)
        count = acked(hub, authority, "node")
        wait_for(lambda: acked(hub, authority, "node") > count + 2, why="it goes on")
        assert served(hub) == set()


def test_a_few_agents_are_served_by_the_hub_itself(tmp_path: Path) -> None:
    with hub_of(tmp_path) as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        agent.tick()
        wait_for(lambda: agent.acked == agent.seq, why="acked")
        time.sleep(2)  # it would begin within one
        assert hub.children("ingest.process") == []
        agent.close()


def test_one_that_says_goodbye_is_let_go(hubs: tuple[HubProcess, HubProcess]) -> None:
    raw = served_agent(hubs[1], "goodbye")
    raw.send({"type": 1, "nsp": "/agent"})
    assert raw.closed()[0] == 1000
    node = f"/api/v1/nodes/{Caller('goodbye').node_id}"
    wait_for(lambda: hubs[1].get(node)["state"] == "suspect", why="the hub knows")
