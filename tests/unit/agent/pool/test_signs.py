"""Whose process a handle is, whether it is still that one, and who carries a lease's mark."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.pool.signs import ProcessSigns
from gpudeck.pool.messages import LEASE_ENV
from tests.unit.agent.pool.test_server import no_file_descriptors

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
    own = signs.marked({"lease-1": os.getuid()})["lease-1"]
    assert [pid for pid, _ in own] == [child.pid]
    assert signs.marked({"lease-1": os.getuid() + 1}) == {"lease-1": set()}
    assert signs.marked({"lease-2": os.getuid()}) == {"lease-2": set()}


ID = f"{random.getrandbits(256):064x}"


@pytest.mark.parametrize(("cgroup", "counts"), [
    (f"/system.slice/docker-{ID}.scope", True),
    (f"/user.slice/user-1000.slice/user@1000.service/libpod-{ID}.scope", True),
    # Anybody can make a group of that name below their own slice, or write a mark in a pod.
    (f"/user.slice/user-1001.slice/user@1001.service/docker-{ID}.scope", False),
    (f"/kubepods/besteffort/pod1b2c3d4e-0001-0002-0003-0123456789ab/{ID}", False),
    ("/system.slice/cron.service", False),
])
def test_a_container_is_of_who_started_it(tmp_path: Path, cgroup: str, counts: bool) -> None:
    process = tmp_path / "321"
    process.mkdir()
    (process / "environ").write_bytes(b"A=b\0GPUDECK_LEASE=lease-1\0")
    (process / "stat").write_text(f"321 (x) S 1 1 1 0 -1 0 {'0 ' * 12}77 0")
    (process / "status").write_text("Uid:\t0\t0\t0\t0\n")
    (process / "cgroup").write_text(f"0::{cgroup}\n")
    assert signs.marked({"lease-1": 1_000}, tmp_path) == {
        "lease-1": {(321, 77)} if counts else set()}


def test_that_nothing_could_be_looked_at_is_no_sign_that_it_has_ended(
        child: "subprocess.Popen[bytes]") -> None:
    pidfd = os.pidfd_open(child.pid)
    found = signs.process_of(pidfd, os.getuid())
    os.close(pidfd)
    assert found is not None
    with no_file_descriptors():
        with pytest.raises(OSError, match="open files"):
            signs.is_alive(found)
        with pytest.raises(OSError, match="open files"):
            signs.marked({"lease-1": os.getuid()})
    assert signs.is_alive(found)
