"""NVLink and topology, and unattributed memory, from NVML on the C fake."""

import random
from pathlib import Path
from typing import Any

import pytest

from agent.backends.nvml.processes import NvmlProcessLists
from agent.backends.nvml.reader import SLOW_EVERY_S, NvmlReader
from gpudeck.contract.wire import GpuLink
from gpudeck.measures.metrics import Absence
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, add, expected, fill, read, slowly, value

MIB = 2**20


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    for gpu in fake.gpus:
        fill(gpu, random.Random(random.random()))
    fake.save()
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_links_of_the_fifth_generation_are_counted_one_by_one(
    nvml: FakeNvml, clock: Clock
) -> None:
    gpu = nvml.gpus[0]
    gpu.update(nvlink_tx_kib=None, nvlink_rx_kib=None)
    for number in (38, 45, 52, 59):
        del gpu[f"field_{number}"]
    gpu.update({f"nvlink_{link}": None for link in range(2, 18)})
    gpu.update(nvlink_0=1, nvlink_1=1, field_208_0=4, field_208_1=5, field_215_1=6,
               field_202_0=2**50, field_202_1=7, field_204_0=0, field_204_1=0)
    nvml.save()
    reader = NvmlReader(clock)
    slowly(reader, clock)
    slowly(reader, clock)
    add(gpu, field_202_0=15_000, field_202_1=30_000)
    nvml.save()
    reading = slowly(reader, clock)[0]
    assert value(reading, "nvlink_errors") == 15
    assert value(reading, "nvlink_tx_bytes_per_s") == 3_000
    assert value(reading, "nvlink_rx_bytes_per_s") == 0


def test_a_link_that_does_not_answer_makes_no_sum(nvml: FakeNvml, clock: Clock) -> None:
    """Seventeen of eighteen links up would be an alarm."""
    nvml.gpus[0]["field_165_7"] = "error 999"
    nvml.gpus[0]["field_45"] = "error 999"
    nvml.save()
    first, second = slowly(NvmlReader(clock), clock)
    assert value(first, "nvlinks_up") is Absence.UNKNOWN
    assert value(first, "nvlink_errors") is Absence.UNKNOWN
    assert value(second, "nvlinks_up") == expected(nvml.gpus[1])["nvlinks_up"]


def test_how_gpus_reach_each_other(nvml: FakeNvml, clock: Clock) -> None:
    """Direct links are counted to their other end; those that meet in switches as a whole."""
    a, b = nvml.gpus
    c = nvml.gpu()
    fill(c, random.Random(random.random()))
    for gpu in nvml.gpus:
        gpu.update({f"nvlink_{link}": None for link in range(18)})
    a.update(nvlink_0=1, nvlink_0_to=b["pci"], nvlink_1=1, nvlink_1_to=b["pci"], nvlink_2=0,
             nvlink_2_to=b["pci"], nvlink_3=1, nvlink_3_to="switch")
    b.update(nvlink_0=1, nvlink_0_to=a["pci"], nvlink_1=1, nvlink_1_to=a["pci"])
    c.update(nvlink_0=1, nvlink_0_to="switch", nvlink_1=1, nvlink_1_to="switch")
    a.update(ancestor_1=10, ancestor_2=50)
    b.update(ancestor_2=77)  # a level that nobody knows
    nvml.save()
    reader = NvmlReader(clock)
    links = (GpuLink(0, 1, "one switch", 2), GpuLink(0, 2, "system", 1))
    assert read(reader, clock).links == links
    before = nvml.call_count("nvmlDeviceGetTopologyCommonAncestor")
    nvml.gpus[1].lose()
    nvml.save()
    assert slowly(reader, clock)[1].state == "lost"
    assert read(reader, clock).links == links
    nvml.gpus[1].heal()
    a["nvlink_1"] = 0
    nvml.save()
    for _ in range(3):
        reading = read(reader, clock, SLOW_EVERY_S)
    assert reading.links[0] == GpuLink(0, 1, "one switch", 1)
    assert nvml.call_count("nvmlDeviceGetTopologyCommonAncestor") - before <= 8


@pytest.mark.parametrize(("extra_mib", "unseen_mib"), [(0, 0), (31, 0), (32, 32), (9_000, 9_000)])
def test_memory_that_no_listed_process_holds(
    nvml: FakeNvml, clock: Clock, extra_mib: int, unseen_mib: int
) -> None:
    """Pitfall 15."""
    used_bytes, gpu = random.randrange(2**32), nvml.gpus[0]
    gpu["mem_used"] = used_bytes + extra_mib * MIB
    gpu.process(4_711, used_bytes // 2).process(4_712, used_bytes - used_bytes // 2)
    nvml.save()
    assert value(slowly(NvmlReader(clock), clock)[0], "mem_unseen_bytes") == unseen_mib * MIB


def test_unseen_memory_is_unknown_when_a_share_is(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 15 and trap A.3: None is not 0."""
    nvml.gpus[0].update(mem_used=2**33)
    nvml.gpus[0].process(4_711, None)
    nvml.gpus[1].error("nvmlDeviceGetComputeRunningProcesses_v3", 999)
    nvml.save()
    first, second = slowly(NvmlReader(clock), clock)
    assert value(first, "mem_unseen_bytes") is Absence.UNKNOWN
    assert value(second, "mem_unseen_bytes") is Absence.UNKNOWN


def test_more_listed_than_used_is_nothing_unseen(nvml: FakeNvml, clock: Clock) -> None:
    """Shared memory is counted with each process: the difference may be negative."""
    nvml.gpus[0].update(mem_used=2**30)
    nvml.gpus[0].process(4_711, 2**30).process(4_712, 2**30)
    nvml.save()
    assert value(slowly(NvmlReader(clock), clock)[0], "mem_unseen_bytes") == 0


@pytest.mark.parametrize("came", [True, False])
def test_a_task_that_came_or_went_is_not_unseen(
    nvml: FakeNvml, clock: Clock, monkeypatch: pytest.MonkeyPatch, came: bool
) -> None:
    """Pitfall 15: list and memory are not of one moment. The process is in the memory of one of
    the two readings and not in the list between them."""
    nvml.gpus[0]["mem_used"] = 0 if came else 2**33
    nvml.save()
    reader = NvmlReader(clock)
    original_read = NvmlProcessLists.read

    def read_during_change(lists: NvmlProcessLists, now: float) -> Any:
        listing = original_read(lists, now)
        nvml.gpus[0]["mem_used"] = 2**33 if came else 0
        nvml.save()
        return listing

    monkeypatch.setattr(NvmlProcessLists, "read", read_during_change)
    assert value(slowly(reader, clock)[0], "mem_unseen_bytes") == 0
