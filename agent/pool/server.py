"""Unix socket of the pool. The kernel says who is at the other end."""

import contextlib
import logging
import os
import select
import socket
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Protocol

from gpudeck.contract import pool_messages as messages
from gpudeck.contract.pool_messages import (
    ClaimRefused,
    ClaimWaits,
    FromPool,
    FromUser,
    PoolSocketError,
)

from ..tasks.people import NodePeople

log = logging.getLogger("gpudeck.agent.pool")

CONNECTIONS_MOST = 256
OF_ONE_USER_MOST = 64
AGAIN_AFTER_S = 1.0
OVERFLOW_UID = 65_534  # of a user namespace that this one does not know
_UCRED = struct.Struct("3i")
UNSENT_MOST = 256  # messages to one connection that does not read them
LOOK_EVERY_S = 1.0
# Of one user, all their connections together: requests, and how many at once.
REQUEST_EVERY_S, REQUESTS_AT_ONCE = 0.02, 100


class PoolUser:
    """Connection of a user. Any thread may send, and never waits for that."""

    def __init__(self, sock: socket.socket, uid: int, peer_pid: int, owner: str) -> None:
        self._sock = sock
        self._out = sock.dup()  # without the timeouts of receiving
        self._lock = threading.Lock()
        self._unsent: deque[FromPool] = deque()
        self._part = b""  # the rest of the message being sent
        self.uid = uid
        self.peer_pid = peer_pid
        self.owner = owner
        self.is_open = True

    def send(self, message: FromPool) -> None:
        """Queue a message until the user reads it, up to a limit. Of places in the queue only the
        latest stays: a program that was stopped may come back after days."""
        with self._lock:
            if isinstance(message, ClaimWaits):
                self._unsent = deque(queued for queued in self._unsent
                                     if not isinstance(queued, ClaimWaits))
            self._unsent.append(message)
            self._flush()
            if len(self._unsent) > UNSENT_MOST:
                self.hang_up()

    def flush(self) -> bool:
        """Send what can be sent; return whether that was all."""
        with self._lock:
            self._flush()
            return not (self._part or self._unsent)

    def wait_until_read(self) -> None:
        """Wait until the user has read all replies: one who does not read is not served."""
        room = select.poll()
        room.register(self._out, select.POLLOUT)
        while not self.flush() and self.is_open:
            room.poll(LOOK_EVERY_S * 1_000)

    def close(self) -> None:
        self._out.close()

    def _flush(self) -> None:
        while self.is_open and (self._part or self._unsent):
            self._part = self._part or messages.frame(self._unsent.popleft())
            try:
                count = self._out.send(self._part, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self.hang_up()
                return
            self._part = self._part[count:]

    def receive(self) -> tuple[FromUser, list[int]] | None:
        return messages.from_user(self._sock)

    def hang_up(self) -> None:
        self.is_open = False
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class RequestPace:
    """Request rate of one user: faster requests wait, and take nothing from others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = float("-inf")

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next + REQUEST_EVERY_S, now - REQUESTS_AT_ONCE * REQUEST_EVERY_S)
            ahead_s = self._next - now
        if ahead_s > 0:
            time.sleep(ahead_s)


class RequestHandler(Protocol):
    def handle(self, user: PoolUser, message: FromUser, pidfd: int | None) -> None: ...
    def drop_user(self, user: PoolUser) -> None: ...


class PoolServer:
    def __init__(self, path: Path, service: RequestHandler, people: NodePeople) -> None:
        """Listen and accept connections. Raises OSError where it cannot listen."""
        self._path = path
        self._service = service
        self._people = people
        self._lock = threading.Lock()
        self._users: Counter[int] = Counter()
        self._paces: defaultdict[int, RequestPace] = defaultdict(RequestPace)
        self._open: set[PoolUser] = set()
        self._is_closed = threading.Event()
        self._listener = _listen(path)
        threading.Thread(target=self._accept, name="pool socket", daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with contextlib.suppress(OSError):
            self._path.unlink()
        with self._lock:
            users = list(self._open)
        for user in users:
            user.hang_up()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                # Such as no more file descriptors: clients must not wait for ever.
                if not self._is_closed.wait(AGAIN_AFTER_S):
                    log.error("pool_socket_accepts_nobody why=%r", error.strerror)
                continue
            pid, uid, _ = _UCRED.unpack(sock.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            why = self._why_not(uid)
            if why:
                with contextlib.suppress(PoolSocketError):
                    messages.send(sock, ClaimRefused(why, is_full=uid != OVERFLOW_UID))
                sock.close()
                continue
            with self._lock:
                self._users[uid] += 1
            threading.Thread(target=self._serve, args=(sock, uid, pid), name="pool user",
                             daemon=True).start()

    def _user_of(self, sock: socket.socket, uid: int, pid: int) -> PoolUser | None:
        """Return the user of a connection, once files can be opened for it. None: the server was
        closed. May wait for a directory service."""
        while not self._is_closed.is_set():
            try:
                user = PoolUser(sock, uid, pid, self._people.name_of(uid, pid))
            except OSError as error:
                log.error("pool_user_waits uid=%d why=%r", uid, error.strerror)
                self._is_closed.wait(AGAIN_AFTER_S)
                continue
            with self._lock:
                self._open.add(user)
            return user
        return None

    def _why_not(self, uid: int) -> str:
        if uid == OVERFLOW_UID:
            return "the user is not known: run it outside the user namespace"
        with self._lock:
            if self._users[uid] >= OF_ONE_USER_MOST or self._users.total() >= CONNECTIONS_MOST:
                return (f"there are {OF_ONE_USER_MOST} connections of yours, or "
                        f"{CONNECTIONS_MOST} in all: end one first")
        return ""

    def _serve(self, sock: socket.socket, uid: int, pid: int) -> None:
        try:
            if (user := self._user_of(sock, uid, pid)) is not None:
                self._answer(user)
        finally:
            with self._lock:
                self._users[uid] -= 1
            sock.close()

    def _answer(self, user: PoolUser) -> None:
        with self._lock:
            pace = self._paces[user.uid]
        try:
            # One that came while the server was closed is hung up on by nobody else.
            while not self._is_closed.is_set() and (received := user.receive()) is not None:
                message, fds = received
                try:
                    pace.wait()
                    self._service.handle(user, message, fds[0] if fds else None)
                finally:
                    for fd in fds:
                        os.close(fd)
                user.wait_until_read()
        except PoolSocketError as why:
            user.send(ClaimRefused(str(why)[:1_024]))
        finally:
            user.is_open = False
            with self._lock:
                self._open.discard(user)
            self._service.drop_user(user)
            user.close()


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # What lies there is of an agent that was killed: this one holds the lock of its data folder.
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(128)
    return listener

