"""The agent's connection from its first byte, against a server by hand: whatever answers, it ends
in a sentence for people, soon, and at a bounded cost."""

import base64
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

from agent.link.socket import ConnectionClosed, ConnectionOpened, HubLink, MessageReceived
from gpudeck.dial import HEAD_MAX_BYTES
from gpudeck.websocket import Control, Message, Opcode, WebSocketReader, accept_key, frame
from gpudeck.wire import EVENT, MAX_MESSAGE_BYTES, NAMESPACE, Ack, encode
from tests.demos import soon
from tests.patience import GIVE_UP_S

BLOCKED_MAX_BYTES = 64 * 2**20  # far more than two sockets hold
Talk = Callable[["Hand"], None]


class Hand:
    """Takes one connection, and does with it what the test says."""

    def __init__(self, talk: Talk) -> None:
        self.heads: list[str] = []
        self.taken: list[Message | Control] = []
        self.failed: list[BaseException] = []
        self._talk = talk
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
                self._talk(self)
        except (ConnectionError, BrokenPipeError):
            pass  # the agent may go at any time
        except BaseException as error:
            self.failed.append(error)

    def head(self) -> str:
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            more = self.sock.recv(1)
            if not more:
                raise ConnectionError
            said += more
        self.heads.append(said.decode())
        return self.heads[-1]

    def greet(self, accept: str | None = None, more: str = "", upgrade: str = "websocket") -> None:
        head = self.head()
        key = next(line.split(": ")[1] for line in head.splitlines()
                   if line.startswith("Sec-WebSocket-Key"))
        self.say(f"HTTP/1.1 101 Switching\r\nUPGRADE: {upgrade}\r\nconnection: upgrade\r\n"
                 f"sec-websocket-ACCEPT: {accept or accept_key(key)}\r\n{more}\r\n".encode())

    def join(self, ping_ms: int = 25_000) -> None:
        opened = msgspec.json.encode({"sid": "x", "pingInterval": ping_ms, "pingTimeout": 0})
        self.say(frame(b"0" + opened, Opcode.TEXT))
        assert self.packet() == {"type": 0, "data": {}, "nsp": NAMESPACE}
        self.emit({"type": 0, "data": {"sid": "y"}, "nsp": NAMESPACE})

    def emit(self, packet: Any) -> None:
        self.say(frame(msgspec.msgpack.encode(packet)))

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def next(self) -> Message | Control:
        while not self.taken:
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionError
            self.taken += self._reader.feed(data)
        return self.taken.pop(0)

    def packet(self) -> Any:
        said = self.next()
        assert isinstance(said, bytes)
        return msgspec.msgpack.decode(said)

    def wait(self) -> None:
        """Until the agent goes."""
        while self.sock.recv(65_536):
            pass

    def close(self) -> None:
        self._thread.join(15)
        self._listener.close()
        assert not self._thread.is_alive()
        assert not self.failed, self.failed


@pytest.fixture(name="hands")
def _hands() -> Iterator[Callable[[Talk], Hand]]:
    hands: list[Hand] = []

    def start(talk: Talk) -> Hand:
        hands.append(Hand(talk))
        return hands[-1]

    yield start
    for hand in hands:
        hand.close()


class Told:
    def __init__(self, url: str) -> None:
        self.all: list[Any] = []
        self.link = HubLink((url,), lambda _: None, lambda: None)
        self.link.dial()

    def soon(self, kind: type, within_s: float = GIVE_UP_S) -> Any:
        def found() -> bool:
            self.all += self.link.events()
            return any(isinstance(each, kind) for each in self.all)

        assert soon(found, within_s), self.all
        return next(each for each in self.all if isinstance(each, kind))

    def heard(self) -> list[Any]:
        self.all += self.link.events()
        return [each.message for each in self.all if isinstance(each, MessageReceived)]


def url(hand: Hand) -> str:
    return f"http://127.0.0.1:{hand.port}"


def ack(seq: int) -> dict[str, Any]:
    return {"type": 2, "data": [EVENT, encode(Ack(seq))], "nsp": NAMESPACE}


