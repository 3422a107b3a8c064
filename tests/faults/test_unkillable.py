"""A task in D state: SIGKILL is sent once, and the outcome says that the task stays."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.children import is_alive, state_of
from tests.fakes.hub import wait_for
from tests.integration.test_actions_agent import Bed, bed
from tests.machine import required

__all__ = ["bed"]

# Counts its SIGTERMs, and writes until it is stuck.
WRITES = """
import os, signal, sys, time
def note(*_):
    os.write(told, b"t")
told = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
signal.signal(signal.SIGTERM, note)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("ready", flush=True)
while True:
    os.pwrite(file, b"x" * 4096, 0)
    os.fsync(file)
    time.sleep(0.005)
"""


@contextmanager
def a_mount(folder: Path) -> Iterator[Path]:
    """Mount ext4 on a loop device; skip where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    for name in ("mkfs.ext4", "mount", "fsfreeze"):
        required(name)
    image, point = folder / "disk", folder / "mount"
    with open(image, "wb") as file:
        file.truncate(16 * 2**20)
    point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, point], capture_output=True, text=True,
                             check=False)
    if mounted.returncode:
        pytest.skip(f"no loop mounts here: {mounted.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


@contextmanager
def frozen(point: Path) -> Iterator[None]:
    subprocess.run(["fsfreeze", "-f", point], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", point], check=True)


def test_a_task_in_the_kernel_is_unkillable_and_no_signal_is_repeated(
    bed: Bed, tmp_path: Path
) -> None:
    with a_mount(tmp_path) as point:
        notes = tmp_path / "told"
        child = bed.children.start(WRITES, str(point / "file"), str(notes))
        preview = bed.preview(child, grace_s=1.0)
        with frozen(point):
            wait_for(lambda: state_of(child.pid) == "D")
            reply = bed.hub.reply(bed.hub.send(bed.hub.order(preview)))
            assert reply.state == "unkillable"
            assert "No further signal is sent" in reply.step
            assert "dmesg" in reply.step
            assert reply.verified is not None
            assert (reply.verified.exited, reply.verified.survivors) == (False, (child.pid,))
            assert reply.verified.bystanders_alive
            assert is_alive(child.pid)
            # Pending signals: one SIGTERM and one SIGKILL. None of them is sent again.
            status = Path(f"/proc/{child.pid}/status").read_text()
            assert pending_signals(status) <= {signal.SIGTERM, signal.SIGKILL}
            assert not notes.exists() or notes.read_text() == ""
        assert child.process.wait(10) == -signal.SIGKILL
        assert notes.read_text() in ("", "t")
    records = "".join(bed.records())
    assert '"state":"unkillable"' in records
    assert records.count('"intent":true') == 1
    bed.check()


def pending_signals(status: str) -> set[signal.Signals]:
    mask = 0
    for line in status.splitlines():
        if line.startswith(("SigPnd", "ShdPnd")):
            mask |= int(line.split()[1], 16)
    return {number for number in signal.Signals if mask >> (number - 1) & 1}
