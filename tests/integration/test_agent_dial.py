"""The agent's connection from its first byte, against a server by hand: whatever answers, it ends
in a sentence for people, soon, and at a bounded cost."""

import base64
import errno
import os
import random
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from agent.link.socket import (
    ConnectionClosed,
    ConnectionOpened,
    HubLink,
    MessageReceived,
)
from gpudeck.contract.wire import EVENT, MAX_MESSAGE_BYTES, NAMESPACE, Ack, encode
from gpudeck.network.dial import HEAD_MAX_BYTES
from gpudeck.network.trouble import reach_words
from gpudeck.network.websocket import Control, Message, Opcode, WebSocketReader, accept_key, frame
from tests.demos import soon
from tests.patience import GIVE_UP_S

BLOCKED_MAX_BYTES = 64 * 2**20  # far more than two sockets hold
Script = Callable[["Server"], None]


class Server:
    """A server that takes one connection and runs the script of a test on it."""

    def __init__(self, script: Script) -> None:
        self.heads: list[str] = []
        self.unread: list[Message | Control] = []
        self.failed: list[BaseException] = []
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._reader = WebSocketReader(MAX_MESSAGE_BYTES)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.sock, _ = self._listener.accept()
            self.sock.settimeout(10)
            with self.sock:
                self._script(self)
        except (ConnectionError, BrokenPipeError):
            pass  # the agent may go at any time
        except BaseException as error:
            self.failed.append(error)

    def head(self) -> str:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = self.sock.recv(1)
            if not more:
                raise ConnectionError
            head += more
        self.heads.append(head.decode())
        return self.heads[-1]

    def greet(self, accept: str | None = None, more: str = "", upgrade: str = "websocket") -> None:
        head = self.head()
        key = next(line.split(": ")[1] for line in head.splitlines()
                   if line.startswith("Sec-WebSocket-Key"))
        self.send(f"HTTP/1.1 101 Switching\r\nUPGRADE: {upgrade}\r\nconnection: upgrade\r\n"
                  f"sec-websocket-ACCEPT: {accept or accept_key(key)}\r\n{more}\r\n".encode())

    def join(self, ping_ms: int = 25_000) -> None:
        opened = msgspec.json.encode({"sid": "x", "pingInterval": ping_ms, "pingTimeout": 0})
        self.send(frame(b"0" + opened, Opcode.TEXT))
        assert self.packet() == {"type": 0, "data": {}, "nsp": NAMESPACE}
        self.emit({"type": 0, "data": {"sid": "y"}, "nsp": NAMESPACE})

    def emit(self, packet: Any) -> None:
        self.send(frame(msgspec.msgpack.encode(packet)))

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def next(self) -> Message | Control:
        while not self.unread:
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionError
            self.unread += self._reader.feed(data)
        return self.unread.pop(0)

    def packet(self) -> Any:
        message = self.next()
        assert isinstance(message, bytes)
        return msgspec.msgpack.decode(message)

    def wait(self) -> None:
        """Wait until the agent goes."""
        while self.sock.recv(65_536):
            pass

    def close(self) -> None:
        self._thread.join(15)
        self._listener.close()
        assert not self._thread.is_alive()
        assert not self.failed, self.failed


@pytest.fixture(name="serve")
def _serve() -> Iterator[Callable[[Script], Server]]:
    servers: list[Server] = []

    def start(script: Script) -> Server:
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class Client:
    def __init__(self, url: str) -> None:
        self.all: list[Any] = []
        self.link = HubLink((url,), lambda _: None, lambda: None)
        self.link.dial()

    def soon(self, kind: type, within_s: float = GIVE_UP_S) -> Any:
        def has_event() -> bool:
            self.all += self.link.events()
            return any(isinstance(event, kind) for event in self.all)

        assert soon(has_event, within_s), self.all
        return next(event for event in self.all if isinstance(event, kind))

    def messages(self) -> list[Any]:
        self.all += self.link.events()
        return [event.message for event in self.all if isinstance(event, MessageReceived)]


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def ack(seq: int) -> dict[str, Any]:
    return {"type": 2, "data": [EVENT, encode(Ack(seq))], "nsp": NAMESPACE}