def test_it_asks_as_no_browser_does_and_answers_pings(hands: Callable[[Talk], Hand]) -> None:
    seq, word = random.randrange(1, 2**40), secrets.token_hex(8)
    bodies: list[Any] = []

    def talk(hand: Hand) -> None:
        hand.greet()
        hand.join()
        hand.say(frame(f"2{word}".encode(), Opcode.TEXT))
        assert hand.next() == f"3{word}"
        hand.say(frame(word.encode(), Opcode.PING))
        assert hand.next() == (Opcode.PONG, word.encode())
        said = frame(msgspec.msgpack.encode(ack(seq)))
        for at in range(len(said)):  # one byte at a time
            hand.say(said[at : at + 1])
        bodies.append(hand.packet())
        assert hand.packet()["type"] == 1
        assert hand.next() == (Opcode.CLOSE, b"\x03\xe8")

    hand = hands(talk)
    told = Told(url(hand))
    told.soon(ConnectionOpened)
    assert told.soon(MessageReceived).message == Ack(seq)
    body = os.urandom(random.randrange(70_000))
    told.link.say(body)
    assert soon(lambda: bodies != [])
    assert bodies == [{"type": 2, "data": [EVENT, body], "nsp": NAMESPACE}]
    ending = told.link.hang_up()
    assert ending is not None
    ending.join(10)
    head = hand.heads[0].lower()
    assert head.startswith("get /socket.io/?transport=websocket&eio=4 http/1.1\r\n")
    assert f"host: 127.0.0.1:{hand.port}\r\n" in head
    assert "origin" not in head
    assert "cookie" not in head


def test_parts_of_a_message_are_put_together(hands: Callable[[Talk], Hand]) -> None:
    seqs = [random.randrange(2**40) for _ in range(3)]

    def talk(hand: Hand) -> None:
        hand.greet()
        hand.join()
        for seq in seqs:
            said = msgspec.msgpack.encode(ack(seq))
            cut = random.randrange(len(said))
            first, last = frame(said[:cut]), frame(said[cut:], Opcode.CONTINUATION)
            hand.say(bytes([first[0] & 0x7F]) + first[1:] + frame(b"", Opcode.PING) + last)
        hand.wait()

    told = Told(url(hands(talk)))
    told.soon(ConnectionOpened)
    assert soon(lambda: len(told.heard()) == 3)
    assert told.heard() == [*map(Ack, seqs)]
    told.link.hang_up()


def test_nobody_waits_for_a_hub_that_does_not_read(hands: Callable[[Talk], Hand]) -> None:
    may_read, said, taken = threading.Event(), list[bytes](), list[Any]()

    def talk(hand: Hand) -> None:
        hand.greet()
        hand.join()
        may_read.wait(20)
        for _ in said:
            taken.append(hand.packet()["data"][1])
        hand.wait()

    told = Told(url(hands(talk)))
    told.soon(ConnectionOpened)
    longest_s, size = 0.0, 0
    connection = told.link._connection
    assert connection is not None
    while connection.waiting < 100 and size < BLOCKED_MAX_BYTES:
        said.append(secrets.token_bytes(random.choice((10, 1_500, 4_096, 60_000))))
        began = time.monotonic()
        told.link.say(said[-1])
        longest_s = max(longest_s, time.monotonic() - began)
        size += len(said[-1])
    assert connection.waiting >= 100, "the sockets took it all"
    assert longest_s < 2.0
    may_read.set()
    assert soon(lambda: len(taken) == len(said))
    assert taken == said
    assert not [each for each in told.link.events() if isinstance(each, ConnectionClosed)]
    told.link.hang_up()


def test_a_hub_that_asks_and_never_reads(hands: Callable[[Talk], Hand]) -> None:
    """What it costs us is bounded: we hang up."""
    def talk(hand: Hand) -> None:
        hand.greet()
        hand.join()
        may_ask.wait(20)
        while True:
            hand.say(frame(b"2" + bytes(2_500), Opcode.TEXT))

    may_ask = threading.Event()
    told = Told(url(hands(talk)))
    told.soon(ConnectionOpened)
    connection = told.link._connection
    assert connection is not None
    assert connection._socket is not None
    # The kernel takes megabytes by itself.
    connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    may_ask.set()
    assert "does not read" in told.soon(ConnectionClosed, 20).why


