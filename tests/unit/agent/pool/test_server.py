"""The socket of the pool in trouble."""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from agent.pool.server import PoolServer, PoolUser
from agent.tasks.people import SystemPeople
from gpudeck.pool import messages
from gpudeck.pool.messages import ClaimCancelled, FromUser, ShowPool


class Answers:
    def asked(self, user: PoolUser, message: FromUser, pidfd: int | None) -> None:
        user.send(ClaimCancelled())

    def left(self, user: PoolUser) -> None:
        pass


@contextlib.contextmanager
def no_file_descriptors() -> Iterator[None]:
    """For this whole process."""
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
