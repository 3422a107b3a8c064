"""Cost of hostile or broken peers to the hub: a constant, and nothing to other peers.

The figures are printed (`pytest -s`); the assertions are the bounds.
"""

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import websocket

from dashboard.web.bounded_socket import ADMIT_WITHIN_S
from gpudeck.contract.wire import (
    EVENT,
    MAX_MESSAGE_BYTES,
    NAMESPACE,
    Beat,
    Challenge,
    Refused,
    Welcome,
    decode_from_hub,
    encode,
)
from gpudeck.network.websocket import unmask
from tests.integration.hubs import (
    Caller,
    HubProcess,
    RawSocket,
    WireAgent,
    greet,
    raw_agent,
    wait_for,
)

MEGABYTE = 1_000_000


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data", 0, "--viewer-stall-s", "2") as hub:
        yield hub
        assert hub.process.poll() is None, "the hub died"
        assert "Traceback" not in hub.log.read_text()


@pytest.fixture(name="bystander")
def _bystander(hub: HubProcess) -> Iterator[WireAgent]:
    """An honest agent, whose frames are acked after all that the test does."""
    agent = WireAgent("bystander")
    agent.connect(hub)
    agent.tick()
    yield agent
    agent.tick()
    wait_for(lambda: agent.acked == agent.seq, 5, "the bystander's acks")


def fragment(payload: bytes, opcode: int) -> bytes:
    """A masked frame that says more will follow."""
    mask = os.urandom(4)
    return (bytes([opcode, 0x80 | 126]) + len(payload).to_bytes(2, "big") + mask
            + unmask(payload, mask))


@pytest.mark.parametrize("peer", ["stranger", "agent", "viewer"])
def test_a_message_that_never_ends(hub: HubProcess, bystander: WireAgent, peer: str) -> None:
    """32 connections, each sending fragments until it is stopped."""
    before = hub.pss_bytes()
    raws = [raw_agent(hub, f"n{at}") if peer == "agent" else
            RawSocket(hub, "/live", hub.api_token) if peer == "viewer" else
            RawSocket(hub, "/agent") for at in range(32)]
    most, sent_bytes = 0, 0
    chunk = os.urandom(50_000)
    alive = list(raws)
    deadline = time.monotonic() + 60.0  # the hub's cuts arrive when the cores let them
    for at in count():
        if at >= 60 and (not alive or time.monotonic() > deadline):
            break
        for raw in list(alive):
            try:
                raw.send_bytes(fragment(chunk, 0 if at else 2))
                sent_bytes += len(chunk)
            except OSError:
                alive.remove(raw)
        most = max(most, hub.pss_bytes())
    grown = most - before
    print(f"\nnever-ending messages of 32 {peer}s: {sent_bytes / MEGABYTE:.0f} MB sent, "
          f"hub grew by {grown / MEGABYTE:.1f} MB at most, {hub.pss_bytes() / MEGABYTE:.0f} MB now")
    assert not alive
    limit = MAX_MESSAGE_BYTES if peer == "agent" else 20_000
    assert grown < 32 * 2.2 * limit + 12 * MEGABYTE
    wait_for(lambda: "more than" in hub.log.read_text(), why="a reason in the log")


def test_half_a_message_is_not_waited_for_by_a_stranger(hub: HubProcess, bystander: WireAgent
                                                        ) -> None:
    raw = RawSocket(hub, "/agent")
    raw.send_bytes(fragment(b"x" * 100, 2))
    started = time.monotonic()
    assert raw.closed(8.0)[1] == "did not identify itself"
    assert 4.0 < time.monotonic() - started < 7.5


def test_a_stranger_that_is_slow_and_goes_on_is_no_silent_one(hub: HubProcess) -> None:
    """The hub limits the time of each step alone: a thousand agents that come back at once wait for
    the hub, and for each other."""
    raw, caller, began = RawSocket(hub, NAMESPACE), Caller("slow"), time.monotonic()
    time.sleep(3.0)
    raw.emit(EVENT, encode(caller.call))
    challenge = decode_from_hub(raw.event(EVENT))
    assert isinstance(challenge, Challenge)
    time.sleep(3.0)
    raw.emit(EVENT, encode(caller.hello(challenge, hub.token())))
    assert isinstance(decode_from_hub(raw.event(EVENT)), Welcome)
    assert time.monotonic() - began > ADMIT_WITHIN_S


