"""The agent's end of the socket: what is small goes out at once and from the node's own thread,
what does not fit waits elsewhere, and all of it arrives once and in order. What we rely on in the
client library is pinned here."""

import random
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import socketio
from socketio.msgpack_packet import MsgPackPacket
from werkzeug.serving import WSGIRequestHandler, make_server

from agent.link import AT_ONCE_BYTES, Closed, Heard, Link, Opened, enveloped
from gpudeck.wire import EVENT, NAMESPACE, Ack, encode
from tests.demos import soon

BLOCKED_MAX_BYTES = 64 * 2**20  # far more than two sockets hold


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Server:
    """Takes what comes while `reads` is set; else it leaves it in the socket."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.sids: list[str] = []
        self.reads = threading.Event()
        self.reads.set()
        self.socketio = socketio.Server(
            async_mode="threading", serializer="msgpack", async_handlers=False,
            cors_allowed_origins=[], ping_interval=0.3, ping_timeout=60)
        self.socketio.on("connect", lambda sid, *_: self.sids.append(sid), namespace=NAMESPACE)
        self.socketio.on(EVENT, self._received, namespace=NAMESPACE)
        self._server = make_server("127.0.0.1", 0, socketio.WSGIApp(self.socketio), threaded=True,
                                   request_handler=_Quiet)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _received(self, sid: str, data: bytes) -> None:
        self.reads.wait(60)
        self.taken.append(data)

    def say(self, body: bytes) -> None:
        self.socketio.emit(EVENT, body, to=self.sids[-1], namespace=NAMESPACE)

    def close(self) -> None:
        self.reads.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Agent:
    """A Link, and what it told."""

    def __init__(self, url: str) -> None:
        self.wakers: set[int] = set()
        self.told: list[Any] = []
        self.link = Link(url, None, lambda: self.wakers.add(threading.get_ident()))
        self.link.dial()
        assert soon(lambda: self.has(Opened), 10)
        self.queued = 0
        self.wakers.clear()
        self._put, self.engine.queue.put = self.engine.queue.put, self._counted

    @property
    def engine(self) -> Any:
        return self.link._client.eio

    def _counted(self, packet: Any) -> None:
        self.queued += 1
        self._put(packet)

    def has(self, kind: type) -> bool:
        self.told += self.link.happenings()
        return any(isinstance(each, kind) for each in self.told)


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(name="agent")
def _agent(server: Server) -> Iterator[Agent]:
    agent = Agent(server.url)
    yield agent
    server.reads.set()
    agent.link.hang_up()


def test_the_envelope_is_the_librarys(server: Server, agent: Agent) -> None:
    for size in (0, 1, 255, 256, 65_535, 65_536):
        body = secrets.token_bytes(size)
        packet = MsgPackPacket(2, data=[EVENT, body], namespace=NAMESPACE)
        assert enveloped(body) == packet.encode()
        agent.link.say(body)
    assert soon(lambda: len(server.taken) == 6, 10)
    assert [len(body) for body in server.taken] == [0, 1, 255, 256, 65_535, 65_536]


def test_what_is_small_wakes_no_other_thread(server: Server, agent: Agent) -> None:
    """But a pong does: the library's sending thread ends when it has had nothing to send."""
    assert soon(lambda: agent.queued > 0, 10), "no pong"
    said = [secrets.token_bytes(random.randrange(AT_ONCE_BYTES // 2)) for _ in range(200)]
    pings = agent.queued + 200 // 2
    for body in said:
        agent.link.say(body)
    assert soon(lambda: server.taken == said, 20)
    assert agent.queued < pings
    large = secrets.token_bytes(AT_ONCE_BYTES + 1)
    before = agent.queued
    agent.link.say(large)
    assert agent.queued > before
    assert soon(lambda: server.taken[-1] == large, 10)


def test_what_comes_is_noted_by_one_thread(server: Server, agent: Agent) -> None:
    for seq in range(1, 51):
        server.say(encode(Ack(seq)))

    def heard() -> int:
        agent.told += agent.link.happenings()
        return sum(isinstance(each, Heard) for each in agent.told)

    assert soon(lambda: heard() == 50, 20)
    assert [each.message for each in agent.told if isinstance(each, Heard)] == [
        Ack(seq) for seq in range(1, 51)]
    assert len(agent.wakers) == 1


def test_nobody_waits_for_a_hub_that_does_not_read(server: Server, agent: Agent) -> None:
    server.reads.clear()
    said: list[bytes] = []
    longest_s, size = 0.0, 0
    while size < BLOCKED_MAX_BYTES and len(said) < 100_000:
        body = secrets.token_bytes(random.choice((10, 1_500, AT_ONCE_BYTES // 2, 60_000)))
        began = time.monotonic()
        agent.link.say(body)
        longest_s = max(longest_s, time.monotonic() - began)
        said.append(body)
        size += len(body)
        if agent.engine.queue.unfinished_tasks > 100:
            break
    assert agent.engine.queue.unfinished_tasks > 100, "the sockets took it all"
    assert longest_s < 5.0  # it would be 45 s, the library's timeout, or for ever
    server.reads.set()
    assert soon(lambda: len(server.taken) >= len(said), 60)
    assert server.taken == said
    assert not agent.has(Closed)


def test_a_hub_that_hangs_up_is_told(server: Server, agent: Agent) -> None:
    engine = agent.engine
    server.socketio.disconnect(server.sids[-1], namespace=NAMESPACE)
    assert soon(lambda: agent.has(Closed), 10)
    assert soon(lambda: not engine.read_loop_task.is_alive(), 10)
    agent.link.say(b"to nobody")  # and nothing happens
