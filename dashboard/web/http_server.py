"""The HTTP server: TLS, HTTP by gevent's pywsgi, and what a stranger may cost before it is known.

A connection is in the `doorway` from the moment it is accepted, its TLS handshake included, until
somebody vouches for it: the gate for people and programs, the agent endpoint for nodes.
"""

import contextlib
import io
import re
import socket as sockets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import gevent
import gevent.socket
from gevent import pywsgi
from gevent.pywsgi import Input, WSGIHandler, WSGIServer
from gevent.ssl import SSLContext

from ..trusted_networks import plain_address

Environ = dict[str, Any]

SEND_BUFFER_BYTES = 131_072
HEADERS_WITHIN_S = 5.0
IDLE_S = 60.0
REQUEST_WITHIN_S = 120.0
# A client that is still sending when it is refused would see a reset and never read why.
LINGER_S = 2.0
LINGER_BYTES = 16_000_000
LINGER_AT_ONCE_BYTES = 65_536
MAX_HEADER_BYTES = 32_768
HEADER_LINE = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*)?\r\n")
# As many as a fleet that comes back after a restart, all at once; each costs some 30 kB.
MAX_UNTRUSTED = 2_048

# A filter of the greatest length, percent-encoded, is longer than pywsgi's own 8,192.
pywsgi.MAX_REQUEST_LINE = 65_536  # type: ignore[attr-defined]


class ServerCounters:
    """Counts of incidents by name; shown in readyz and, later, in metrics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def cut(sock: Any) -> None:
    """Shut down below TLS: gevent's SSLSocket drops its TLS state at a shutdown, and a greenlet
    that still reads from it would fail on that."""
    with contextlib.suppress(OSError):  # the other side was faster
        gevent.socket.socket.shutdown(sock, sockets.SHUT_RDWR)


class ClientConnection:
    """An accepted TCP connection; untrusted until the gate has seen who it is."""

    __slots__ = ("_server", "_timer", "handler", "sock")

    def __init__(self, sock: Any, server: "HttpServer") -> None:
        self.sock = sock
        self.handler: BoundedHandler | None = None
        self._server = server
        self._timer: gevent.Timeout | None = None

    def trust(self) -> None:
        self._server.doorway.pop(self, None)

    def take_over(self) -> None:
        """Become a websocket: HTTP's deadlines end and no second request follows."""
        self.limit(None)
        assert self.handler is not None, "there was a request"
        self.handler.close_connection = True

    def limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.close()
        self._timer = None if seconds is None else gevent.Timeout.start_new(seconds)