def test_silent_connections(hub: HubProcess, bystander: WireAgent) -> None:
    """200 send nothing, 100 stop in the middle of a header, 100 are authenticated and then mute."""
    before, began = hub.pss_bytes(), time.monotonic()
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", hub.port)))
                  for _ in range(300)]
        for sock in silent[200:]:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x")
        mute = [websocket.create_connection(
            f"ws://127.0.0.1:{hub.port}/socket.io/?EIO=4&transport=websocket", timeout=8,
            suppress_origin=True)
            for _ in range(100)]
        for ws in mute:
            assert ws.sock is not None
            stack.enter_context(closing(ws.sock))
        started = time.monotonic()
        assert hub.ask("/healthz").status == 200
        assert time.monotonic() - started < 1.0
        bystander.tick()
        grown = hub.pss_bytes() - before
        for sock in silent:
            sock.settimeout(8.0)
            with suppress(ConnectionResetError):
                assert sock.recv(100) == b""
        took = time.monotonic() - started
        for ws in mute:
            with suppress(websocket.WebSocketConnectionClosedException):
                while ws.recv_data(control_frame=True)[0] != websocket.ABNF.OPCODE_CLOSE:
                    pass
    print(f"\n400 silent connections: +{grown / MEGABYTE:.1f} MB, closed after {took:.1f} s")
    assert time.monotonic() - began > 4.0
    assert took < 7.5
    assert grown < 30 * MEGABYTE


def test_more_strangers_than_fit_shut_nobody_out(hub: HubProcess, bystander: WireAgent) -> None:
    with ExitStack() as stack:
        for _ in range(2_200):
            stack.enter_context(socket.create_connection(("127.0.0.1", hub.port)))
        started = time.monotonic()
        assert hub.ask("/healthz").status == 200
        assert hub.get("/api/v1/nodes")["items"]
        assert time.monotonic() - started < 2.0
        bystander.tick()


