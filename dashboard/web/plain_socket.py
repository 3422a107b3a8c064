"""Socket of a connection, at one system call for a message where there is no TLS in between."""

import os
from typing import Any

import gevent
from gevent.ssl import SSLSocket

READABLE = 1  # libev's EV_READ


class PeerSocket:
    """gevent's socket tries to read before it waits: of a peer that sends a message a second every
    other read fails. This one waits first, unless the last read may have left something. TLS keeps
    what it has decrypted, which no waiting shows: there it is gevent's own."""

    def __init__(self, sock: Any) -> None:
        self.sock = sock
        self._is_plain = not isinstance(sock, SSLSocket)
        self._is_empty = False
        self._watcher: Any = None

    def recv(self, most: int) -> bytes:
        """Wait for bytes; b"": the peer is gone."""
        if not self._is_plain:
            data: bytes = self.sock.recv(most)
            return data
        while True:
            if self._is_empty:
                hub = gevent.get_hub()
                if self._watcher is None:
                    self._watcher = hub.loop.io(self.sock.fileno(), READABLE)
                hub.wait(self._watcher)
            try:
                data = os.read(self.sock.fileno(), most)
            except BlockingIOError:
                self._is_empty = True
                continue
            self._is_empty = len(data) < most
            return data

    def send_now(self, data: bytes) -> int:
        """Return how many bytes the kernel took at once; under TLS none is tried."""
        if not self._is_plain:
            return 0
        try:
            return os.write(self.sock.fileno(), data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """End the waiting for bytes; the socket itself is its server's to close."""
        self._is_plain = False
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
