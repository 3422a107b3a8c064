"""The agent's only network: one Socket.IO connection to the hub at a time.

What happens is queued and told by `wake`; nothing here blocks the node's own thread. A connect
may take seconds, so it runs on a thread of the client library.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import socketio

from gpudeck.wire import EVENT, NAMESPACE, FromHub, WireError, decode_from_hub

CONNECT_S = 5.0

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


class Link:
    def __init__(self, url: str, token: Callable[[], str], wake: Callable[[], None]) -> None:
        self._url = url
        self._token = token
        self._wake = wake
        self._client: Any = None
        self._happened: deque[tuple[Any, Happening]] = deque()

    def dial(self) -> None:
        """Ends in Opened or Closed."""
        client = socketio.Client(
            reconnection=False, serializer="msgpack", handle_sigint=False,
            request_timeout=CONNECT_S, logger=_quiet, engineio_logger=_quiet,
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
        try:
            client.emit(EVENT, body, namespace=NAMESPACE)
        except socketio.exceptions.SocketIOError:
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
                self._url, headers=_authorization(self._token()), transports=["websocket"],
                namespaces=[NAMESPACE], wait_timeout=CONNECT_S,
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
        self._wake()


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _disconnect(client: Any) -> None:
    try:
        client.disconnect()
    except Exception as error:  # it is gone already, in one of many ways
        _quiet.debug("disconnect %r", error)
    # engineio 4.15 leaves the socket of a connection that the other side ended to the collector.
    if client.eio.ws is not None:
        client.eio.ws.shutdown()


def _why(error: BaseException) -> tuple[str, bool]:
    """The library hides the cause: 'Connection error' is all it says of a refused token."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for cause in reversed(chain):
        status = getattr(cause, "status_code", None)
        if status in (401, 403):
            return f"the hub refuses the token (HTTP {status})", True
        if status is not None:
            return f"the hub answers HTTP {status}", False
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower(), False
    return str(chain[-1]) or type(chain[-1]).__name__, False
