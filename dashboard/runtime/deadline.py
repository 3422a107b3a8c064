"""A time limit for all steps of one request together, in native threads."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any


class Deadline:
    """Time limit over all steps. A peer that answers a byte now and then would otherwise hold the
    thread forever, so a timer cuts the socket in use; every step asks here before it waits."""

    def __init__(self, within_s: float) -> None:
        self._at = time.monotonic() + within_s
        self._sock: socket.socket | None = None
        self._timer = threading.Timer(within_s, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def left_s(self) -> float:
        """Return how many seconds are left; raises TimeoutError if none are."""
        left_s = self._at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at

    def watch(self, sock: socket.socket) -> None:
        self._sock = sock
        self.left_s()  # the timer may have fired a moment too early for this socket

    def end(self) -> None:
        self._timer.cancel()

    def _cut(self) -> None:
        sock = self._sock
        if sock is not None:
            with suppress(OSError):  # it may be closed at this moment
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, which another reads


def connected(host: str, port: int, deadline: Deadline, step_s: float,
              allow: Callable[[str], None]) -> socket.socket:
    """Connect to the first address that answers. `allow` raises for one that must not be tried."""
    why = OSError("the name has no address")
    for family, kind, proto, _, address in _resolved(host, port, deadline.left_s()):
        allow(str(address[0]))
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(min(step_s, deadline.left_s()))
            sock.connect(address)
        except OSError as error:
            sock.close()
            why = error
        else:
            sock.settimeout(step_s)
            return sock
    deadline.left_s()
    raise why


def _resolved(host: str, port: int, within_s: float) -> list[Any]:
    """Resolve in another thread: getaddrinfo takes no time limit, and may take minutes."""
    addresses: Future[list[Any]] = Future()

    def resolve() -> None:
        try:
            addresses.set_result(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            addresses.set_exception(error)

    threading.Thread(target=resolve, name="resolver", daemon=True).start()
    return addresses.result(within_s)