class _StrictHeaderReader(io.BufferedIOBase):
    """Header lines as RFC 9112 has them, up to a total. http.client takes 6.5 MB of them, bare line
    feeds, and blanks before the colon, in which a proxy could read another request than we do."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._remaining = MAX_HEADER_BYTES

    def readline(self, limit: int | None = -1) -> bytes:
        line: bytes = self._file.readline(limit)
        self._remaining -= len(line)
        if self._remaining < 0:
            raise ValueError("more header bytes than allowed")
        if line and not HEADER_LINE.fullmatch(line):
            raise ValueError("not a header line")
        return line


class BoundedHandler(WSGIHandler):
    server: "HttpServer"

    def handle(self) -> None:
        connection = self.connection = self.server.enter(self.socket)
        connection.handler = self
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

    def read_request(self, raw_requestline: str) -> Any:
        if not raw_requestline.endswith("\r\n"):
            raise ValueError("not a request line")
        answer: Any = super().read_request(raw_requestline)
        if answer is True and re.match("https?://", str(self.path), re.IGNORECASE):
            self.path = self._path_of_url()
        return answer

    def _path_of_url(self) -> str:
        """Return the path of a whole URL in a request line, as sent to a proxy: RFC 9112, 3.2.2."""
        url = urlsplit(str(self.path))
        if url.netloc.lower() != self.headers.get("Host", "").lower():
            raise ValueError("the host is ambiguous")
        return f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"

    def MessageClass(self, *arguments: Any) -> Any:
        file, *rest = arguments
        headers = super().MessageClass(_StrictHeaderReader(file), *rest)
        lengths, codings = (headers.get_all(name, ()) for name in ("Content-Length",
                                                                   "Transfer-Encoding"))
        if (len(lengths) + len(codings) > 1 or len(headers.get_all("Host", ())) > 1
                or not all(re.fullmatch("[0-9]{1,12}", length) for length in lengths)
                or not all(coding.lower() == "chunked" for coding in codings)):
            raise ValueError("where the body ends, or its host, is ambiguous")
        return headers

    def _connection_upgrade_requested(self) -> bool:
        """pywsgi goes by `Connection: upgrade` alone, which many proxies add to everything, and
        then hands on the raw socket as the body: who reads it waits until the client goes."""
        return (self.command == "GET"
                and self.headers.get("Upgrade", "").lower() == "websocket")

    def get_environ(self) -> Environ:
        self.connection.limit(REQUEST_WITHIN_S)
        environ: Environ = super().get_environ()
        environ["gpudeck.connection"] = self.connection
        return environ

    def _handle_client_error(self, ex: Exception) -> Any:
        """Count the error and do not log it: a stranger must not fill the log."""
        self.server.tally.add("bad_requests")
        return super()._handle_client_error(ex)  # type: ignore[misc]

    def run_application(self) -> None:
        try:
            super().run_application()
        finally:
            if self.close_connection:
                self._linger(self.wsgi_input)
                # pywsgi would read a refused body to its end.
                self.wsgi_input = Input(self.rfile, 0)

    def _linger(self, body: Any) -> None:
        """Read past what is left of a refused body, within bounds: a socket that is closed with
        unread bytes is reset, and the answer is lost with it."""
        if not body.chunked_input and (body.content_length or 0) <= body.position:
            return
        remaining = LINGER_BYTES
        with contextlib.suppress(OSError, ValueError), gevent.Timeout(LINGER_S, TimeoutError):
            while remaining > 0 and (read := self.rfile.read1(LINGER_AT_ONCE_BYTES)):
                remaining -= len(read)


class HttpServer(WSGIServer):
    """Server with a doorway: when that is full, the connection that has been in it longest is cut,
    so that a crowd of silent ones shuts nobody out."""

    handler_class = BoundedHandler

    def __init__(self, listener: Any, application: Any, tally: ServerCounters,
                 tls: SSLContext | None, takes: Callable[[str], bool]) -> None:
        """`takes`: whether connections from an address are accepted at all."""
        host = listener.getsockname()[0]
        super().__init__(
            listener, application, log=None, error_log=None, environ={
                "SERVER_NAME": host, "wsgi.url_scheme": "http" if tls is None else "https"})
        self.tally = tally
        self.doorway: OrderedDict[ClientConnection, None] = OrderedDict()
        # Not by gevent's own argument: that would shake hands before anybody counts.
        self._tls = tls
        self._takes = takes

    def enter(self, sock: Any) -> ClientConnection:
        connection = ClientConnection(sock, self)
        sock.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER_BYTES)
        while len(self.doorway) >= MAX_UNTRUSTED:
            oldest, _ = self.doorway.popitem(last=False)
            self.tally.add("doorway_evicted")
            cut(oldest.sock)
        self.doorway[connection] = None
        return connection

    def handle(self, sock: Any, address: Any) -> None:
        address = (plain_address(address[0]), *address[1:])
        if not self._takes(address[0]):
            self.tally.add("not_from_a_proxy")
        elif self._tls is None:
            super().handle(sock, address)
        elif (wrapped := self._shake_hands(self._tls, sock)) is not None:
            with contextlib.closing(wrapped):
                super().handle(wrapped, address)

    def _shake_hands(self, tls: SSLContext, sock: Any) -> Any:
        connection = self.enter(sock)
        try:
            with gevent.Timeout(HEADERS_WITHIN_S, TimeoutError):
                return tls.wrap_socket(sock, server_side=True)
        except (OSError, TimeoutError):  # plain HTTP, an old protocol, or gone
            self.tally.add("tls_failures")
            return None
        finally:
            connection.trust()