@pytest.mark.parametrize("size", [40_000, 3_000_000])
def test_headers_without_end(hub: HubProcess, bystander: WireAgent, size: int) -> None:
    before = hub.pss_bytes()
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as sock:
        with suppress(OSError):
            sock.sendall(b"GET / HTTP/1.1\r\n" + b"X-A: " + b"y" * 990 + b"\r\n")
            for _ in range(size // 1_000):
                sock.sendall(b"X-A: " + b"y" * 990 + b"\r\n")
        with suppress(ConnectionResetError):
            assert not sock.recv(100).startswith(b"HTTP/1.1 2")
    assert hub.pss_bytes() - before < 4 * MEGABYTE


def stored_seconds(hub: HubProcess, agent: WireAgent) -> int:
    series = hub.get(f"/api/v1/series?gpu={agent.facts[0].uuid}&metric=util_pct&step=1")
    return sum(value is not None for value in series["mean"])


def test_a_viewer_that_stops_reading(hub: HubProcess) -> None:
    """20 deaf viewers of 4,000 GPUs, another watching: nothing piles up, the deaf are cut."""
    agents = [WireAgent(f"n{at}", gpus=200) for at in range(20)]
    for agent in agents:
        agent.connect(hub)
        agent.tick()
    # History takes its five minutes of memory when the first seconds come.
    for agent in agents:
        wait_for(lambda agent=agent: stored_seconds(hub, agent) > 0, 30)  # type: ignore[misc]
    reader = RawSocket(hub, "/live", hub.api_token)
    reader.emit("watch", {"metric": "util_pct", "filter": ""})
    reader.event("cells")
    before = hub.pss_bytes()
    deaf = [RawSocket(hub, "/live", hub.api_token) for _ in range(20)]
    for viewer in deaf:
        viewer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for _ in range(40):  # each answer holds the whole layout, some 200 kB
            viewer.emit("watch", {"metric": "util_pct", "filter": ""})
    most = 0
    for _ in range(4):
        for agent in agents[:3]:
            agent.tick()
        started = time.monotonic()
        assert reader.event("cells")["n"] == 4_000
        assert time.monotonic() - started < 1.6
        most = max(most, hub.pss_bytes() - before)
    print(f"\n20 viewers that do not read, 4,000 GPUs: +{most / MEGABYTE:.1f} MB at most")
    assert most < 20 * 2 * MEGABYTE

    def cut() -> int:
        reader.event("cells")  # otherwise this one would soon be deaf itself
        log = hub.log.read_text()
        return log.count("too_slow") + log.count("does not answer")

    wait_for(lambda: cut() == 20, 14, "all deaf ones cut")
    assert reader.event("cells")["n"] == 4_000


def test_an_agent_over_its_rate(hub: HubProcess, bystander: WireAgent) -> None:
    raw = raw_agent(hub, "flood")
    beat = encode(Beat("ok", 0.0, 0, 0))
    packet: bytes = msgspec.msgpack.Encoder().encode(
        {"type": 2, "nsp": "/agent", "data": ["wire", beat]})
    cpu = hub.cpu_s()
    sent_count, refusal = 0, None
    with suppress(OSError, websocket.WebSocketException):
        for _ in range(20_000):
            raw.ws.send_binary(packet)
            sent_count += 1
    with suppress(OSError, websocket.WebSocketException):
        while (reply := raw.receive(2.0)) is not None:
            message = decode_from_hub(reply["data"][1])
            if isinstance(message, Refused):
                refusal = message
    assert refusal is not None
    assert refusal.retry_after_s > 10
    print(f"\nflood: {sent_count} sent before the cut, hub spent {hub.cpu_s() - cpu:.2f} s of CPU")
    assert hub.get(f"/api/v1/nodes/{Caller('flood').node_id}")["state"] == "suspect"
    second = RawSocket(hub, "/agent")
    answer = greet(second, Caller("flood"))
    assert isinstance(answer, Refused)
    assert 0 < answer.retry_after_s <= 30
    assert hub.get(f"/api/v1/nodes/{Caller('bystander').node_id}")["state"] == "live"


def test_made_up_numbers_are_a_flood_too(hub: HubProcess, bystander: WireAgent) -> None:
    """An agent whose seqs run ahead of time is over its rate; one that makes up for an outage
    it announced is not."""
    honest = WireAgent("honest")
    for _ in range(600):
        honest.tick(taken_at=time.time() - 600 + honest.seq)
    honest.connect(hub)
    wait_for(lambda: honest.acked == 600, 20, "the backlog")
    assert honest.is_connected
    assert not honest.rejections
    liar = WireAgent("liar")
    liar.connect(hub)
    for _ in range(1_500):
        liar.tick()
    wait_for(lambda: liar.rejections, 15, "the quarantine")


def test_a_message_beyond_the_limit(hub: HubProcess, bystander: WireAgent) -> None:
    raw = raw_agent(hub, "big")
    with suppress(OSError, websocket.WebSocketException):
        raw.emit("wire", bytes(MAX_MESSAGE_BYTES + 1_000))
    with suppress(OSError, websocket.WebSocketException):
        assert raw.closed()[0] == 1009
    wait_for(lambda: "more than 1000256 bytes" in hub.log.read_text(), why="a reason")


def mangle(data: bytes) -> bytes:
    mangled = bytearray(data)
    for _ in range(random.randint(1, 6)):
        how, at = random.randrange(4), random.randrange(len(mangled) + 1)
        if how == 0:
            mangled[at:at] = random.randbytes(random.randint(1, 8))
        elif how == 1:
            del mangled[at : at + random.randint(1, 8)]
        elif mangled and at < len(mangled):
            mangled[at] = random.randrange(256)
    return bytes(mangled)


def test_fuzzed_packets(hub: HubProcess, bystander: WireAgent) -> None:
    """Mutated at each level, before and after Hello: closed with a reason, counted, survived."""
    bystander.tick()
    frame_payload = encode(Beat("ok", 0.0, 0, 0))
    packets: tuple[Any, ...] = (
        {"type": 2, "nsp": "/agent", "data": ["wire", frame_payload]},
        {"type": 0, "nsp": "/agent"}, {"type": 1, "nsp": "/agent"},
        {"type": 5, "nsp": "/agent", "data": ["wire", frame_payload], "attachments": 10**9},
        {"type": 3, "nsp": "/agent", "id": 1, "data": []}, [[[[]]]] * 20, b"\x91" * 5_000)
    good: list[bytes] = list(map(msgspec.msgpack.Encoder().encode, packets))
    before, packets_sent, closed = hub.pss_bytes(), 0, 0
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        raw = (raw_agent(hub, f"fuzz{packets_sent}") if random.random() < 0.5 else
               RawSocket(hub, "/agent"))
        with suppress(OSError, websocket.WebSocketException):
            for _ in range(20):
                packet = mangle(random.choice(good))
                (raw.ws.send if packet.isascii() and random.random() < 0.3 else raw.ws.send_binary)(
                    packet)
                packets_sent += 1
            raw.send_bytes(random.randbytes(30))
            raw.closed(3.0)
        closed += 1
        raw.close()
    grown = hub.pss_bytes() - before
    warnings = hub.log.read_text().count("level=WARNING")
    print(f"\nfuzz: {packets_sent} packets on {closed} connections, {warnings} closed with a "
          f"reason, +{grown / MEGABYTE:.1f} MB")
    assert warnings > 0.8 * closed
    assert grown < 50 * MEGABYTE
