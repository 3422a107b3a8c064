"""Pitfall 20: the monitor's own load is measured and reported."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.telemetry.self_cost import MEMORY_EVERY_S, ProcessCostMeter, outbox_files, size_of
from gpudeck.system.process_cost import cpu_s, pss_bytes

ME = frozenset((os.getpid(),))
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_cpu_of_all_processes_together_is_what_was_burnt() -> None:
    now = 0.0
    meter = ProcessCostMeter(lambda: now)
    assert meter.take(ME, None, None).cpu_pct is None  # nothing to compare with yet
    burnt = random.uniform(0.05, 0.2)
    burn(burnt)
    now = 2.0
    assert meter.take(ME, None, None).cpu_pct == pytest.approx(50 * burnt, abs=5)
    now = 4.0
    assert meter.take(ME, None, None).cpu_pct == pytest.approx(0.0, abs=2.5)


def test_a_reader_that_was_replaced_takes_nothing_below_zero(
    child: "subprocess.Popen[bytes]"
) -> None:
    now = 0.0
    meter = ProcessCostMeter(lambda: now)
    meter.take(ME | {child.pid}, None, None)
    child.kill()
    child.wait()
    now = 2.0
    cost = meter.take(ME | {child.pid}, None, None)
    assert cost.cpu_pct is not None
    assert cost.cpu_pct >= 0
    assert cost.memory_bytes is None or cost.memory_bytes > 0


def test_memory_is_the_kernels_share_and_is_not_asked_at_each_beat(
    child: "subprocess.Popen[bytes]"
) -> None:
    now = 0.0
    meter = ProcessCostMeter(lambda: now)
    first = meter.take(ME | {child.pid}, None, None).memory_bytes
    whole = sum(psutil.Process(pid).memory_full_info().pss for pid in (*ME, child.pid))
    assert first == pytest.approx(whole, rel=0.2)
    ballast = bytearray(random.randbytes(2**26))  # far more than what others free meanwhile
    now = MEMORY_EVERY_S - 1
    assert meter.take(ME | {child.pid}, None, None).memory_bytes == first
    now = MEMORY_EVERY_S
    grown = meter.take(ME | {child.pid}, None, None).memory_bytes
    assert grown is not None
    assert first is not None
    assert grown > first + len(ballast) / 2


def test_what_cannot_be_read_is_not_zero(tmp_path: Path) -> None:
    free_pid = 2**22 - 1
    assert cpu_s(free_pid) is None
    assert pss_bytes(free_pid) is None
    cost = ProcessCostMeter(proc=tmp_path).take(frozenset((free_pid,)), 0.5, None)
    assert (cost.cpu_pct, cost.memory_bytes, cost.outbox_bytes) == (None, None, None)
    assert cost.read_s == 0.5


def test_where_a_process_clock_cannot_be_read_the_table_of_processes_is(tmp_path: Path) -> None:
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "stat").write_text("77 (a ) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 9")
    assert cpu_s(77, tmp_path) == 300 / os.sysconf("SC_CLK_TCK")


def test_the_outbox_on_disk_is_counted(tmp_path: Path) -> None:
    assert size_of(outbox_files(tmp_path)) is None
    sizes = [random.randrange(1, 9_999) for _ in range(2)]
    for path, size in zip(outbox_files(tmp_path), sizes, strict=True):
        path.write_bytes(bytes(size))
    assert size_of(outbox_files(tmp_path)) == sum(sizes)


# Megabytes each, on every node, for what the daemon does not do.
NOT_CARRIED = {"asyncio", "email", "engineio", "http.client", "msgpack", "pynvml", "requests",
               "socketio", "tornado", "urllib.request"}


def test_the_daemon_carries_no_more_than_it_uses() -> None:
    code = "import sys; {}import agent.cli.main, agent.reader.watchdog; print(*sys.modules)"
    for first, carried in (("", set[str]()), ("import http.client; ", {"http.client", "email"})):
        child = subprocess.run([sys.executable, "-c", code.format(first)], cwd=ROOT, text=True,
                               capture_output=True, check=True, timeout=60)
        assert NOT_CARRIED & set(child.stdout.split()) == carried
