"""Bounded sockets: engine.io over our own websocket driver.

python-engineio has no bound on a frame before it is assembled, none on what waits to be sent, takes
its liveness from the wall clock, and logs a traceback for every malformed packet. Everything that
touches a byte of a socket before a handler sees it is here, with its limits in one table.
"""

import fcntl
import logging
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs

import engineio
import gevent
import socketio
from engineio import packet as eio_packet
from flask import Flask
from flask_socketio import SocketIO
from gevent.event import AsyncResult, Event
from gevent.ssl import SSLSocket
from socketio.msgpack_packet import MsgPackPacket

from gpudeck.contract.wire import MAX_MESSAGE_BYTES
from gpudeck.network.websocket import (
    CloseCode,
    Message,
    Opcode,
    WebSocketReader,
    WebSocketViolationError,
    accept_key,
    close_frame,
    frame,
)
from gpudeck.rate import TokenBucket

from .envelopes import decode_envelope
from .http_server import ClientConnection, ServerCounters, cut

log = logging.getLogger("gpudeck.web")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

RECV_BYTES = 65_536
BUSY_S = 0.005
PING_TIMEOUT_S = 20.0  # what clients are told: how late a ping may be
ADMIT_WITHIN_S = 5.0  # of the peer's own time, for each of so many steps
ADMIT_STEPS = 3  # Socket.IO's connect, Call, Hello
FINISH_WITHIN_S = 30.0
QUEUE_FRAMES = 256
UNADMITTED_BYTES = 16_384
UNADMITTED_PER_S = 4.0
UNADMITTED_BURST = 16.0
# The Socket.IO packet around a message: its keys, the event's name, the namespace.
ENVELOPE_BYTES = 256
AGENT_BYTES = MAX_MESSAGE_BYTES + ENVELOPE_BYTES


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection: what it may send, how often it is pinged, and after how long without
    an answer, or with a frame it does not take, it is cut. A kernel's buffers hide for minutes that
    a viewer of a small fleet does not read: its missing answers show it."""

    max_bytes: int
    messages_per_s: float
    messages_burst: float
    ping_every_s: float
    stall_s: float


class StrictPacket(MsgPackPacket):  # type: ignore[misc]
    """Packets that decode only if well formed; all else raises WebSocketViolationError."""

    def decode(self, encoded_packet: bytes) -> int:
        envelope = decode_envelope(encoded_packet)
        self.packet_type, self.data = envelope.type, envelope.data
        self.id, self.namespace = None, envelope.nsp
        return 0


class RemoteEnd(Protocol):
    """Another process that serves a socket from now on."""

    def send(self, encoded: bytes) -> None: ...

    def finish(self, farewell: bytes) -> None:
        """Send what was given before, then this, and close."""

    def forget(self) -> None:
        """Pass nothing on any more: the connection ends here."""


class Handover:
    """A socket in the care of another process, until it ends there."""

    __slots__ = ("_end", "remote")

    def __init__(self, remote: RemoteEnd) -> None:
        self.remote = remote
        self._end: AsyncResult[str] = AsyncResult()

    def wait(self) -> str:
        """Wait for its end; return the reason."""
        reason: str = self._end.get() or "gone"
        return reason

    def end(self, reason: str) -> None:
        if not self._end.ready():
            self._end.set(reason)


class BoundedSocket:
    """An engine.io connection: what it may send, what waits to be sent, and whether it lives.

    What is queued is bounded in number. `pull`, where an endpoint sets it, is asked for the next
    frame whenever the kernel has taken the last one: a viewer has no queue at all.
    """

    def __init__(self, engine: "BoundedEngine", sid: str, sock: Any,
                 allowance: ConnectionLimits) -> None:
        mono = time.monotonic()
        self.sid = sid
        self.session: dict[str, Any] = {}
        self.closed = False
        self.upgraded = self.connected = True
        self.is_admitted = False
        self.pull: Callable[[], bytes | None] | None = None
        # Asked, between two messages, whether another process takes the socket.
        self.hand_over: Callable[[], RemoteEnd | None] | None = None
        self._steps = 0
        self.rest_s = 0.0  # how long to wait before reading on; the kernel slows the sender down
        self.opened_mono = self.heard_mono = self.pinged_mono = mono
        self.allowance = allowance
        self._engine = engine
        self.sock = sock
        self._reader = WebSocketReader(min(UNADMITTED_BYTES, allowance.max_bytes))
        self._inside_since_mono = mono
        self._bucket = TokenBucket(UNADMITTED_PER_S, UNADMITTED_BURST, mono)
        self._queue: deque[bytes] = deque()
        self._wake = Event()
        self._farewell: bytes | None = None
        self._is_writer_idle = False
        self.handover: Handover | None = None

    def admit(self) -> None:
        """Apply the connection's own limits, now that it has proved its identity."""
        self.is_admitted = True
        self._reader.max_bytes = self.allowance.max_bytes
        self._bucket = TokenBucket(self.allowance.messages_per_s, self.allowance.messages_burst,
                                   time.monotonic())

    # -- sending

    def send(self, packet: Any) -> None:
        """Queue a packet of engine.io itself: open, ping, and Socket.IO's answer to a connect."""
        encoded = packet.encode()
        if isinstance(encoded, str):
            self.push(frame(encoded.encode(), Opcode.TEXT))
        else:
            self.push(frame(encoded))

    def push(self, encoded: bytes) -> None:
        if self.closed or self._farewell is not None:
            return
        if self.handover is not None:
            self.handover.remote.send(encoded)
            return
        if len(self._queue) >= QUEUE_FRAMES:
            self._engine.tally.add("too_slow")
            self.abort()
            return
        self._queue.append(encoded)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    @property
    def is_ending(self) -> bool:
        return self.closed or self._farewell is not None

    def write(self) -> None:
        try:
            while not self.closed:
                if self.handover is not None:
                    return
                encoded = self._next()
                if encoded is None:
                    if self._farewell is not None:
                        self.sock.sendall(self._farewell)
                        break
                    self._is_writer_idle = True
                    self._wake.wait()
                    self._wake.clear()
                    self._is_writer_idle = False
                    continue
                with gevent.Timeout(self.allowance.stall_s, TimeoutError):
                    # gevent's sendall asks the kernel for its buffer's size each time.
                    sent_bytes = self.sock.send(encoded)
                    if sent_bytes < len(encoded):
                        self.sock.sendall(encoded[sent_bytes:])
        except TimeoutError:
            self._engine.tally.add("too_slow")
            log.info("closed peer=%s reason=too_slow", self.sid)
        except OSError:
            pass
        self.abort()

    def _next(self) -> bytes | None:
        if self._queue:
            return self._queue.popleft()
        return self.pull() if self.pull is not None and self._farewell is None else None

    # -- closing

    def finish(self, code: CloseCode, reason: str) -> None:
        """Send what is queued, say why, close."""
        if self._farewell is None:
            self._farewell = close_frame(code, reason)
            self._wake.set()
            if self.handover is not None:
                self.handover.remote.finish(self._farewell)

    def close(self, wait: bool = True, abort: bool = False, reason: str | None = None) -> None:
        """Close in the way that engine.io calls for."""
        self.finish(CloseCode.NORMAL, reason or "closed")

    def abort(self) -> None:
        self.closed = True
        self._wake.set()
        cut(self.sock)
        if self.handover is not None:
            self.handover.remote.forget()
            self.handover.end("closed")

    # -- reading

    def read(self) -> str:
        """Read until the connection ends; return the reason."""
        busy_s = 0.0
        try:
            while not self.closed:
                waited_from = time.monotonic()
                data = self.sock.recv(RECV_BYTES)
                got = time.monotonic()
                if not data:
                    return "gone"
                self._feed(data, got)
                # gevent's recv switches only when it would block: a sender that always has more
                # ready would keep everyone else waiting.
                busy_s = time.monotonic() - got + (busy_s if got - waited_from < BUSY_S else 0.0)
                if self.rest_s or busy_s > BUSY_S:
                    gevent.sleep(self.rest_s)
                    self.rest_s = busy_s = 0.0
                if self.hand_over is not None and self._is_writer_idle and not (
                        self._reader.is_inside or self.is_ending):  # no message is under way
                    remote = self.hand_over()
                    if remote is not None:
                        while self._queue:
                            remote.send(self._queue.popleft())
                        self.handover = Handover(remote)
                        self._wake.set()  # the writer has nothing to do any more
                        return self.handover.wait()
        except WebSocketViolationError as violation:
            self._end_for(violation)
            return violation.reason
        except OSError:
            return "gone"
        return "closed"

    def _feed(self, data: bytes, mono: float) -> None:
        was_inside = self._reader.is_inside
        for message in self._reader.feed(data):
            was_inside = False
            if isinstance(message, tuple):
                self._control(*message)
            else:
                self._receive(message, mono)
            if self.closed or self._farewell is not None:
                return
        if not was_inside:
            self._inside_since_mono = mono

    def _control(self, opcode: Opcode, payload: bytes) -> None:
        self._spend(time.monotonic())
        if opcode == Opcode.PING:
            self.push(frame(payload, Opcode.PONG))
        elif opcode == Opcode.CLOSE:
            self.finish(CloseCode.NORMAL, "")

    def _spend(self, mono: float) -> None:
        if not self._bucket.take(1, mono):
            raise WebSocketViolationError(CloseCode.POLICY, "more messages than allowed")

    def _receive(self, message: Message, mono: float) -> None:
        self._spend(mono)
        if not message:
            # python-socketio takes an empty packet for an event without a name.
            raise WebSocketViolationError(CloseCode.INVALID_DATA, "an empty packet")
        if isinstance(message, bytes):
            self._engine.handlers["message"](self.sid, message)
            self._restart_admission()
        elif message == "3":
            self.heard_mono = mono
        elif message == "1":
            self.finish(CloseCode.NORMAL, "")
        else:
            raise WebSocketViolationError(CloseCode.POLICY,
                                          "not an engine.io packet that is accepted here")

    def _restart_admission(self) -> None:
        """Restart the time for admission after each step. When a thousand agents reconnect at once
        our answer may take longer than theirs: cut off for that, they would all come again."""
        if not self.is_admitted and self._steps < ADMIT_STEPS:
            self._steps += 1
            self.opened_mono = time.monotonic()

    def _end_for(self, violation: WebSocketViolationError) -> None:
        self._engine.tally.add("violations")
        log.warning("closed peer=%s code=%d reason=%r", self.sid, violation.code, violation.reason)
        self.finish(violation.code, violation.reason)

    def overdue(self, mono: float) -> str | None:
        """Return why the connection must be cut now, if it must."""
        waited_s = mono - self.opened_mono
        if not self.is_admitted and waited_s > ADMIT_WITHIN_S and (
                waited_s > FINISH_WITHIN_S or not unread_bytes(self.sock)):
            return "did not identify itself"
        if mono - self.heard_mono > self.allowance.stall_s:
            return "does not answer"
        if self._reader.is_inside and mono - self._inside_since_mono > FINISH_WITHIN_S:
            return "a message that does not end"
        return None

    def forgive(self, gap_s: float) -> None:
        self.opened_mono += gap_s
        self.heard_mono += gap_s
        self._inside_since_mono += gap_s


