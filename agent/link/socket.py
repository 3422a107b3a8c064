"""The agent's only network: one Socket.IO connection to the hub at a time, with `dial`.

Events are queued and announced by `wake`; nothing here blocks the node's own thread. A connection
is a thread that dials and then receives. A message is sent from the caller's own thread, into a
socket that never blocks; only what does not fit there is carried by a second thread, until it is
out.

python-socketio's client brought 13 MB into each agent (asyncio, requests, servers of every kind),
slept on a thread more, and took messages of any size.
"""

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpudeck.contract import wire
from gpudeck.network import websocket
from gpudeck.network.dial import HttpStatusError, opened
from gpudeck.network.trouble import proxy_words, unreached_words
from gpudeck.rate import TokenBucket

# A hub has little to send: an Ack a second, now and then a question or an order.
MESSAGES_PER_S, MESSAGES_AT_ONCE = 100.0, 3_000.0
BYTES_PER_S, BYTES_AT_ONCE = 500_000.0, 8_000_000.0
CONNECT_S = 5.0
CONNECT_ONE_OF_S = 2.0  # where there is another URL
# The name of a hub that waits to take another's place.
STANDBY = "gpudeck-standby"
LEAVE_S = 1.0  # for the other side to say goodbye, too
DRAIN_ROUND_MS = 1_000
DENIALS = (401, 403, 421)
RECV_BYTES = 65_536
ENVELOPE_BYTES = 1_024
WAITING_MAX = 1_024  # frames; for a hub that goes on asking
SILENCE_MAX_S = 600.0  # whatever the hub says of its pings
# Types of Socket.IO's packets (protocol 5), and engine.io's (protocol 4), which are text.
CONNECT, DISCONNECT, HAPPENED, REFUSED = 0, 1, 2, 4
OPENED, CLOSED, PING, PONG = "0", "1", "2", "3"
_pack = msgspec.msgpack.Encoder().encode


class SocketIoPacket(msgspec.Struct):
    type: int
    nsp: str
    data: Any = None


class PingSettings(msgspec.Struct):
    """Timing of a hub's pings, in ms."""

    ping_interval: float = msgspec.field(name="pingInterval")
    ping_timeout: float = msgspec.field(name="pingTimeout")


_packets = msgspec.msgpack.Decoder(SocketIoPacket)
_terms = msgspec.json.Decoder(PingSettings)


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    pass


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    why: str
    denied: bool = False


@dataclass(frozen=True, slots=True)
class MessageReceived:
    message: wire.FromHub


LinkEvent = ConnectionOpened | ConnectionClosed | MessageReceived


class _ConnectionEndedError(Exception):
    """The connection has ended. The sentence is for people."""


def envelop(body: bytes) -> bytes:
    """Wrap a message as python-socketio's own emit() does."""
    return _pack({"type": HAPPENED, "data": [wire.EVENT, body], "nsp": wire.NAMESPACE})


def _frame(payload: bytes, opcode: websocket.Opcode = websocket.Opcode.BINARY) -> bytes:
    return websocket.frame(payload, opcode, os.urandom(4))