def test_it_asks_as_no_browser_does_and_answers_pings(serve: Callable[[Script], Server]) -> None:
    seq, word = random.randrange(1, 2**40), secrets.token_hex(8)
    bodies: list[Any] = []

    def script(server: Server) -> None:
        server.greet()
        server.join()
        server.send(frame(f"2{word}".encode(), Opcode.TEXT))
        assert server.next() == f"3{word}"
        server.send(frame(word.encode(), Opcode.PING))
        assert server.next() == (Opcode.PONG, word.encode())
        encoded = frame(msgspec.msgpack.encode(ack(seq)))
        for at in range(len(encoded)):  # one byte at a time
            server.send(encoded[at : at + 1])
        bodies.append(server.packet())
        assert server.packet()["type"] == 1
        assert server.next() == (Opcode.CLOSE, b"\x03\xe8")

    server = serve(script)
    client = Client(url(server))
    client.soon(ConnectionOpened)
    assert client.soon(MessageReceived).message == Ack(seq)
    body = os.urandom(random.randrange(70_000))
    client.link.say(body)
    assert soon(lambda: bodies != [])
    assert bodies == [{"type": 2, "data": [EVENT, body], "nsp": NAMESPACE}]
    ending = client.link.hang_up()
    assert ending is not None
    ending.join(10)
    head = server.heads[0].lower()
    assert head.startswith("get /socket.io/?transport=websocket&eio=4 http/1.1\r\n")
    assert f"host: 127.0.0.1:{server.port}\r\n" in head
    assert "origin" not in head
    assert "cookie" not in head


def test_parts_of_a_message_are_put_together(serve: Callable[[Script], Server]) -> None:
    seqs = [random.randrange(2**40) for _ in range(3)]

    def script(server: Server) -> None:
        server.greet()
        server.join()
        for seq in seqs:
            encoded = msgspec.msgpack.encode(ack(seq))
            cut = random.randrange(len(encoded))
            first, last = frame(encoded[:cut]), frame(encoded[cut:], Opcode.CONTINUATION)
            server.send(bytes([first[0] & 0x7F]) + first[1:] + frame(b"", Opcode.PING) + last)
        server.wait()

    client = Client(url(serve(script)))
    client.soon(ConnectionOpened)
    assert soon(lambda: len(client.messages()) == 3)
    assert client.messages() == [*map(Ack, seqs)]
    client.link.hang_up()


def test_nobody_waits_for_a_hub_that_does_not_read(serve: Callable[[Script], Server]) -> None:
    may_read, bodies, received = threading.Event(), list[bytes](), list[Any]()

    def script(server: Server) -> None:
        server.greet()
        server.join()
        may_read.wait(20)
        for _ in bodies:
            received.append(server.packet()["data"][1])
        server.wait()

    client = Client(url(serve(script)))
    client.soon(ConnectionOpened)
    longest_s, size = 0.0, 0
    connection = client.link._connection
    assert connection is not None
    while connection.waiting < 100 and size < BLOCKED_MAX_BYTES:
        bodies.append(secrets.token_bytes(random.choice((10, 1_500, 4_096, 60_000))))
        began = time.monotonic()
        client.link.say(bodies[-1])
        longest_s = max(longest_s, time.monotonic() - began)
        size += len(bodies[-1])
    assert connection.waiting >= 100, "the sockets took it all"
    assert longest_s < 2.0
    may_read.set()
    assert soon(lambda: len(received) == len(bodies))
    assert received == bodies
    assert not [event for event in client.link.events() if isinstance(event, ConnectionClosed)]
    client.link.hang_up()


def test_a_hub_that_asks_and_never_reads(serve: Callable[[Script], Server]) -> None:
    """The cost to us is bounded: we hang up."""
    def script(server: Server) -> None:
        server.greet()
        server.join()
        may_ask.wait(20)
        while True:
            server.send(frame(b"2" + bytes(2_500), Opcode.TEXT))

    may_ask = threading.Event()
    client = Client(url(serve(script)))
    client.soon(ConnectionOpened)
    connection = client.link._connection
    assert connection is not None
    assert connection._socket is not None
    # The kernel takes megabytes by itself.
    connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    may_ask.set()
    assert "does not read" in client.soon(ConnectionClosed, 20).why


def _http(status: int) -> Script:
    def script(server: Server) -> None:
        server.head()
        server.send(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())

    return script


def _greets(**answer: str) -> Script:
    def script(server: Server) -> None:
        server.greet(**answer)
        server.wait()

    return script


def _says(data: bytes) -> Script:
    def script(server: Server) -> None:
        server.head()
        server.send(data)

    return script


def _joins(data: bytes) -> Script:
    def script(server: Server) -> None:
        server.greet()
        server.join()
        server.send(data)
        server.wait()

    return script


def _early(data: bytes) -> Script:
    def script(server: Server) -> None:
        server.greet()
        server.send(data)
        server.wait()

    return script