class BoundedEngine(engineio.Server):  # type: ignore[misc]
    """engine.io with websockets only, our driver, and the monotonic clock."""

    def __init__(self, allowances: dict[str, ConnectionLimits], tally: ServerCounters,
                 **options: Any) -> None:
        super().__init__(**options)
        self.allowances = allowances
        self.tally = tally

    def handle_request(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        wrong = _not_an_upgrade(environ)
        if wrong is not None:
            start_response("400 Bad Request", [("Content-Type", "text/plain; charset=utf-8")])
            return [wrong.encode()]
        connection: ClientConnection = environ["gpudeck.connection"]
        connection.take_over()
        connection.sock.sendall(_upgrade_answer(environ["HTTP_SEC_WEBSOCKET_KEY"]))
        self._serve(environ, connection.sock)
        return []

    def _serve(self, environ: Environ, sock: Any) -> None:
        allowance = self.allowances[environ["gpudeck.actor"].kind]
        peer = BoundedSocket(self, self.generate_id(), sock, allowance)
        self.sockets[peer.sid] = peer
        environ["gpudeck.socket"] = peer
        peer.send(eio_packet.Packet(eio_packet.OPEN, {
            "sid": peer.sid, "upgrades": [], "pingInterval": int(allowance.ping_every_s * 1000),
            "pingTimeout": int(PING_TIMEOUT_S * 1000), "maxPayload": allowance.max_bytes}))
        self.handlers["connect"](peer.sid, environ)
        writer = gevent.spawn(peer.write)
        reason = "failed"
        try:
            reason = peer.read()
        except Exception:
            # A bug of ours, shown whole: this connection's end, not the hub's.
            log.exception("handler failed peer=%s", peer.sid)
            self.tally.add("handler_failures")
            peer.finish(CloseCode.GOING_AWAY, "the hub failed on this message")
        finally:
            self.handlers["disconnect"](peer.sid, reason)
            self.sockets.pop(peer.sid, None)
            writer.join(timeout=1.0)
            peer.abort()
            writer.join()

    def tick(self, mono: float) -> None:
        # Whoever has taken a socket over looks after it.
        for peer in [peer for peer in self.sockets.values() if peer.handover is None]:
            why = peer.overdue(mono)
            if why is not None:
                self.tally.add("overdue")
                log.info("closed peer=%s reason=%r", peer.sid, why)
                peer.finish(CloseCode.POLICY, why)
                gevent.spawn_later(1.0, peer.abort)
            elif mono - peer.pinged_mono >= peer.allowance.ping_every_s:
                peer.pinged_mono = mono
                peer.send(eio_packet.Packet(eio_packet.PING))

    def forgive(self, gap_s: float) -> None:
        for peer in self.sockets.values():
            peer.forgive(gap_s)


def is_plain(sock: Any) -> bool:
    """Return whether the kernel has what the other side says: TLS is in this process alone."""
    return not isinstance(sock, SSLSocket)


def unread_bytes(sock: Any) -> int:
    """Return how many bytes the kernel holds that we have not read yet; 0 if that is unknown."""
    try:
        raw = fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(raw, sys.byteorder)


def _not_an_upgrade(environ: Environ) -> str | None:
    query = parse_qs(environ.get("QUERY_STRING", ""))
    if environ["REQUEST_METHOD"] != "GET" or environ.get("HTTP_UPGRADE", "").lower() != "websocket":
        return "only websockets are served here"
    if query.get("transport") != ["websocket"] or query.get("EIO") != ["4"] or "sid" in query:
        return "engine.io version 4 over transport=websocket is served here"
    if environ.get("HTTP_SEC_WEBSOCKET_VERSION") != "13":
        return "websocket version 13 is served here"
    if len(environ.get("HTTP_SEC_WEBSOCKET_KEY", "")) != 24:
        return "a websocket key is needed"
    return None


def _upgrade_answer(key: str) -> bytes:
    """Accept without any extension: permessage-deflate costs 0.6 ms per 40 kB frame and viewer."""
    return (f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n").encode()


class BoundedServer(socketio.Server):  # type: ignore[misc]
    def _engineio_server_class(self) -> type[BoundedEngine]:
        return BoundedEngine


class BoundedSocketIO(SocketIO):  # type: ignore[misc]
    """Flask-SocketIO over the bounded server; by itself it would make a plain one."""

    server: BoundedServer

    def init_app(self, app: Flask, **options: Any) -> None:
        self.server = BoundedServer(
            async_mode="gevent", async_handlers=False, serializer=StrictPacket,
            transports=["websocket"], monitor_clients=False, cors_allowed_origins=[],
            # Otherwise "/" is open to all who come as far as this.
            namespaces=["/agent", "/live"], **options)
        app.extensions["socketio"] = self
        app.wsgi_app = socketio.Middleware(self.server, app.wsgi_app)  # type: ignore[method-assign]

    @property
    def engine(self) -> BoundedEngine:
        return self.server.eio  # type: ignore[no-any-return]
