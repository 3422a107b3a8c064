"""The driver's samples between two readings: a job that is busy in bursts never looks idle."""

import random
import time
from pathlib import Path

import pytest

from agent.backends.nvml.reader import NvmlReader
from gpudeck.measures.metrics import Absence
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, read, value

US = 1_000_000
TICK_US = US // 5


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def clock() -> Clock:
    return Clock()


def buffer(kind: str, samples: "dict[int, int]", gpu: int = 0) -> str:
    return f"samples {gpu} {kind} " + " ".join(f"{at}:{number}" for at, number in samples.items())


def spread(values: "list[int]", until_us: int) -> dict[int, int]:
    """Return a sample every 200 ms, the last of them at `until_us`."""
    return {until_us - TICK_US * back: number
            for back, number in zip(range(len(values) - 1, -1, -1), values, strict=True)}


@pytest.mark.parametrize("has_buffers", [True, False])
def test_a_job_that_is_busy_for_200_ms_in_each_second_is_seen(
    nvml: FakeNvml, clock: Clock, has_buffers: bool
) -> None:
    """The tick always falls between the bursts. The arm without the
    driver's buffers shows that they are what sees it."""
    nvml.gpus[0].update(util=0, mem_util=0, power_mw=70_000)
    reader = NvmlReader(clock)
    start_us = int(time.time()) * US
    busy, power_mw = random.randint(60, 100), random.randint(400_000, 700_000)
    history: dict[str, dict[int, int]] = {"util": {}, "mem_util": {}, "power": {}}
    for second in range(4):
        until_us = start_us + second * US
        history["util"] |= spread([0, 0, busy, 0, 0], until_us)
        history["mem_util"] |= spread([0, 0, 40, 0, 0], until_us)
        history["power"] |= spread([70_000, 70_000, power_mw, 70_000, 70_000], until_us)
        nvml.lines = [buffer(kind, rows) for kind, rows in history.items()] if has_buffers else []
        nvml.save()
        gpu = read(reader, clock).gpus[0]
        values = [value(gpu, key) for key in (
            "util_pct", "util_max_pct", "mem_util_pct", "power_max_w", "power_w")]
        if has_buffers:
            assert values == pytest.approx([
                busy / 5, busy, 8, power_mw / 1_000, (4 * 70 + power_mw / 1_000) / 5])
        else:
            assert values == [0, 0, 0, 70, 70]


def test_each_sample_counts_once(nvml: FakeNvml, clock: Clock) -> None:
    """trap A.2: NotFound means that none is new, not that the GPU is idle."""
    nvml.gpus[0]["util"] = 7
    now_us = int(time.time()) * US
    nvml.lines = [buffer("util", spread([100] * 5, now_us))]
    nvml.save()
    reader = NvmlReader(clock)
    assert value(read(reader, clock).gpus[0], "util_pct") == 100
    assert value(read(reader, clock).gpus[0], "util_pct") == 7
    nvml.lines = [buffer("util", spread([100] * 5, now_us) | {now_us + US // 2: 30})]
    nvml.save()
    assert value(read(reader, clock).gpus[0], "util_pct") == 30


def test_the_first_answer_brings_history_that_does_not_count(nvml: FakeNvml, clock: Clock) -> None:
    now_us = int(time.time()) * US
    nvml.lines = [buffer("util", spread([100] * 15 + [20] * 5, now_us))]
    nvml.save()
    gpu = read(NvmlReader(clock), clock).gpus[0]
    assert (value(gpu, "util_pct"), value(gpu, "util_max_pct")) == (20, 20)


def test_samples_that_cannot_be_do_not_count(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 1: a buffer holds garbage after a driver's start."""
    now_us = int(time.time()) * US
    nvml.gpus[1]["util"] = 9
    nvml.lines = [buffer("util", spread([30, 4_000_000_000, 50], now_us)),
                  buffer("util", spread([101, 4_000_000_000], now_us), gpu=1)]
    nvml.save()
    first, second = read(NvmlReader(clock), clock).gpus
    assert (value(first, "util_pct"), value(first, "util_max_pct")) == (40, 50)
    assert value(second, "util_pct") == 9


def test_a_clock_that_was_set_back_does_not_stop_the_samples(nvml: FakeNvml, clock: Clock) -> None:
    """Their times are of the machine's clock: until it had caught up, none would be new."""
    nvml.gpus[0]["util"] = 0
    now_us = int(time.time()) * US
    nvml.lines = [buffer("util", {now_us + 3_600 * US: 50})]
    nvml.save()
    reader = NvmlReader(clock)
    assert value(read(reader, clock).gpus[0], "util_pct") == 50
    nvml.lines = [buffer("util", spread([60, 80], now_us))]
    nvml.save()
    assert value(read(reader, clock).gpus[0], "util_pct") == 70


def test_a_buffer_that_fails_now_and_then_is_asked_again(nvml: FakeNvml, clock: Clock) -> None:
    """nvml.h: an empty buffer between the two calls of one question is a bad argument."""
    now_us = int(time.time()) * US
    nvml.lines = [buffer("util", {now_us: 10}), "error 0 nvmlDeviceGetSamples 2"]
    nvml.save()
    reader = NvmlReader(clock)
    assert value(read(reader, clock).gpus[0], "util_pct") == nvml.gpus[0]["util"]
    nvml.lines = nvml.lines[:1]
    nvml.save()
    assert value(read(reader, clock).gpus[0], "util_pct") == 10


def test_a_board_without_buffers_is_asked_once(nvml: FakeNvml, clock: Clock) -> None:
    reader = NvmlReader(clock)
    read(reader, clock)
    before = nvml.call_count("nvmlDeviceGetSamples")
    gpu = read(reader, clock).gpus[0]
    assert value(gpu, "util_pct") == nvml.gpus[0]["util"]
    assert value(gpu, "util_pct") is not Absence.UNSUPPORTED
    assert nvml.call_count("nvmlDeviceGetSamples") == before
