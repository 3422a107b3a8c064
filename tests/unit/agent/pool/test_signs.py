"""The process behind a handle, whether it is still that one, and who has a lease's mark."""

import os
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.pool.lock import LeasedProcess
from agent.pool.signs import ProcessSigns
from gpudeck.contract.pool_messages import LEASE_ENV
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
        process = signs.process_of(pidfd, os.getuid())
        assert process is not None
        assert process.pid == child.pid
        assert signs.is_alive(process)
        assert signs.process_of(pidfd, os.getuid() + 1) is None
        child.kill()
        child.wait()
        assert not signs.is_alive(process)
        assert signs.process_of(pidfd, os.getuid()) is None
    finally:
        os.close(pidfd)


def test_what_ended_and_was_not_reaped_is_not_alive(child: "subprocess.Popen[bytes]") -> None:
    pidfd = os.pidfd_open(child.pid)
    process = signs.process_of(pidfd, os.getuid())
    assert process is not None
    child.kill()
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    os.close(pidfd)
    assert not signs.is_alive(process)


def test_what_has_a_number_that_is_now_a_threads_is_not_alive() -> None:
    """Else its lease would last as long as a thread of somebody else."""
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        for inode in (1, None):
            assert not signs.is_alive(LeasedProcess(thread.native_id or 0, 1, inode))
    finally:
        is_over.set()
        thread.join()


def test_a_mark_counts_for_the_leases_user_alone(child: "subprocess.Popen[bytes]") -> None:
    own = signs.marked({"lease-1": os.getuid()}, {})["lease-1"]
    assert [pid for pid, _ in own] == [child.pid]
    assert signs.marked({"lease-1": os.getuid() + 1}, {}) == {"lease-1": set()}
    assert signs.marked({"lease-2": os.getuid()}, {}) == {"lease-2": set()}


@pytest.mark.parametrize(("environ", "counts"), [
    (b"GPUDECK_LEASE=lease-1\0A=b\0", True),
    (b"APPTAINERENV_GPUDECK_LEASE=lease-1\0A=b\0GPUDECK_LEASE=lease-1\0", True),
    (b"NOTE=GPUDECK_LEASE=other\0GPUDECK_LEASE=lease-1", True),
    (b"APPTAINERENV_GPUDECK_LEASE=lease-1\0A=b\0", False),
    (b"NOTE=GPUDECK_LEASE=lease-1\0", False),
    (b"GPUDECK_LEASE=lease-12\0", False),
    (b"GPUDECK_LEASE=other\0GPUDECK_LEASE=lease-1\0", False),  # programs see the first
])
def test_a_mark_is_a_whole_variable_wherever_it_stands(tmp_path: Path, environ: bytes, counts: bool
                                                       ) -> None:
    process_in(tmp_path, 321, environ)
    assert signs.marked({"lease-1": 1_000}, {}, tmp_path) == {
        "lease-1": {(321, 77)} if counts else set()}


def process_in(proc: Path, pid: int, environ: bytes = b"", parent: int = 1, uid: int = 1_000,
               cgroup: str = "/") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(environ)
    (folder / "stat").write_text(f"{pid} (x) S {parent} 1 1 0 -1 0 {'0 ' * 12}77 0")
    (folder / "status").write_text(f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")


def test_what_descends_from_a_root_or_a_mark_is_of_the_lease(tmp_path: Path) -> None:
    process_in(tmp_path, 10)  # its command
    process_in(tmp_path, 11, parent=10, uid=0)  # by sudo
    process_in(tmp_path, 12, parent=11)
    process_in(tmp_path, 20, b"GPUDECK_LEASE=lease-1\0")
    process_in(tmp_path, 21, parent=20)
    process_in(tmp_path, 30)
    process_in(tmp_path, 31, parent=30)
    by_lease = signs.marked({"lease-1": 1_000}, {"lease-1": {(10, 77), (30, 76)}}, tmp_path)
    assert {pid for pid, _ in by_lease["lease-1"]} == {10, 11, 12, 20, 21}, "30 is another by now"


@pytest.mark.parametrize(("cgroup", "uid", "counts"), [
    ("/user.slice/user-1000.slice/user@1000.service/app.slice/gpudeck-lease-1.scope", 1_000, True),
    ("/user.slice/user-1000.slice/user@1000.service/gpudeck-lease-1.scope/more", 1_000, True),
    ("/user.slice/user-1000.slice/user@1000.service/gpudeck-lease-1.scope", 0, True),
    ("/user.slice/user-1001.slice/user@1001.service/gpudeck-lease-1.scope", 1_001, False),
    ("/user.slice/user-1000.slice/user@1000.service/gpudeck-lease-12.scope", 1_000, False),
    ("/gpudeck-lease-1.scopes", 1_000, False),
])
def test_what_stands_in_its_scope_is_of_the_lease(tmp_path: Path, cgroup: str, uid: int,
                                                  counts: bool) -> None:
    process_in(tmp_path, 321, uid=uid, cgroup=cgroup)
    assert bool(signs.marked({"lease-1": 1_000}, {}, tmp_path)["lease-1"]) == counts


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
    process_in(tmp_path, 321, b"A=b\0GPUDECK_LEASE=lease-1\0", uid=0, cgroup=cgroup)
    assert signs.marked({"lease-1": 1_000}, {}, tmp_path) == {
        "lease-1": {(321, 77)} if counts else set()}


def test_that_nothing_could_be_looked_at_is_no_sign_that_it_has_ended(
        child: "subprocess.Popen[bytes]") -> None:
    pidfd = os.pidfd_open(child.pid)
    process = signs.process_of(pidfd, os.getuid())
    os.close(pidfd)
    assert process is not None
    with no_file_descriptors():
        with pytest.raises(OSError, match="open files"):
            signs.is_alive(process)
        with pytest.raises(OSError, match="open files"):
            signs.marked({"lease-1": os.getuid()}, {})
    assert signs.is_alive(process)