def _http(status: int) -> Talk:
    def talk(hand: Hand) -> None:
        hand.head()
        hand.say(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())

    return talk


def _greets(**said: str) -> Talk:
    def talk(hand: Hand) -> None:
        hand.greet(**said)
        hand.wait()

    return talk


def _says(data: bytes) -> Talk:
    def talk(hand: Hand) -> None:
        hand.head()
        hand.say(data)

    return talk


def _joined(data: bytes) -> Talk:
    def talk(hand: Hand) -> None:
        hand.greet()
        hand.join()
        hand.say(data)
        hand.wait()

    return talk


def _early(data: bytes) -> Talk:
    def talk(hand: Hand) -> None:
        hand.greet()
        hand.say(data)
        hand.wait()

    return talk


HUGE = b"\x82\x7f" + (2**40).to_bytes(8) + b"x" * 100
LONG = frame(msgspec.msgpack.encode({"type": 2, "data": [EVENT, msgspec.msgpack.encode(
    {"type": "of_the_future", "x": bytes(900_000)})], "nsp": NAMESPACE}))
OTHER_KEY = base64.b64encode(bytes(20)).decode()
BAD: dict[str, tuple[Talk, str, bool]] = {
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
    "huge": (_joined(HUGE), "more than", False),
    "many": (_joined(frame(b"", Opcode.PING) * 5_000), "more than a hub should", False),
    "much": (_joined(LONG * 15), "more than a hub should", False),
    "masked": (_joined(frame(b"\x80", mask=b"abcd")), "must not", False),
    "no packet": (_joined(frame(b"\xc1")), "an unexpected message", False),
    "no body": (_joined(frame(msgspec.msgpack.encode(
        {"type": 2, "data": [EVENT, "text"], "nsp": NAMESPACE}))), "no hub sends", False),
    "no message": (_joined(frame(msgspec.msgpack.encode(
        {"type": 2, "data": [EVENT, b"\xc1"], "nsp": NAMESPACE}))), "not a message", False),
    "goodbye": (_joined(frame(msgspec.msgpack.encode({"type": 1, "nsp": NAMESPACE}))),
                "the hub hung up", False),
    "closed": (_joined(frame(b"", Opcode.CLOSE)), "the hub hung up", False),
    "closed for a reason": (_joined(frame(b"\x03\xf0too\x1b \xffmuch\n", Opcode.CLOSE)),
                            "the hub hung up: too \ufffdmuch", False),
    "engine closed": (_joined(frame(b"1", Opcode.TEXT)), "the hub hung up", False),
    "refused": (_early(frame(b'0{"pingInterval": 1, "pingTimeout": 1}', Opcode.TEXT) + frame(
        msgspec.msgpack.encode({"type": 4, "data": {"message": "no"}, "nsp": NAMESPACE}))),
        "accepts no agents", False),
    "no terms": (_early(frame(b"0[]", Opcode.TEXT)), "an unexpected message", False),
}


@pytest.mark.parametrize("what", BAD)
def test_whatever_answers_ends_in_a_sentence(
    hands: Callable[[Talk], Hand], what: str
) -> None:
    talk, words, denied = BAD[what]
    told = Told(url(hands(talk)))
    closed = told.soon(ConnectionClosed)
    assert words in closed.why
    assert closed.denied is denied
    assert sum(isinstance(each, ConnectionClosed) for each in told.all) == 1
    told.link.hang_up()


def test_a_hub_that_has_stopped_to_ping(hands: Callable[[Talk], Hand]) -> None:
    def talk(hand: Hand) -> None:
        hand.greet()
        hand.join(ping_ms=1)
        hand.wait()

    told = Told(url(hands(talk)))
    assert "stopped sending pings" in told.soon(ConnectionClosed).why


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "refused" in Told(f"http://127.0.0.1:{port}").soon(ConnectionClosed).why


def test_given_up_before_it_is_there(hands: Callable[[Talk], Hand]) -> None:
    """Nothing of an abandoned connection is told, and it ends by itself."""
    may_greet = threading.Event()

    def talk(hand: Hand) -> None:
        may_greet.wait(10)
        hand.greet()
        hand.wait()

    told = Told(url(hands(talk)))
    told.link.hang_up()
    may_greet.set()
    assert soon(lambda: not any(each.name == "link" for each in threading.enumerate()))
    assert not [*told.link.events()]


