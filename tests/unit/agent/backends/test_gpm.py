"""Performance counters that read 0 because nobody feeds them: never shown as a number."""

import random
import time
from pathlib import Path

import pytest

from agent.backends.nvml.gpm import DEAD_AFTER
from agent.backends.nvml.reader import SLOW_EVERY_S, NvmlReader
from agent.readings import GpuReading
from gpudeck.measures.metrics import Absence
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, fill, read, value

SLOW = ("gr_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct")
DEAD = {"sm_active": 0, "gpm_1": 0, "gpm_3": 0, "gpm_5": 0, "gpm_10": 0}


class Bench:
    def __init__(self, nvml: FakeNvml) -> None:
        self.nvml, self.clock = nvml, Clock()
        self.reader = NvmlReader(self.clock)
        self.detail = ""

    def report(self, **values: float) -> None:
        self.nvml.gpus[0].update(values)
        self.nvml.save()

    def read(self, after_s: float = SLOW_EVERY_S) -> tuple[GpuReading, ...]:
        time.sleep(0.11)  # GPM wants its two samples that far apart, by the driver's own clock
        reading = read(self.reader, self.clock, after_s)
        self.detail = reading.detail
        return reading.gpus


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    nvml = FakeNvml(tmp_path, gpus=2)
    for gpu in nvml.gpus:
        fill(gpu, random.Random(random.random()))
        gpu["util"], gpu["sm_active"] = random.randint(1, 100), random.uniform(0.01, 100)
    nvml.save()
    nvml.use(monkeypatch)
    return Bench(nvml)


def test_silent_zeros_are_unknown_and_said(bench: Bench) -> None:
    bench.read()
    assert value(bench.read()[0], "sm_active_pct") == pytest.approx(
        bench.nvml.gpus[0]["sm_active"])
    bench.report(**DEAD)
    for _ in range(DEAD_AFTER):
        assert "runs kernels" not in bench.detail
        gpu, other = bench.read()
        for key in ("sm_active_pct", *SLOW):
            assert value(gpu, key) is Absence.UNKNOWN, key
            assert value(other, key) > 0
        assert value(gpu, "util_pct") == bench.nvml.gpus[0]["util"]
    assert "GPU 0 runs kernels" in bench.detail
    assert "GPU 1" not in bench.detail
    bench.report(util=0)
    assert value(bench.read()[0], "sm_active_pct") == 0  # nothing runs, so that is true
    assert "GPU 0 runs kernels" in bench.detail, "and no sign that they count again"
    active = random.uniform(0.01, 100)
    bench.report(util=50, sm_active=active)
    assert value(bench.read()[0], "sm_active_pct") == pytest.approx(active)
    assert bench.detail == ""
    bench.report(util=0, sm_active=0)
    assert value(bench.read()[0], "sm_active_pct") == 0


def test_several_boards_with_one_trouble_are_one_sentence(bench: Bench) -> None:
    for gpu in bench.nvml.gpus:
        gpu.update(DEAD)
    bench.nvml.save()
    for _ in range(DEAD_AFTER + 2):
        bench.read()
    assert bench.detail.count("performance counters") == 1
    assert bench.detail.endswith("The same: GPU 1.")


def test_multiprocessors_that_rest_during_copies_are_no_dead_counters(bench: Bench) -> None:
    """Recorded runs of healthy boards show it: weights are loaded for seconds, and then for minutes
    nothing runs at all."""
    bench.read()
    copies = random.uniform(0.01, 100)
    bench.report(**DEAD | {"gpm_10": copies, "gpm_20": random.uniform(1, 1_000)})
    for _ in range(DEAD_AFTER + 2):
        gpu = bench.read()[0]
        assert value(gpu, "sm_active_pct") == 0
        assert value(gpu, "dram_active_pct") == pytest.approx(copies)
    bench.report(util=0, **DEAD)
    for _ in range(3):
        assert value(bench.read()[0], "sm_active_pct") == 0
    assert bench.detail == ""


def test_zero_while_nothing_runs_is_a_number(bench: Bench) -> None:
    bench.report(util=0, **DEAD)
    bench.read()
    bench.read()
    gpu = bench.read()[0]
    assert {value(gpu, key) for key in ("sm_active_pct", *SLOW)} == {0}
    assert bench.detail == ""


def test_a_kernel_that_ended_at_a_reading_is_no_dead_counter(bench: Bench) -> None:
    """The driver's utilization is of a little before: one 0 is doubted, the next is believed."""
    bench.read()
    bench.report(**DEAD)
    assert value(bench.read(1.0)[0], "sm_active_pct") is Absence.UNKNOWN
    bench.report(util=0)
    assert value(bench.read(1.0)[0], "sm_active_pct") == 0


def test_no_occupancy_of_active_multiprocessors_is_unknown(bench: Bench) -> None:
    bench.report(gpm_3=0, gpm_5=0)
    bench.read()
    gpu = bench.read()[0]
    assert value(gpu, "sm_occupancy_pct") is Absence.UNKNOWN
    assert value(gpu, "tensor_active_pct") == 0  # not all kernels use tensor cores
    assert value(gpu, "gr_active_pct") == pytest.approx(bench.nvml.gpus[0]["gpm_1"])


def test_one_metric_that_this_driver_does_not_have(bench: Bench) -> None:
    del bench.nvml.gpus[0]["gpm_5"]
    bench.nvml.save()
    bench.read()
    gpu = bench.read()[0]
    assert value(gpu, "tensor_active_pct") is Absence.UNSUPPORTED
    assert value(gpu, "dram_active_pct") == pytest.approx(bench.nvml.gpus[0]["gpm_10"])
