"""The hub's end of the ingest process where the kernel refuses what it asks for."""

import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from dashboard.nodes.agent_rate import AgentRate, Exceeded
from dashboard.nodes.ingest.client import IngestClient
from dashboard.nodes.ingest.link import AgentSocketState
from dashboard.nodes.ingest.messages import (
    FrameBuffer,
    LinkEnded,
    SocketGiven,
    decode_received,
    framed,
)
from dashboard.nodes.ingest.process import HubGoneError, HubLink, IngestLoop
from dashboard.settings import HubSettings
from dashboard.web.bounded_socket import ConnectionLimits


class Receiver:
    def take_passed(self, sid: str, payload: bytes) -> None: ...

    def take_excess(self, sid: str, excess: Exceeded) -> None: ...


@pytest.fixture(name="counts")
def _counts() -> list[str]:
    return []


@pytest.fixture(name="client")
def _client(tmp_path: Path, counts: list[str]) -> Iterator[IngestClient]:
    settings = HubSettings(("127.0.0.1", 0), tmp_path, ingest_process_from=1)
    client = IngestClient(settings, Receiver(), counts.append)
    client.step(time.monotonic(), 1)
    assert client.pid is not None
    yield client
    client.close()


def hand_over(client: IngestClient, sock: socket.socket) -> Any:
    limits = ConnectionLimits(100_000, 50.0, 100.0, 25.0, 60.0)
    peer: Any = SimpleNamespace(sock=sock, allowance=limits, handover=None, heard_mono=0.0,
                                pinged_mono=0.0)
    return client.hand_over("sid", peer, AgentRate(20, 2_000_000, 0.0, 0.0))


def test_a_socket_stays_with_the_hub_where_it_may_have_no_more(client: IngestClient) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    one, other = socket.socketpair()
    with one, other:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        try:
            assert hand_over(client, one) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert client.count == 0
        assert hand_over(client, one) is not None


def test_a_process_that_cannot_be_written_to_is_ended(
        client: IngestClient, counts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would go on to read, and no order, nor any ack, would reach an agent."""
    def refuse(*_: Any) -> int:
        raise OSError(109, "too many references")

    monkeypatch.setattr(socket, "send_fds", refuse)
    one, other = socket.socketpair()
    with one, other:
        assert hand_over(client, one) is not None
        gevent.sleep(0.1)
        assert (client.pid, client.count, counts) == (None, 0, ["ingest_ended"])


def test_one_that_cannot_be_started_is_started_later(
        tmp_path: Path, counts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    client = IngestClient(HubSettings(("127.0.0.1", 0), tmp_path, ingest_process_from=1),
                          Receiver(), counts.append)
    tries: list[float] = []

    def refuse(*_: Any, **__: Any) -> None:
        tries.append(mono)
        raise OSError(11, "resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        for mono in range(100, 110):
            client.step(float(mono), 1)
    assert tries == [100, 102, 106], "each time it waits twice as long"
    assert client.pid is None
    client.step(200.0, 1)
    assert client.pid is not None
    client.close()


def test_a_message_on_which_we_fail_ends_its_connection_alone(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    feed = AgentSocketState.feed

    def fail_on_the_first(state: AgentSocketState, *arguments: Any) -> None:
        if state.link == 1:
            raise ZeroDivisionError("a bug of ours")
        feed(state, *arguments)

    monkeypatch.setattr(AgentSocketState, "feed", fail_on_the_first)
    hub, other_end = socket.socketpair()
    hub.settimeout(10)
    loop = IngestLoop(HubLink(other_end), 20, 2_000_000, time.monotonic)

    def run() -> None:
        with pytest.raises(HubGoneError):
            loop.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    agents = [socket.socketpair(), socket.socketpair()]
    for link, (_, served) in enumerate(agents, 1):
        order = SocketGiven(link, 100_000, 50.0, 100.0, 25.0, 60.0, time.monotonic(),
                            time.monotonic(), 0.0, 0, 0)
        socket.send_fds(hub, [framed([order])], [served.fileno()])
        served.close()
    ping = b"\x89\x80\0\0\0\0"
    for own_end, _ in agents:
        own_end.settimeout(10)
        own_end.sendall(ping)
    first, second = (own_end for own_end, _ in agents)
    assert b"the hub failed on this message" in first.recv(1000)
    assert first.recv(1000) == b""
    assert second.recv(1000) == b"\x8a\0"
    assert ended_links(hub) == [(1, "failed")]
    second.close()
    assert ended_links(hub) == [(2, "")]
    for end in (hub, first):
        end.close()
    thread.join(10)
    other_end.close()
    assert "a bug of ours" in capsys.readouterr().err


def ended_links(hub: socket.socket) -> list[tuple[int, str]]:
    buffer = FrameBuffer()
    while True:
        for body in buffer.feed(hub.recv(1000)):
            if news := decode_received(body).news:
                return [(end.link, end.reason) for end in news if isinstance(end, LinkEnded)]