HUGE = b"\x82\x7f" + (2**40).to_bytes(8) + b"x" * 100
LONG = frame(msgspec.msgpack.encode({"type": 2, "data": [EVENT, msgspec.msgpack.encode(
    {"type": "of_the_future", "x": bytes(900_000)})], "nsp": NAMESPACE}))
OTHER_KEY = base64.b64encode(bytes(20)).decode()
BAD: dict[str, tuple[Script, str, bool]] = {
    "401": (_http(401), "the hub answers HTTP 401: a proxy must pass websockets on", True),
    "403": (_http(403), "the hub answers HTTP 403", True),
    "421": (_http(421), "the name in --hub", True),
    "302": (_http(302), "the hub answers HTTP 302", False),
    "503": (_http(503), "a proxy before the hub answers HTTP 503: it does not reach the hub; does "
            "the hub run?", False),
    "hangs up": (_says(b""), "hung up before it had answered", False),
    "half a head": (_says(b"HTTP/1.1 101"), "hung up before it had answered", False),
    "no HTTP": (_says(b"\x15\x03\x01\x00\x02\x02F\r\n\r\n"), "does not speak HTTP", False),
    "no end": (_says(b"HTTP/1.1 101 x\r\n" + b"a: b\r\n" * HEAD_MAX_BYTES), "answer does not end",
               False),
    "another's key": (_greets(accept=OTHER_KEY), "its websocket handshake is wrong", False),
    "no upgrade": (_greets(upgrade="h2c"), "its websocket handshake is wrong", False),
    "an extension": (_greets(more="Sec-WebSocket-Extensions: permessage-deflate\r\n"),
                     "its websocket handshake is wrong", False),
    "huge": (_joins(HUGE), "more than", False),
    "many": (_joins(frame(b"", Opcode.PING) * 5_000), "more than a hub should", False),
    "much": (_joins(LONG * 15), "more than a hub should", False),
    "masked": (_joins(frame(b"\x80", mask=b"abcd")), "must not", False),
    "no packet": (_joins(frame(b"\xc1")), "an unexpected message", False),
    "no body": (_joins(frame(msgspec.msgpack.encode(
        {"type": 2, "data": [EVENT, "text"], "nsp": NAMESPACE}))), "no hub sends", False),
    "no message": (_joins(frame(msgspec.msgpack.encode(
        {"type": 2, "data": [EVENT, b"\xc1"], "nsp": NAMESPACE}))), "not a message", False),
    "goodbye": (_joins(frame(msgspec.msgpack.encode({"type": 1, "nsp": NAMESPACE}))),
                "the hub hung up", False),
    "closed": (_joins(frame(b"", Opcode.CLOSE)), "the hub hung up", False),
    "closed for a reason": (_joins(frame(b"\x03\xf0too\x1b \xffmuch\n", Opcode.CLOSE)),
                            "the hub hung up: too \ufffdmuch", False),
    "engine closed": (_joins(frame(b"1", Opcode.TEXT)), "the hub hung up", False),
    "refused": (_early(frame(b'0{"pingInterval": 1, "pingTimeout": 1}', Opcode.TEXT) + frame(
        msgspec.msgpack.encode({"type": 4, "data": {"message": "no"}, "nsp": NAMESPACE}))),
        "accepts no agents", False),
    "no terms": (_early(frame(b"0[]", Opcode.TEXT)), "an unexpected message", False),
}


@pytest.mark.parametrize("what", BAD)
def test_whatever_answers_ends_in_a_sentence(
    serve: Callable[[Script], Server], what: str
) -> None:
    script, words, denied = BAD[what]
    client = Client(url(serve(script)))
    closed = client.soon(ConnectionClosed)
    assert words in closed.why
    assert closed.denied is denied
    assert sum(isinstance(event, ConnectionClosed) for event in client.all) == 1
    client.link.hang_up()


def test_a_hub_that_has_stopped_to_ping(serve: Callable[[Script], Server]) -> None:
    def script(server: Server) -> None:
        server.greet()
        server.join(ping_ms=1)
        server.wait()

    client = Client(url(serve(script)))
    assert "stopped sending pings" in client.soon(ConnectionClosed).why


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    why = Client(f"http://127.0.0.1:{port}").soon(ConnectionClosed).why
    assert why.startswith("connection refused: does the hub run there")


def test_a_name_that_is_not_known() -> None:
    why = Client("http://deck.invalid:8050").soon(ConnectionClosed).why
    assert why.startswith("the name in the hub's URL is not known here (")


