"""The agent's end of the socket: what fits goes out at once and from the node's own thread, what
does not waits elsewhere, and all of it arrives once and in order. The other end is the library's
own server, and a server by hand that does what no hub does."""

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

from agent.link.socket import (
    ConnectionClosed,
    ConnectionOpened,
    HubLink,
    MessageReceived,
    envelop,
)
from gpudeck.contract.wire import EVENT, NAMESPACE, Ack, encode
from tests.demos import soon


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Server:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.sids: list[str] = []
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
        self.bodies.append(data)

    def send(self, body: bytes) -> None:
        self.socketio.emit(EVENT, body, to=self.sids[-1], namespace=NAMESPACE)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Agent:
    """A Link and its events."""

    def __init__(self, url: str) -> None:
        self.wakers: set[int] = set()
        self.events: list[Any] = []
        self.link = HubLink((url,), lambda _: None, lambda: self.wakers.add(threading.get_ident()))
        self.link.dial()
        assert soon(lambda: self.has(ConnectionOpened))
        self.wakers.clear()

    def has(self, kind: type) -> bool:
        self.events += self.link.events()
        return any(isinstance(event, kind) for event in self.events)


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(name="agent")
def _agent(server: Server) -> Iterator[Agent]:
    agent = Agent(server.url)
    yield agent
    agent.link.hang_up()


def test_the_envelope_is_the_librarys(server: Server, agent: Agent) -> None:
    for size in (0, 1, 255, 256, 65_535, 65_536):
        body = secrets.token_bytes(size)
        packet = MsgPackPacket(2, data=[EVENT, body], namespace=NAMESPACE)
        assert envelop(body) == packet.encode()
        agent.link.say(body)
    assert soon(lambda: len(server.bodies) == 6)
    assert [len(body) for body in server.bodies] == [0, 1, 255, 256, 65_535, 65_536]


def test_what_fits_wakes_no_other_thread(server: Server, agent: Agent) -> None:
    threads = threading.active_count()
    bodies = [secrets.token_bytes(random.randrange(4_096)) for _ in range(200)]
    for body in bodies:
        agent.link.say(body)
        time.sleep(0.005)
    assert soon(lambda: server.bodies == bodies)
    assert threading.active_count() <= threads


def test_what_comes_is_noted_by_one_thread(server: Server, agent: Agent) -> None:
    for seq in range(1, 51):
        server.send(encode(Ack(seq)))

    def message_count() -> int:
        agent.events += agent.link.events()
        return sum(isinstance(event, MessageReceived) for event in agent.events)

    assert soon(lambda: message_count() == 50)
    assert [event.message for event in agent.events if isinstance(event, MessageReceived)] == [
        Ack(seq) for seq in range(1, 51)]
    assert len(agent.wakers) == 1


def test_a_hub_that_hangs_up_is_told(server: Server, agent: Agent) -> None:
    server.socketio.disconnect(server.sids[-1], namespace=NAMESPACE)
    assert soon(lambda: agent.has(ConnectionClosed))
    assert soon(lambda: not any(thread.name == "link" for thread in threading.enumerate()))
    agent.link.say(b"to nobody")  # and nothing happens
