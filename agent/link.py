"""The agent's only network: one Socket.IO connection to the hub at a time.

What happens is queued and told by `wake`; nothing here blocks the node's own thread. A connect
may take seconds, so it runs on a thread of the client library.
"""

import logging
import select
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import engineio
import msgspec
import socketio
from engineio.packet import MESSAGE

from gpudeck.wire import EVENT, NAMESPACE, Ack, FromHub, WireError, decode_from_hub

CONNECT_S = 5.0
DENIALS = (401, 403, 421)
# A socket that says it is writable has a third of its buffer left, which on Linux is 15 kB at the
# least (sk_stream_is_writeable): so much goes into it without waiting.
AT_ONCE_BYTES = 8_192
_packed = msgspec.msgpack.Encoder().encode

# The library reports each lost connection as an error of its own; we say it once, in our words.
_quiet = logging.getLogger("gpudeck.agent.socketio")
_quiet.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Opened:
    pass


@dataclass(frozen=True, slots=True)
class Closed:
    why: str
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    message: FromHub


Happening = Opened | Closed | Heard


def enveloped(body: bytes) -> bytes:
    """As the library's own emit() makes it, at a third of its cost."""
    return _packed({"type": socketio.packet.EVENT, "data": [EVENT, body], "nsp": NAMESPACE})


class _Transport(engineio.Client):  # type: ignore[misc]
    """The library wakes a thread for each message that we send, and starts one for each that
    comes: together a third of what a quiet agent took. Neither is needed for what is small and
    does not wait."""

    def _trigger_event(self, event: str, *arguments: Any, **options: Any) -> Any:
        return super()._trigger_event(event, *arguments, **{**options, "run_async": False})

    def _send_packet(self, packet: Any) -> None:
        # Pongs go the library's way: its sending thread ends if it has nothing to send for long.
        if packet.packet_type != MESSAGE or not packet.binary or not self._has_room(packet.data):
            super()._send_packet(packet)
            return
        try:
            self.ws.send_binary(packet.data)
        except Exception:  # whatever it was, half a message may be out: nothing may follow it
            self.ws.abort()

    def _has_room(self, body: bytes) -> bool:
        """For now, and nothing is before it."""
        if (len(body) > AT_ONCE_BYTES or self.state != "connected" or self.ws is None
                or self.queue.unfinished_tasks):
            return False
        socket = self.ws.sock
        if socket is None:
            return False
        try:
            poll = select.poll()
            poll.register(socket, select.POLLOUT)
            return [event for _, event in poll.poll(0)] == [select.POLLOUT]
        except (OSError, ValueError):  # it was closed just now
            return False


class _Client(socketio.Client):  # type: ignore[misc]
    def _engineio_client_class(self) -> type[engineio.Client]:
        return _Transport

    def _handle_disconnect(self, namespace: str) -> None:
        """It waits for the end of the thread that brings the messages, which is this one."""
        self.start_background_task(super()._handle_disconnect, namespace)


class Link:
    def __init__(
        self, url: str, tls: ssl.SSLContext | None, wake: Callable[[], None]
    ) -> None:
        self._url = url
        # A hub takes no agent that has an Origin, as every browser does; websocket-client would
        # make one up.
        self._options: dict[str, Any] = {"suppress_origin": True}
        if tls is not None:
            self._options["sslopt"] = {"context": tls}
        self._wake = wake
        self._client: Any = None
        self._happened: deque[tuple[Any, Happening]] = deque()
        self.acks_wake = True  # else they wait for whatever else happens

    def dial(self) -> None:
        """Ends in Opened or Closed."""
        client = _Client(
            reconnection=False, serializer="msgpack", handle_sigint=False,
            request_timeout=CONNECT_S, logger=_quiet, engineio_logger=_quiet,
            websocket_extra_options=dict(self._options),
        )
        client.on(EVENT, lambda data=None: self._received(client, data), namespace=NAMESPACE)
        client.on("disconnect", lambda *_: self._tell(client, Closed("the hub hung up")),
                  namespace=NAMESPACE)
        self._client = client
        client.start_background_task(self._connect, client)

    def say(self, body: bytes) -> None:
        client = self._client
        if client is None:
            return
        if NAMESPACE in client.namespaces:
            client.eio.send(enveloped(body))
        else:
            self._tell(client, Closed("the connection broke"))

    def hang_up(self) -> Any:
        """The thread that closes the connection: the closing handshake may take seconds."""
        client, self._client = self._client, None
        return client and client.start_background_task(_disconnect, client)

    def happenings(self) -> Iterator[Happening]:
        """What happened since the last call; what an abandoned connection still says is dropped."""
        while self._happened:
            client, happening = self._happened.popleft()
            if client is self._client:
                yield happening

    def _connect(self, client: Any) -> None:
        try:
            client.connect(
                self._url, transports=["websocket"], namespaces=[NAMESPACE],
                wait_timeout=CONNECT_S,
            )
        except Exception as error:  # whatever breaks a connect, a later one may succeed
            self._tell(client, Closed(*_why(error)))
            return
        if client is not self._client:
            _disconnect(client)
        elif client.eio.state == "connected":
            self._tell(client, Opened())
        else:  # it ended before the library would have told us
            self._tell(client, Closed("the hub hung up"))

    def _received(self, client: Any, data: Any) -> None:
        try:
            if not isinstance(data, bytes):
                raise WireError(f"expected bytes, got {type(data).__name__}")
            self._tell(client, Heard(decode_from_hub(data)))
        except WireError as error:
            self._tell(client, Closed(f"the hub sent something else than it should: {error}"))

    def _tell(self, client: Any, happening: Happening) -> None:
        self._happened.append((client, happening))
        is_ack = isinstance(happening, Heard) and isinstance(happening.message, Ack)
        if self.acks_wake or not is_ack:
            self._wake()


def _disconnect(client: Any) -> None:
    try:
        client.disconnect()
    except Exception as error:  # it is gone already, in one of many ways
        _quiet.debug("disconnect %r", error)
    # engineio 4.15 leaves the socket of a connection that the other side ended to the collector.
    if client.eio.ws is not None:
        client.eio.ws.shutdown()


def _why(error: BaseException) -> tuple[str, bool]:
    """In our words, and whether asking again soon is pointless. The library hides the cause:
    'Connection error' is all it says of whatever the hub answered."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for cause in reversed(chain):
        status = getattr(cause, "status_code", None)
        if status is not None:
            return _answered(status), status in DENIALS
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate(cause), True
        if isinstance(cause, ssl.SSLError):
            return f"TLS fails ({cause.reason or cause}); is --hub right, https and port?", False
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower(), False
    return str(chain[-1]) or type(chain[-1]).__name__, False


def _answered(status: int) -> str:
    if status == 421:
        return ("the hub does not answer under the name in --hub; use the URL that it prints, or "
                "its --public-url")
    return f"the hub answers HTTP {status}"


def _certificate(error: ssl.SSLCertVerificationError) -> str:
    """The codes are OpenSSL's X509_V_ERR_*."""
    said = f"the hub's certificate is refused: {error.verify_message}"
    if error.verify_code == 9:
        return f"{said}; compare this machine's clock with the hub's"
    if error.verify_code == 10:
        return f"{said}; renew it on the hub"
    if error.verify_code in (62, 64):
        return f"{said}; use the name that the certificate is for in --hub"
    if error.verify_code in (18, 19, 20, 21):
        return f"{said}; give the certificate of who issued it with --ca-file"
    return said
