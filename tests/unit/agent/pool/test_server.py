"""The socket of the pool in trouble."""

import contextlib
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.pool.server import (
    OF_ONE_USER_MOST,
    REQUEST_EVERY_S,
    REQUESTS_AT_ONCE,
    UNSENT_MOST,
    PoolServer,
    PoolUser,
    RequestPace,
)
from agent.tasks.people import SystemPeople
from gpudeck.contract import pool_messages as messages
from gpudeck.contract.pool_messages import (
    SOCKET_ENV,
    ClaimCancelled,
    ClaimWaits,
    FromPool,
    FromUser,
    LeaseNotice,
    ShowPool,
)
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.claim import _is_given_back
from gpudeck.pool.connection import PoolConnection, bind_process


class Answers:
    def handle(self, user: PoolUser, message: FromUser, pidfd: int | None) -> None:
        user.send(ClaimCancelled())

    def drop_user(self, user: PoolUser) -> None:
        pass


@contextlib.contextmanager
def no_file_descriptors() -> Iterator[None]:
    """Let this whole process open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_connects_while_no_file_can_be_opened_is_answered_when_one_can(tmp_path: Path) -> None:
    server = PoolServer(tmp_path / "pool.sock", Answers(), SystemPeople())
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.settimeout(30)
        with no_file_descriptors():
            first.connect(str(tmp_path / "pool.sock"))
            second.connect(str(tmp_path / "pool.sock"))
        messages.send(first, ShowPool())
        assert messages.from_pool(first) == ClaimCancelled()
    server.close()


class SlowPeople(SystemPeople):
    """The first who connects is somebody whom a directory service does not answer for."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.answers = threading.Event(), threading.Event()

    def name_of(self, uid: int, pid: int) -> str:
        if not self.is_asked.is_set():
            self.is_asked.set()
            assert self.answers.wait(60)
        return super().name_of(uid, pid)


def test_who_is_not_looked_up_yet_keeps_nobody_else_out(tmp_path: Path) -> None:
    people = SlowPeople()
    server = PoolServer(tmp_path / "pool.sock", Answers(), people)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for sock in (first, second):
            sock.settimeout(30)
            sock.connect(str(tmp_path / "pool.sock"))
            messages.send(sock, ShowPool())
            assert people.is_asked.wait(30)
        assert messages.from_pool(second) == ClaimCancelled()
        people.answers.set()
        assert messages.from_pool(first) == ClaimCancelled()
    server.close()


class AnswersAtLength:
    """Handler of one message at a time, as the pool is, with as much as it may say of many GPUs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def handle(self, user: PoolUser, message: FromUser, pidfd: int | None) -> None:
        with self._lock:
            user.send(LeaseNotice("x" * 1_000))

    def drop_user(self, user: PoolUser) -> None:
        pass


def test_who_floods_it_and_reads_nothing_slows_nobody(tmp_path: Path) -> None:
    server = PoolServer(tmp_path / "pool.sock", AnswersAtLength(), SystemPeople())
    flood = [socket.socket(socket.AF_UNIX) for _ in range(OF_ONE_USER_MOST - 1)]
    frames = messages.frame(ShowPool()) * 2_000
    for sock in flood:
        sock.connect(str(tmp_path / "pool.sock"))
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.send(frames)
    time.sleep(REQUEST_EVERY_S)
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(30)
        other.connect(str(tmp_path / "pool.sock"))
        began = time.monotonic()
        messages.send(other, ShowPool())
        assert isinstance(messages.from_pool(other), LeaseNotice)
        took_s = time.monotonic() - began
    # Of the same user, so that its turn comes after one each of all their connections at most.
    assert took_s < 5 * REQUEST_EVERY_S * OF_ONE_USER_MOST
    for sock in flood:
        sock.close()
    server.close()


@pytest.mark.parametrize("is_late", [False, True])
def test_who_comes_back_while_there_are_too_many_does_not_read_that_the_lease_has_ended(
        tmp_path: Path, is_late: bool) -> None:
    """Late, the agent has hung up before it is asked; the reason is there all the same."""
    path = tmp_path / "pool.sock"
    server = PoolServer(path, Answers(), SystemPeople())
    with contextlib.ExitStack() as stack:
        for _ in range(OF_ONE_USER_MOST):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.settimeout(30)
            sock.connect(str(path))
            messages.send(sock, ShowPool())
            assert messages.from_pool(sock) == ClaimCancelled()
        pool = PoolConnection({SOCKET_ENV: str(path)})
        if is_late:
            hung_up = select.poll()
            hung_up.register(pool.socket, select.POLLHUP)
            assert hung_up.poll(30_000)
        with pytest.raises(CommandError, match="end one first") as refusal:
            bind_process(pool, "l1", 0, 30)
        pool.close()
        assert refusal.value.code == ExitCode.UNREACHABLE  # it is asked again
        assert not _is_given_back(PoolConnection({SOCKET_ENV: str(path)}), "l1")
    server.close()


def test_one_user_has_so_many_requests_and_the_next_waits() -> None:
    pace = RequestPace()
    began = time.monotonic()
    for _ in range(REQUESTS_AT_ONCE):
        pace.wait()
    at_once_s = time.monotonic() - began
    for _ in range(10):
        pace.wait()
    assert at_once_s < REQUESTS_AT_ONCE * REQUEST_EVERY_S / 2
    assert time.monotonic() - began >= 9 * REQUEST_EVERY_S


def test_who_was_stopped_for_long_reads_the_last_place_and_every_notice() -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    user = PoolUser(near, os.getuid(), os.getpid(), "ann")
    for place in range(10_000, 0, -1):
        user.send(ClaimWaits(place, "busy"))
        if place in (7_000, 3_000):
            user.send(LeaseNotice(f"notice at {place}"))
    assert user.is_open
    read: list[FromPool | None] = []
    far.settimeout(30)
    while read[-1:] != [ClaimWaits(1, "busy")]:
        read.append(messages.from_pool(far))
        user.flush()
    assert [message for message in read if isinstance(message, LeaseNotice)] == [
        LeaseNotice("notice at 7000"), LeaseNotice("notice at 3000")]
    assert len(read) < 1_000
    for _ in range(100 * UNSENT_MOST):
        user.send(LeaseNotice("nobody reads this"))
    assert not user.is_open
    for end in (near, far, user):
        end.close()
