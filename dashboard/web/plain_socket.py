"""Sockets of connections, at one system call for a message where there is no TLS in between."""

import os
import select
from typing import Any

import gevent
from gevent.hub import Waiter
from gevent.ssl import SSLSocket

READABLE = 1  # libev's EV_READ
# What comes within this time is read at one wake-up: a thousand agents would make two thousand of
# them a second, each dearer than its message. What comes after a pause is read at once.
REST_S = 0.003
# Edges: of each arrival there is one report, and none of what was reported before.
EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class ReadinessPoll:
    """Wakes the readers of sockets for which something has come, those of a few milliseconds
    together."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, PeerSocket] = {}

    def add(self, fd: int, reader: "PeerSocket") -> None:
        self._readers[fd] = reader
        self._poll.register(fd, EDGES)

    def remove(self, fd: int) -> None:
        del self._readers[fd]
        self._poll.unregister(fd)

    def run(self) -> None:
        hub = gevent.get_hub()
        watcher = hub.loop.io(self._poll.fileno(), READABLE)
        try:
            while True:
                hub.wait(watcher)
                # A watcher that is stopped wakes libev once more: none is needed while more comes.
                while self._wake_readers():
                    gevent.sleep(REST_S)
        finally:
            watcher.close()

    def _wake_readers(self) -> bool:
        """Wake those for which something has come; return whether there was one."""
        reports = self._poll.poll(0)
        for fd, flags in reports:
            reader = self._readers.get(fd)
            if reader is not None:
                reader.wake(bool(flags & ENDS))
        return bool(reports)


class PeerSocket:
    """A connection's socket. Under TLS it is gevent's own: TLS keeps what it has decrypted, of
    which no poll knows."""

    def __init__(self, sock: Any, poll: ReadinessPoll) -> None:
        self._sock = sock
        self._poll = poll
        self._fd: int | None = None if isinstance(sock, SSLSocket) else sock.fileno()
        self._may_have_bytes = True
        self._is_ending = False
        self._is_added = False
        self._waiter: Waiter[None] | None = None

    def recv(self, most: int) -> bytes:
        """Wait for bytes; b"": the peer is gone."""
        if self._fd is None:
            data: bytes = self._sock.recv(most)
            return data
        if not self._is_added:
            self._is_added = True
            self._poll.add(self._fd, self)
        while True:
            if not self._may_have_bytes:
                self._wait()
            # What comes from here on is another edge.
            self._may_have_bytes = self._is_ending
            try:
                data = os.read(self._fd, most)
            except BlockingIOError:
                self._may_have_bytes = False
                continue
            self._may_have_bytes |= len(data) == most
            return data

    def _wait(self) -> None:
        self._waiter = Waiter()
        try:
            self._waiter.get()
        finally:
            self._waiter = None

    def wake(self, is_end: bool) -> None:
        """Wake the reader, or let it try again when it comes to wait."""
        self._may_have_bytes = True
        self._is_ending |= is_end
        if self._waiter is not None:
            gevent.get_hub().loop.run_callback(self._waiter.switch, None)
            self._waiter = None

    def send_now(self, data: bytes) -> int:
        """Return how many bytes the kernel took at once; under TLS none is tried."""
        if self._fd is None:
            return 0
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """End the waiting for bytes; the socket itself is its server's to close."""
        if self._fd is not None and self._is_added:
            self._poll.remove(self._fd)
        self._fd = None  # another connection may have this number soon
