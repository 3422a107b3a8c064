"""A reader in a control group whose GPU memory is limited: the driver answers it with the limit."""

import random
from pathlib import Path

import pynvml
import pytest

from agent.backends.nvml.reader import NvmlReader
from agent.tasks.control_group import folder_of, group_of
from gpudeck.measures.metrics import Absence
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, read, value

GET = "nvmlDeviceGetMemoryLimits_v1"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    for gpu in fake.gpus:
        gpu["memory_limits"] = 1
    fake.save()
    fake.use(monkeypatch)
    return fake


def test_no_limit_passes_for_the_memory_of_the_gpu(nvml: FakeNvml) -> None:
    clock = Clock()
    reader = NvmlReader(clock)
    limit = pynvml.c_nvmlSetMemoryLimits_v1_t(
        nameSpace=folder_of(group_of("self") or "").encode(), hardLimit=random.randint(1, 2**30))
    pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByIndex(0), limit)
    reading = read(reader, clock)
    assert value(reading.gpus[0], "mem_used_bytes") is Absence.UNKNOWN
    assert reading.facts[0].mem_total_bytes is None
    assert value(reading.gpus[1], "mem_used_bytes") == pytest.approx(nvml.gpus[1]["mem_used"])
    assert reader.fresh().mem_used_bytes[reading.gpus[0].uuid] is None
    assert "the memory limit of the agent's own control group" in reading.detail
    assert value(reading.gpus[0], "util_pct") == nvml.gpus[0]["util"], "the rest is read"


@pytest.mark.parametrize("code", [3, 6, 13, 999])
def test_a_driver_that_knows_no_such_limit_is_read_as_ever(nvml: FakeNvml, code: int) -> None:
    nvml.lines = [f"error * {GET} {code}"]
    nvml.save()
    clock = Clock()
    reading = read(NvmlReader(clock), clock)
    assert value(reading.gpus[0], "mem_used_bytes") == pytest.approx(nvml.gpus[0]["mem_used"])
    assert reading.facts[0].mem_total_bytes == nvml.gpus[0]["mem_total"]
