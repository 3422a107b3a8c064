"""The driver's own statistics of processes that have ended, on the C fake, random per run."""

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.backends.nvml.reader import NvmlReader
from agent.readings import ProcessAccounting
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, read


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.use(monkeypatch)
    fake.gpus[0]["accounting"] = 1
    fake.save()
    return fake


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


class Bench:
    def __init__(self, nvml: FakeNvml, child: "subprocess.Popen[bytes]") -> None:
        self.nvml, self.child, self.clock = nvml, child, Clock()
        self.reader = NvmlReader(self.clock)
        self.board = nvml.gpus[0].process(child.pid, 2**30)
        self.began_at = time.time() - random.uniform(1, 1_000)
        self.stats = {"util_pct": random.randint(0, 100), "mem_util_pct": random.randint(0, 100),
                      "mem_peak_bytes": random.randrange(2**37),
                      "ms": int((time.time() - self.began_at) * 1_000), "started_at": self.began_at}
        nvml.save()

    def end(self, **changed: float) -> tuple[ProcessAccounting, ...]:
        """End the process between two readings; return the statistics that the later one brings."""
        read(self.reader, self.clock, 2.0)
        self.board.accounted(self.child.pid, **{**self.stats, **changed})  # type: ignore[arg-type]
        self.nvml.save()
        assert read(self.reader, self.clock, 2.0).accounted == (), "it is still there"
        self.child.kill()
        self.child.wait()
        return read(self.reader, self.clock, 2.0).accounted


@pytest.fixture
def bench(nvml: FakeNvml, child: "subprocess.Popen[bytes]") -> Bench:
    return Bench(nvml, child)


def test_what_the_driver_counted_of_an_ended_process(bench: Bench) -> None:
    stats = bench.stats
    assert bench.end() == (ProcessAccounting(
        bench.child.pid, bench.board.uuid, stats["mem_peak_bytes"], stats["util_pct"],
        stats["mem_util_pct"], stats["ms"] / 1_000),)
    assert read(bench.reader, bench.clock, 2.0).accounted == (), "once"


def test_off_is_not_asked_and_never_switched_on(bench: Bench) -> None:
    bench.board["accounting"] = 0
    bench.nvml.save()
    before = bench.nvml.call_count("nvmlDeviceGetAccountingStats")
    assert bench.end() == ()
    assert bench.nvml.call_count("nvmlDeviceGetAccountingStats") == before
    assert bench.nvml.calls("nvmlDeviceSetAccountingMode") == []
    facts = read(bench.reader, bench.clock).facts
    assert [gpu.accounting_on for gpu in facts] == [False, False]


def test_facts_say_whether_it_is_on(bench: Bench) -> None:
    del bench.nvml.gpus[1]["accounting"]
    bench.nvml.save()
    assert [gpu.accounting_on for gpu in read(NvmlReader(bench.clock), bench.clock).facts] == [
        True, None]


def test_another_process_of_that_number_is_not_it(bench: Bench) -> None:
    """The driver's ring keeps thousands, and pids come again."""
    assert bench.end(started_at=bench.began_at - 90_000) == ()


def test_a_later_process_of_that_number_is_not_it(bench: Bench) -> None:
    assert bench.end(started_at=time.time() + 60) == ()


def test_one_that_it_says_is_running_has_no_statistics_yet(bench: Bench) -> None:
    assert bench.end(running=True) == ()


def test_sentinels_are_not_known(bench: Bench) -> None:
    [accounting] = bench.end(util_pct=2**32 - 1, mem_util_pct=101, mem_peak_bytes=2**64 - 1)
    assert (accounting.util_pct, accounting.mem_util_pct, accounting.mem_peak_bytes) == (None,) * 3
    assert accounting.seconds == bench.stats["ms"] / 1_000


@pytest.mark.parametrize("code", [3, 4, 6, 999])
def test_a_driver_that_refuses_costs_nothing_else(bench: Bench, code: int) -> None:
    bench.board.error("nvmlDeviceGetAccountingStats", code)
    assert bench.end() == ()
    assert read(bench.reader, bench.clock).gpus[0].state == "ok"