@pytest.mark.parametrize(("error", "cure"), [
    (TimeoutError("timed out"), "timed out: is the address in the hub's URL right, and does a"),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), "is this machine's network up"),
    (OSError(errno.EIO, "Input/output error"), "input/output error")])
def test_what_is_not_reached_says_what_to_look_at(error: OSError, cure: str) -> None:
    assert cure in reach_words(error)


def test_given_up_before_it_is_there(serve: Callable[[Script], Server]) -> None:
    """An abandoned connection delivers no events and ends by itself."""
    may_greet = threading.Event()

    def script(server: Server) -> None:
        may_greet.wait(10)
        server.greet()
        server.wait()

    client = Client(url(serve(script)))
    client.link.hang_up()
    may_greet.set()
    assert soon(lambda: not any(thread.name == "link" for thread in threading.enumerate()))
    assert not [*client.link.events()]


def test_through_a_proxy_that_the_environment_names(
    serve: Callable[[Script], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    user, word = secrets.token_hex(4), secrets.token_hex(4)

    def script(server: Server) -> None:
        server.head()
        server.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        server.greet()
        server.join()
        server.wait()

    server = serve(script)
    monkeypatch.setenv("http_proxy", f"http://{user}:{word}@127.0.0.1:{server.port}")
    client = Client("http://hub.example.invalid:8050")
    client.soon(ConnectionOpened)
    assert server.heads[0].startswith("CONNECT hub.example.invalid:8050 HTTP/1.1\r\n")
    credentials = base64.b64encode(f"{user}:{word}".encode()).decode()
    assert f"Proxy-Authorization: Basic {credentials}\r\n" in server.heads[0]
    assert "Host: hub.example.invalid:8050\r\n" in server.heads[1]
    assert credentials not in server.heads[1]
    client.link.hang_up()


@pytest.mark.parametrize(("proxy", "words"), [
    ("http://127.0.0.1:{port}", "answers HTTP 407"), ("socks5://127.0.0.1:{port}", "by socks5"),
])
def test_a_proxy_that_does_not_let_us_through(
    serve: Callable[[Script], Server], monkeypatch: pytest.MonkeyPatch, proxy: str, words: str
) -> None:
    server = serve(_http(407))
    monkeypatch.setenv("HTTP_PROXY", proxy.format(port=server.port))
    assert words in Client("http://hub.example.invalid:8050").soon(ConnectionClosed).why
    socket.create_connection(("127.0.0.1", server.port)).close()  # of the one that was not asked


def test_this_machine_and_no_proxy_are_reached_without(
    serve: Callable[[Script], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    client = Client(url(serve(_joins(b""))))
    client.soon(ConnectionOpened)
    client.link.hang_up()


def test_one_hub_by_several_urls_is_tried_in_order(serve: Callable[[Script], Server]) -> None:
    """The link dials the next URL where one does not answer, has hung up, or is hung up on."""
    def welcome(server: Server) -> None:
        server.greet()
        server.join()
        server.send(frame(msgspec.msgpack.encode({"type": 0, "data": {}, "nsp": NAMESPACE})))
        server.send(frame(b"", Opcode.CLOSE))

    first, second = serve(_http(503)), serve(welcome)
    client = Client(url(first))
    client.link.hang_up()
    link = HubLink((url(first), url(second)), lambda _: None, lambda: None)
    urls = []
    for _ in range(3):
        link.dial()
        urls.append(link.url)
        assert soon(lambda: any(isinstance(event, ConnectionClosed)
                                for event in link.events()))
        link.hang_up()  # as a node does then
    # The first server has gone after its one connection: nobody listens there.
    assert urls == [url(first), url(second), url(first)]


def test_what_stands_before_the_hub_is_named(serve: Callable[[Script], Server],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def nginx(status: int) -> Script:
        return _says(f"HTTP/1.1 {status} x\r\nServer: nginx/1.22.1\r\n\r\n".encode())

    for status, words in ((502, "(nginx/1.22.1) answers HTTP 502: it does not reach the hub"),
                          (400, "does it pass websockets on"),
                          (401, "does it pass websockets on"), (301, "answers HTTP 301")):
        closed = Client(url(serve(nginx(status)))).soon(ConnectionClosed)
        assert "nginx/1.22.1" in closed.why
        assert words in closed.why
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    link = HubLink(("https://hub.example:8443",), lambda _: ssl.create_default_context(),
                   lambda: None)
    link.dial()
    events: list[Any] = []

    def has_any() -> bool:
        events.extend(link.events())
        return events != []

    assert soon(has_any)
    assert "the proxy 127.0.0.1:9, which the environment names, cannot be reached" in (
        events[0].why)
