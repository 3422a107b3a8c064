"""The bounded HTTP server: gevent's pywsgi with deadlines, caps, and a doorway for strangers."""

import contextlib
import io
import socket as sockets
from collections import OrderedDict
from typing import Any

import gevent
from gevent import pywsgi
from gevent.pywsgi import Input, WSGIHandler, WSGIServer

Environ = dict[str, Any]

SEND_BUFFER_BYTES = 131_072
HEADERS_WITHIN_S = 5.0
IDLE_S = 60.0
REQUEST_WITHIN_S = 120.0
MAX_HEADER_BYTES = 32_768
MAX_UNTRUSTED = 512

# A filter of the greatest length, percent-encoded, is longer than pywsgi's own 8,192.
pywsgi.MAX_REQUEST_LINE = 65_536  # type: ignore[attr-defined]


class Tally:
    """Counted by what happened; shown in readyz and, later, in metrics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


class Connection:
    """One accepted TCP connection; untrusted until the gate has seen who it is."""

    __slots__ = ("_handler", "_timer", "sock")

    def __init__(self, sock: Any, handler: "BoundedHandler") -> None:
        self.sock = sock
        self._handler = handler
        self._timer: gevent.Timeout | None = None

    def trust(self) -> None:
        self._handler.server.doorway.pop(self, None)

    def take_over(self) -> None:
        """A websocket from here on: HTTP's deadlines end and no second request follows."""
        self.limit(None)
        self._handler.close_connection = True

    def limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.close()
        self._timer = None if seconds is None else gevent.Timeout.start_new(seconds)

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(sockets.SHUT_RDWR)


class _CappedLines(io.BufferedIOBase):
    """Header lines up to a total; http.client alone allows 6.5 MB of them."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = MAX_HEADER_BYTES

    def readline(self, limit: int | None = -1) -> bytes:
        line: bytes = self._file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise ValueError("more header bytes than allowed")
        return line


class BoundedHandler(WSGIHandler):
    server: "HttpServer"

    def handle(self) -> None:
        connection = self.connection = Connection(self.socket, self)
        self.server.enter(connection)
        try:
            super().handle()
        except gevent.Timeout:
            self.server.tally.add("http_timeouts")
        finally:
            connection.limit(None)
            connection.trust()

    def read_requestline(self) -> str:
        first = self.requestline is None
        self.connection.limit(HEADERS_WITHIN_S if first else IDLE_S)
        line: str = super().read_requestline()
        self.connection.limit(HEADERS_WITHIN_S)
        return line

    def MessageClass(self, *arguments: Any) -> Any:
        file, *rest = arguments
        return super().MessageClass(_CappedLines(file), *rest)

    def get_environ(self) -> Environ:
        self.connection.limit(REQUEST_WITHIN_S)
        environ: Environ = super().get_environ()
        environ["gpudeck.connection"] = self.connection
        return environ

    def _handle_client_error(self, ex: Exception) -> Any:
        """Counted, not logged: a stranger must not fill the log."""
        self.server.tally.add("bad_requests")
        return super()._handle_client_error(ex)  # type: ignore[misc]

    def run_application(self) -> None:
        try:
            super().run_application()
        finally:
            if self.close_connection:
                # pywsgi would read a refused body to its end.
                self.wsgi_input = Input(self.rfile, 0)


class HttpServer(WSGIServer):
    """`doorway` holds the connections that nobody has vouched for; beyond its size the one that
    has stood there longest makes room, so that a crowd of silent ones shuts nobody out."""

    handler_class = BoundedHandler

    def __init__(self, listener: Any, application: Any, tally: Tally) -> None:
        host = listener.getsockname()[0]
        super().__init__(listener, application, log=None, error_log=None,
                         environ={"SERVER_NAME": host})
        self.tally = tally
        self.doorway: OrderedDict[Connection, None] = OrderedDict()

    def enter(self, connection: Connection) -> None:
        connection.sock.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        connection.sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER_BYTES)
        while len(self.doorway) >= MAX_UNTRUSTED:
            oldest, _ = self.doorway.popitem(last=False)
            self.tally.add("doorway_evicted")
            oldest.drop()
        self.doorway[connection] = None
