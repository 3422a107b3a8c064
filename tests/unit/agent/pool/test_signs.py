"""Whose process a handle is, whether it is still that one, and who carries a lease's mark."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from agent.pool.signs import ProcessSigns
from gpudeck.pool.messages import LEASE_ENV

signs = ProcessSigns()


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "60"], env=os.environ | {LEASE_ENV: "lease-1"})
    yield process
    process.kill()
    process.wait()


def test_a_handle_is_of_its_process_and_user(child: "subprocess.Popen[bytes]") -> None:
    pidfd = os.pidfd_open(child.pid)
    try:
        found = signs.process_of(pidfd, os.getuid())
        assert found is not None
        assert found.pid == child.pid
        assert signs.is_alive(found)
        assert signs.process_of(pidfd, os.getuid() + 1) is None
        child.kill()
        child.wait()
        assert not signs.is_alive(found)
        assert signs.process_of(pidfd, os.getuid()) is None
    finally:
        os.close(pidfd)


def test_what_ended_and_was_not_reaped_is_not_alive(child: "subprocess.Popen[bytes]") -> None:
    pidfd = os.pidfd_open(child.pid)
    found = signs.process_of(pidfd, os.getuid())
    assert found is not None
    child.kill()
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    os.close(pidfd)
    assert not signs.is_alive(found)


def test_a_mark_counts_for_the_leases_user_alone(child: "subprocess.Popen[bytes]") -> None:
    ours, strangers = {"lease-1": os.getuid()}, {"lease-1": os.getuid() + 1}
    assert signs.marked(["lease-1"], ours) == {"lease-1": 1}
    assert signs.marked(["lease-1"], strangers) == {"lease-1": 0}
    assert signs.marked(["lease-2"], {"lease-2": os.getuid()}) == {"lease-2": 0}
