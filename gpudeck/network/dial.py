"""Client end of a websocket to the hub: a proxy where the environment names one, TLS, the
handshake.

Written by hand, because the libraries for it cost a node more than all the rest of the agent:
asyncio, requests and their kin, for one request with one answer. A hub that views other hubs
connects the same way.
"""

import base64
import os
import secrets
import socket
import ssl
import time
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from gpudeck.network.websocket import accept_key

HEAD_MAX_BYTES = 16_384
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORTS = {"http": 80, "https": 443}


class HttpStatusError(Exception):
    """The server answered with HTTP instead of a websocket."""

    def __init__(self, status: int, server: str) -> None:
        """Store the status. `server`: the header in which a server names itself; hubs send none."""
        super().__init__(f"HTTP {status}")
        self.status = status
        self.server = "".join(filter(str.isprintable, server))[:40]


class HandshakeError(Exception):
    """The server is not a hub. The sentence is for people."""


def opened(url: str, tls: ssl.SSLContext | None, within_s: float,
           headers: Mapping[str, str] | None = None) -> tuple[socket.socket, bytes]:
    """Return a connected socket, and what came right after the handshake. Raises OSError,
    HttpStatusError and HandshakeError."""
    until = time.monotonic() + within_s
    where = urlsplit(url)
    scheme, host = "http" if tls is None else "https", where.hostname or ""
    port = where.port or PORTS[scheme]
    sock = _reached(host, port, _proxy(scheme, host, port), until)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock.settimeout(_remaining_s(until))
            sock = tls.wrap_socket(sock, server_hostname=host)
        return sock, _handshake(
            sock, _host_header(host, port, scheme), where.query, headers or {}, until)
    except BaseException:
        sock.close()
        raise


def _reached(host: str, port: int, proxy: SplitResult | None, until: float) -> socket.socket:
    if proxy is None:
        return _connected(host, port, until)
    to = (proxy.hostname or "", proxy.port or PORTS["http"])
    try:
        sock = _connected(*to, until)
    except OSError as error:
        raise OSError(f"the proxy {to[0]}:{to[1]}, which the environment names, cannot be "
                      f"reached: {(error.strerror or str(error)).lower()}") from error
    try:
        sock.sendall(_connect_through(proxy, _host_header(host, port)))
        status, _, rest = _answer(sock, until)
    except BaseException:
        sock.close()
        raise
    if status == 200 and not rest:
        return sock
    sock.close()
    raise OSError(f"the proxy {to[0]}:{to[1]} answers HTTP {status}; see the *_proxy variables of "
                  "the environment")


def _connected(host: str, port: int, until: float) -> socket.socket:
    """Connect to an address of this name. Each of them has its part of the time: where a firewall
    drops all of IPv6, say, the first one answers nothing, not even a refusal."""
    error = OSError(f"{host} has no address")
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_remaining_s(until) / (len(addresses) - place))
            sock.connect(address)
            return sock
        except OSError as why:
            sock.close()
            error = why
    raise error


def _proxy(scheme: str, host: str, port: int) -> SplitResult | None:
    """Return the proxy to use; None: none. urllib knows the rules of these variables; it is loaded
    only where one is set."""
    if host in LOOPBACK or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxy_url = "" if proxy_bypass(f"{host}:{port}") else getproxies().get(scheme, "")
    if not proxy_url:
        return None
    proxy = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    if proxy.scheme != "http":
        raise OSError(f"{scheme}_proxy names a proxy by {proxy.scheme}; only HTTP proxies are "
                      "supported (http://HOST:PORT)")
    return proxy


def _connect_through(proxy: SplitResult, to: str) -> bytes:
    lines = [f"CONNECT {to} HTTP/1.1", f"Host: {to}"]
    if proxy.username is not None:
        credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        encoded = base64.b64encode(credentials.encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {encoded}")
    return "\r\n".join([*lines, "", ""]).encode()


def _handshake(sock: socket.socket, host: str, query: str, headers: Mapping[str, str], until: float
               ) -> bytes:
    """Open the websocket, without an Origin, which every browser sends: a hub takes no agent that
    has one."""
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    query = "&".join(filter(None, (query, "transport=websocket&EIO=4")))
    sock.sendall("\r\n".join([
        f"GET /socket.io/?{query} HTTP/1.1", f"Host: {host}", "Upgrade: websocket",
        "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
        *(f"{name}: {value}" for name, value in headers.items()), "", "",
    ]).encode())
    status, answer, rest = _answer(sock, until)
    if status != 101:
        raise HttpStatusError(status, answer.get("server", ""))
    if (answer.get("upgrade", "").lower() != "websocket"
            or answer.get("sec-websocket-accept") != accept_key(key)
            or "sec-websocket-extensions" in answer):
        raise HandshakeError("the server is not a hub: its websocket handshake is wrong")
    return rest


def _answer(sock: socket.socket, until: float) -> tuple[int, dict[str, str], bytes]:
    """Read status, headers by lower-case names, and what came after them."""
    received = b""
    while b"\r\n\r\n" not in received:
        sock.settimeout(_remaining_s(until))
        more = sock.recv(4_096)
        if not more:
            raise HandshakeError("it hung up before it had answered")
        received += more
        if len(received) > HEAD_MAX_BYTES:
            raise HandshakeError("the server is not a hub: its answer does not end")
    head, _, rest = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
        raise HandshakeError("the server is not a hub: it does not speak HTTP; is the URL right, "
                             "https and port?")
    fields = (line.partition(":")[::2] for line in lines)
    return int(words[1]), {name.lower(): value.strip() for name, value in fields}, rest


def _host_header(host: str, port: int, scheme: str = "") -> str:
    """Format host and port as in a Host header."""
    host = f"[{host}]" if ":" in host else host
    return host if port == PORTS.get(scheme) else f"{host}:{port}"


def _remaining_s(until: float) -> float:
    remaining_s = until - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("timed out")
    return remaining_s