def test_through_a_proxy_that_the_environment_names(
    hands: Callable[[Talk], Hand], monkeypatch: pytest.MonkeyPatch
) -> None:
    user, word = secrets.token_hex(4), secrets.token_hex(4)

    def talk(hand: Hand) -> None:
        hand.head()
        hand.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
        hand.greet()
        hand.join()
        hand.wait()

    hand = hands(talk)
    monkeypatch.setenv("http_proxy", f"http://{user}:{word}@127.0.0.1:{hand.port}")
    told = Told("http://hub.example.invalid:8050")
    told.soon(ConnectionOpened)
    assert hand.heads[0].startswith("CONNECT hub.example.invalid:8050 HTTP/1.1\r\n")
    said = base64.b64encode(f"{user}:{word}".encode()).decode()
    assert f"Proxy-Authorization: Basic {said}\r\n" in hand.heads[0]
    assert "Host: hub.example.invalid:8050\r\n" in hand.heads[1]
    assert said not in hand.heads[1]
    told.link.hang_up()


@pytest.mark.parametrize(("named", "words"), [
    ("http://127.0.0.1:{port}", "answers HTTP 407"), ("socks5://127.0.0.1:{port}", "by socks5"),
])
def test_a_proxy_that_does_not_let_us_through(
    hands: Callable[[Talk], Hand], monkeypatch: pytest.MonkeyPatch, named: str, words: str
) -> None:
    hand = hands(_http(407))
    monkeypatch.setenv("HTTP_PROXY", named.format(port=hand.port))
    assert words in Told("http://hub.example.invalid:8050").soon(ConnectionClosed).why
    socket.create_connection(("127.0.0.1", hand.port)).close()  # of the one that was not asked


def test_this_machine_and_no_proxy_are_reached_without(
    hands: Callable[[Talk], Hand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    told = Told(url(hands(_joined(b""))))
    told.soon(ConnectionOpened)
    told.link.hang_up()


def test_one_hub_by_several_urls_is_tried_in_order(hands: Callable[[Talk], Hand]) -> None:
    """The next where one does not answer, has hung up, or is hung up on."""
    def welcome(hand: Hand) -> None:
        hand.greet()
        hand.join()
        hand.say(frame(msgspec.msgpack.encode({"type": 0, "data": {}, "nsp": NAMESPACE})))
        hand.say(frame(b"", Opcode.CLOSE))

    first, second = hands(_http(503)), hands(welcome)
    told = Told(url(first))
    told.link.hang_up()
    link = HubLink((url(first), url(second)), lambda _: None, lambda: None)
    tried = []
    for _ in range(3):
        link.dial()
        tried.append(link.url)
        assert soon(lambda: any(isinstance(each, ConnectionClosed)
                                for each in link.events()))
        link.hang_up()  # as a node does then
    # The first hand has gone after its one connection: nobody listens there.
    assert tried == [url(first), url(second), url(first)]


def test_what_stands_before_the_hub_is_named(hands: Callable[[Talk], Hand],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def nginx(status: int) -> Talk:
        return _says(f"HTTP/1.1 {status} x\r\nServer: nginx/1.22.1\r\n\r\n".encode())

    for status, words in ((502, "(nginx/1.22.1) answers HTTP 502: it does not reach the hub"),
                          (400, "does it pass websockets on"),
                          (401, "does it pass websockets on"), (301, "answers HTTP 301")):
        closed = Told(url(hands(nginx(status)))).soon(ConnectionClosed)
        assert "nginx/1.22.1" in closed.why
        assert words in closed.why
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    link = HubLink(("https://hub.example:8443",), lambda _: ssl.create_default_context(),
                   lambda: None)
    link.dial()
    found: list[Any] = []

    def has_any() -> bool:
        found.extend(link.events())
        return found != []

    assert soon(has_any)
    assert "the proxy 127.0.0.1:9, which the environment names, cannot be reached" in (
        found[0].why)