class _HubConnection:
    """A single connection, from dialing to its end; `notify` gets one ConnectionClosed, at the
    end."""

    def __init__(self, url: str, tls_of: "TlsOf", connect_s: float,
                 notify: "Callable[[_HubConnection, LinkEvent], None]") -> None:
        self.is_open = False
        self._url, self._tls_of, self._notify = url, tls_of, notify
        self._socket: socket.socket | None = None  # None: not yet, or no more
        # Around each use of the socket: what TLS keeps of it is not for two threads at once.
        self._lock = threading.Lock()
        self._waits: deque[bytes | memoryview] = deque()
        self._is_carried = self._is_over = False
        self._closed = threading.Event()
        self._silence_s = CONNECT_S
        self._connect_s = connect_s
        now = time.monotonic()
        self._messages = TokenBucket(MESSAGES_PER_S, MESSAGES_AT_ONCE, now)
        self._bytes = TokenBucket(BYTES_PER_S, BYTES_AT_ONCE, now)
        threading.Thread(target=self._live, name="link", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Frames that did not fit into the socket yet."""
        return len(self._waits)

    def say(self, body: bytes) -> None:
        self._push(_frame(envelop(body)))

    def leave(self) -> threading.Thread:
        """Start the thread that says goodbye: the other side may take a second to answer."""
        thread = threading.Thread(target=self._leave, name="link-end", daemon=True)
        thread.start()
        return thread

    def _leave(self) -> None:
        self._is_over = True
        if self.is_open:
            self._push(_frame(_pack({"type": DISCONNECT, "nsp": wire.NAMESPACE})))
            self._push(websocket.close_frame(websocket.CloseCode.NORMAL, "", os.urandom(4)))
            self._closed.wait(LEAVE_S)
        self._cut()

    def _live(self) -> None:
        try:
            # Certificates of trusted authorities are renewed under a running agent.
            sock, data = opened(self._url, self._tls_of(self._url), self._connect_s)
            sock.setblocking(False)
            self._socket = sock
            self._receive(sock, data)
        except Exception as error:  # whatever it was, a later connection may live
            self._close()
            self._notify(self, ConnectionClosed(*_why(error)))

    def _receive(self, sock: socket.socket, data: bytes | None) -> None:
        """Receive until the connection ends, as an exception."""
        reader = websocket.WebSocketReader(wire.MAX_MESSAGE_BYTES + ENVELOPE_BYTES,
                                           is_masked=False)
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while True:
            for message in reader.feed(data or b""):
                self._take(message)
            if self._is_over and not self.is_open:
                raise _ConnectionEndedError("given up")
            data = self._read(sock)
            if data == b"":
                raise _ConnectionEndedError("the hub hung up")
            if data is None and not poll.poll(self._silence_s * 1_000):
                raise _ConnectionEndedError("the hub has stopped sending pings")

    def _read(self, sock: socket.socket) -> bytes | None:
        """Read what is there; None: nothing is there now."""
        with self._lock:
            try:
                return sock.recv(RECV_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            except OSError:
                return b""

    def _take(self, message: websocket.Message | websocket.Control) -> None:
        # A hub that was taken over must not fill this node's memory, disk and log.
        now = time.monotonic()
        if not (self._messages.take(1.0, now) and self._bytes.take(_size(message), now)):
            raise _ConnectionEndedError("the hub sends more than a hub should")
        match message:
            case bytes():
                self._take_packet(_packets.decode(message))
            case str():
                self._take_engines(message)
            case (websocket.Opcode.PING, payload):
                self._answer(_frame(payload, websocket.Opcode.PONG))
            case (websocket.Opcode.CLOSE, payload):
                reason = "".join(filter(str.isprintable, payload[2:].decode(errors="replace")))
                raise _ConnectionEndedError(f"the hub hung up: {reason}" if reason
                                            else "the hub hung up")

    def _take_engines(self, text: str) -> None:
        kind, payload = text[:1], text[1:]
        if kind == OPENED:
            terms = _terms.decode(payload)
            asked_s = (terms.ping_interval + terms.ping_timeout) / 1_000
            self._silence_s = min(max(asked_s, 1.0), SILENCE_MAX_S)
            join = _pack({"type": CONNECT, "data": {}, "nsp": wire.NAMESPACE})
            self._answer(_frame(join))
        elif kind == PING:
            self._answer(_frame((PONG + payload).encode(), websocket.Opcode.TEXT))
        elif kind == CLOSED:
            raise _ConnectionEndedError("the hub hung up")

    def _take_packet(self, packet: SocketIoPacket) -> None:
        if packet.nsp != wire.NAMESPACE:
            return
        if packet.type == CONNECT and not self.is_open:
            self.is_open = True
            self._notify(self, ConnectionOpened())
        elif packet.type == HAPPENED and self.is_open:
            match packet.data:
                case [str(event), bytes(body)] if event == wire.EVENT:
                    self._notify(self, MessageReceived(wire.decode_from_hub(body)))
                case _:
                    raise wire.WireError("an event that no hub sends to agents")
        elif packet.type == DISCONNECT:
            raise _ConnectionEndedError("the hub hung up")
        elif packet.type == REFUSED:
            raise _ConnectionEndedError("the hub accepts no agents at this address")

    def _answer(self, data: bytes) -> None:
        if len(self._waits) > WAITING_MAX:
            raise _ConnectionEndedError("the hub sends requests and does not read answers")
        self._push(data)

    def _push(self, data: bytes) -> None:
        """Send in the order of the calls; what does not fit into the socket is carried there."""
        with self._lock:
            if self._socket is None:
                return
            self._waits.append(data)
            if self._is_carried or self._drain(self._socket):
                return
            self._is_carried = True
        threading.Thread(target=self._carry, name="link-carry", daemon=True).start()

    def _carry(self) -> None:
        poll = select.poll()
        with self._lock:
            if self._socket is not None:
                poll.register(self._socket, select.POLLOUT)
        while True:
            poll.poll(DRAIN_ROUND_MS)
            with self._lock:
                if self._socket is None or self._drain(self._socket):
                    self._is_carried = False
                    return

    def _drain(self, sock: socket.socket) -> bool:
        """Send what waits; True: nothing waits any more."""
        while self._waits:
            try:
                sent_bytes = sock.send(self._waits[0])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            except OSError:  # half a message may be out: nothing may follow it
                self._break(sock)
                return True
            remainder = memoryview(self._waits.popleft())[sent_bytes:]
            if remainder:
                self._waits.appendleft(remainder)
        return True

    def _cut(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._break(self._socket)

    def _break(self, sock: socket.socket) -> None:
        """The receiving thread wakes up and closes it."""
        self._waits.clear()
        with contextlib.suppress(OSError):  # it has ended already
            # Not the TLS socket's own, which would read on without TLS.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _close(self) -> None:
        self.is_open = False
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            self._waits.clear()
        self._closed.set()


def _size(message: websocket.Message | websocket.Control) -> int:
    return len(message[1] if isinstance(message, tuple) else message)


TlsOf = Callable[[str], ssl.SSLContext | None]


class HubLink:
    """Link to one hub, or the one that has taken its place, by any of their URLs: the next one
    where one does not answer or has hung up."""

    def __init__(self, urls: Sequence[str], tls_of: TlsOf, wake: Callable[[], None]) -> None:
        """`tls_of`: what a connection to this URL is verified by, as it is now."""
        self._urls = urls
        self._at = self._next_at = 0
        self.url = urls[0] if urls else ""  # of the newest connection
        self._tls_of = tls_of
        self._wake = wake
        self._connection: _HubConnection | None = None
        self._happened: deque[tuple[_HubConnection, LinkEvent]] = deque()
        self.acks_wake = True  # else they wait for whatever else happens

    def dial(self) -> None:
        """Dial; ends in ConnectionOpened or ConnectionClosed."""
        self.url = self._urls[self._at]
        self._next_at = (self._at + 1) % len(self._urls)
        connect_s = CONNECT_S if len(self._urls) == 1 else CONNECT_ONE_OF_S
        self._connection = _HubConnection(self.url, self._tls_of, connect_s, self._queue_event)

    def say(self, body: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        if connection.is_open:
            connection.say(body)
        else:
            self._queue_event(connection, ConnectionClosed("the connection broke"))

    def hang_up(self) -> threading.Thread | None:
        connection, self._connection = self._connection, None
        if connection is None:
            return None
        self._at = self._next_at  # also where it has ended already
        return connection.leave()

    def events(self) -> Iterator[LinkEvent]:
        """Yield what happened since the last call, without what an abandoned connection still
        sends."""
        while self._happened:
            connection, event = self._happened.popleft()
            if connection is self._connection:
                if isinstance(event, ConnectionClosed):
                    self._at = self._next_at
                yield event

    def _queue_event(self, connection: _HubConnection, event: LinkEvent) -> None:
        self._happened.append((connection, event))
        is_ack = isinstance(event, MessageReceived) and isinstance(event.message, wire.Ack)
        if self.acks_wake or not is_ack:
            self._wake()


def _why(error: Exception) -> tuple[str, bool]:
    """Return the reason in words for people, and whether asking again soon is pointless."""
    match error:
        case HttpStatusError(status=status, server=server):
            return _status_words(status, server), status in DENIALS
        case websocket.WebSocketViolationError() | wire.WireError() | msgspec.MsgspecError():
            return f"the hub sent an unexpected message: {error}", False
    return unreached_words(error), isinstance(error, ssl.SSLCertVerificationError)


def _status_words(status: int, server: str) -> str:
    """Return what an HTTP status means. `server`: the name of what answers; a hub gives none."""
    if server == STANDBY:
        return "this hub is a standby of another one"
    if status in (502, 503, 504):
        return proxy_words(status, server)
    if server and status in (400, 401, 404, 426):
        return (f"{proxy_words(status, server)}: does it pass websockets on (Upgrade, Connection)? "
                "See docs/install.md")
    if status == 401:  # a hub asks nobody who comes by a websocket
        return ("the hub answers HTTP 401: a proxy must pass websockets on (Upgrade, Connection); "
                "see docs/install.md")
    if status == 421:
        return ("the hub does not answer under the name in --hub; use the URL that it prints, or "
                "its --public-url; a proxy must pass Host on as it came")
    return proxy_words(status, server) if server else f"the hub answers HTTP {status}"
