"""MIG: instances as GPUs of their parent (pitfalls.md 7; pitfalls.md A.2, A.3), read by
unmodified pynvml from the C fake. Values are random per run."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.actions.verify import memory
from agent.backends import ReaderUnavailableError
from agent.backends.nvml.mig import OFF_LOOKED_AT_EVERY_S
from agent.backends.nvml.reader import SLOW_EVERY_S, NvmlReader
from agent.readings import GpuReading, ProcessReading, Reading
from agent.tasks.boot_id import boot_id
from agent.tasks.task_table import TaskTable
from agent.telemetry.sampler import SamplerState, sample
from gpudeck.contract.wire import Frame, GpuFacts, unpack
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, WIDTH, Absence
from tests.fakes.nvml import FakeGpu, FakeNvml

ME = os.getpid()
LISTS = [f"nvmlDeviceGet{kind}RunningProcesses_v{version}"
         for kind in ("Compute", "Graphics", "MPSCompute") for version in (2, 3)]
NO_PERMISSION, NOT_SUPPORTED, UNKNOWN = 4, 3, 999


class Clock:
    def __init__(self) -> None:
        self.now = random.uniform(1_000, 9_000)

    def __call__(self) -> float:
        return self.now


class Bench:
    """A fake machine whose second board is split, and a reader of it."""

    def __init__(self, nvml: FakeNvml) -> None:
        self.nvml = nvml
        self.board = nvml.gpus[1]
        self.clock = Clock()
        self._reader: NvmlReader | None = None

    @property
    def reader(self) -> NvmlReader:
        self._reader = self._reader or NvmlReader(self.clock)
        return self._reader

    def read(self, after_s: float = 2.0) -> Reading:
        self.nvml.save()
        self.clock.now += after_s
        return self.reader.read()

    def split(self, *profiles: str) -> list[FakeGpu]:
        return [self.nvml.mig(self.board, profile, gi=number + 3)
                for number, profile in enumerate(profiles)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    fake = FakeNvml(tmp_path, gpus=3)
    fake.use(monkeypatch)
    return Bench(fake)


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    started = subprocess.Popen(["sleep", "600"])
    yield started
    started.kill()
    started.wait()


def value(gpu: GpuReading, key: str) -> Any:
    at = COLUMN[key]
    return gpu.values[at] if gpu.absent[at] == Absence.PRESENT else Absence(gpu.absent[at])


def slow_value(gpu: GpuReading, key: str) -> Any:
    at = SLOW_COLUMN[key]
    return gpu.slow[at] if gpu.slow_absent[at] == Absence.PRESENT else Absence(gpu.slow_absent[at])


def gpu_of(reading: Reading, uuid: str) -> GpuReading:
    return next(gpu for gpu in reading.gpus if gpu.uuid == uuid)


def facts_of(reading: Reading, uuid: str) -> GpuFacts:
    return next(facts for facts in reading.facts if facts.uuid == uuid)


def pids_by_gpu(reading: Reading) -> dict[str, list[int]]:
    pids: dict[str, list[int]] = {}
    for process in reading.processes or ():
        pids.setdefault(process.gpu_uuid, []).append(process.pid)
    return pids


def test_instances_follow_their_parent_with_their_own_facts(bench: Bench) -> None:
    large, small = bench.split("3g.40gb", "1g.10gb")
    reading = bench.read()
    uuids = [bench.nvml.gpus[0].uuid, bench.board.uuid, large.uuid, small.uuid,
             bench.nvml.gpus[2].uuid]
    assert [gpu.uuid for gpu in reading.gpus] == uuids
    assert [facts.uuid for facts in reading.facts] == uuids
    for device, profile in ((large, "3g.40gb"), (small, "1g.10gb")):
        facts = facts_of(reading, device.uuid)
        assert (facts.parent_uuid, facts.mig_profile) == (bench.board.uuid, profile)
        assert (facts.index, facts.gpu_instance, facts.compute_instance) == (1, device["gi"], 0)
        assert facts.mem_total_bytes == device["mem_total"]
        assert facts.pci_bus_id == bench.board["pci"]
        assert value(gpu_of(reading, device.uuid), "mem_used_bytes") == device["mem_used"]
    assert [facts.parent_uuid for facts in reading.facts].count(None) == 3


def test_a_profile_is_told_by_its_slices_where_the_name_has_none(bench: Bench) -> None:
    [half, part] = bench.split("4g.40gb", "2g.20gb")
    half["name"] = None
    part.update(name=None, ci_slices=1)
    reading = bench.read()
    assert facts_of(reading, half.uuid).mig_profile == "4g.40gb"
    assert facts_of(reading, part.uuid).mig_profile == "1c.2g.20gb"


def test_pitfall_7_utilization_is_unsupported_with_mig_and_never_0(bench: Bench) -> None:
    """Even of a driver that answers 0 for what it does not know; control arm: MIG off."""
    [device] = bench.split("7g.80gb")
    bench.board.update(util=0, mem_util=0, enc=0, dec=0, jpg=0, ofa=0)
    bench.board.lines.append(f"samples {bench.board.number} util 0 0 0")
    device.update(util=0, mem_util=0, temp=0, power_mw=0, sm_clock=0, fan=0)
    reading = bench.read()
    for uuid in (bench.board.uuid, device.uuid):
        for key in ("util_pct", "util_max_pct", "mem_util_pct"):
            assert value(gpu_of(reading, uuid), key) is Absence.UNSUPPORTED, (uuid, key)
            assert facts_of(reading, uuid).missing[key] == "unsupported"
        for key in ("enc_util_pct", "dec_util_pct", "jpg_util_pct", "ofa_util_pct"):
            assert slow_value(gpu_of(reading, uuid), key) is Absence.UNSUPPORTED, (uuid, key)
    for key in COLUMN.keys() - {"mem_used_bytes", "sm_active_pct"}:
        assert value(gpu_of(reading, device.uuid), key) is Absence.UNSUPPORTED, key
    assert value(gpu_of(reading, bench.board.uuid), "temp_c") == bench.board["temp"]
    bench.board.update(mig=0, mig_pending=0)
    board = gpu_of(bench.read(OFF_LOOKED_AT_EVERY_S + 1), bench.board.uuid)
    assert value(board, "util_pct") == 0


@pytest.mark.parametrize("by_handle", [False, True], ids=["nvmlGpmMigSampleGet", "by handle"])
def test_sm_activity_of_an_instance_comes_from_gpm(bench: Bench, by_handle: bool) -> None:
    one, other = bench.split("3g.40gb", "4g.40gb")
    bench.board["no_gpm_mig"] = 1 if by_handle else None
    bench.read()
    time.sleep(0.11)  # GPM wants its samples that far apart, by the driver's own clock
    reading = bench.read()
    for device in (one, other):
        assert value(gpu_of(reading, device.uuid), "sm_active_pct") == device["sm_active"]


def test_a_gpm_share_of_two_compute_instances_is_nobodys(bench: Bench) -> None:
    """GPM measures the GPU instance: shown on both it would be counted twice."""
    one, other = bench.split("3g.40gb", "3g.40gb")
    other.update(gi=one["gi"], ci=1)
    bench.read()
    time.sleep(0.11)
    reading = bench.read()
    for device in (one, other):
        assert value(gpu_of(reading, device.uuid), "sm_active_pct") is Absence.UNSUPPORTED


def test_a_gap_in_the_places_is_skipped(bench: Bench) -> None:
    first, second, third = bench.split("1g.10gb", "1g.10gb", "1g.10gb")
    gone_uuid = second.uuid
    second["uuid"] = None
    uuids = [gpu.uuid for gpu in bench.read().gpus]
    assert gone_uuid not in uuids
    assert uuids[2:4] == [first.uuid, third.uuid]


def test_memory_of_the_board_may_be_denied_while_instances_tell_theirs(bench: Bench) -> None:
    """pitfalls.md A.2: NO_PERMISSION on the MIG aggregate."""
    [device] = bench.split("3g.40gb")
    bench.board.error("nvmlDeviceGetMemoryInfo_v2", NO_PERMISSION)
    reading = bench.read()
    assert value(gpu_of(reading, bench.board.uuid), "mem_used_bytes") is Absence.DENIED
    assert value(gpu_of(reading, device.uuid), "mem_used_bytes") == device["mem_used"]


@pytest.mark.parametrize("denied", ["nobody", "board", "instance"])
def test_a_process_is_on_its_instance_and_counted_once(
    bench: Bench, child: "subprocess.Popen[bytes]", denied: str
) -> None:
    """pitfalls.md A.3: the board's list holds those of all its instances, and is for the
    privileged; a host of vGPUs refuses the instances' own."""
    one, other = bench.split("3g.40gb", "4g.40gb")
    used_bytes = random.randrange(2**30)
    other.process(child.pid, used_bytes)
    bench.board.process(ME, 2**20)  # of no instance that we know of
    for device in {"nobody": [], "board": [bench.board], "instance": [one, other]}[denied]:
        for name in LISTS:
            device.error(name, NO_PERMISSION)
    reading = bench.read()
    pids = {other.uuid: [child.pid], bench.board.uuid: [ME]}
    if denied == "board":
        del pids[bench.board.uuid]
    assert pids_by_gpu(reading) == pids
    rows = {process.pid: process for process in reading.processes or ()}
    assert (rows[child.pid].mem_used_bytes, rows[child.pid].sm_pct) == (used_bytes, None)
    fresh = {process.pid: process for process in bench.reader.fresh().processes}
    assert fresh[child.pid].gpu_uuid == other.uuid


def test_a_list_that_fails_once_keeps_its_tasks_and_stops_acts(
    bench: Bench, child: "subprocess.Popen[bytes]"
) -> None:
    [device] = bench.split("3g.40gb")
    device.process(child.pid, 2**20)
    assert pids_by_gpu(bench.read()) == {device.uuid: [child.pid]}
    device.error("nvmlDeviceGetComputeRunningProcesses_v3", UNKNOWN)
    assert pids_by_gpu(bench.read()) == {device.uuid: [child.pid]}
    with pytest.raises(ReaderUnavailableError, match="does not list"):
        bench.reader.fresh()


def test_instances_come_and_go_while_we_look_on(bench: Bench) -> None:
    """A change is another list of GPUs, and so another Inventory: the sampler compares facts."""
    first, second = bench.split("3g.40gb", "1g.10gb")
    before = bench.read().facts
    gone_uuid = first.uuid
    first["uuid"] = None
    third = bench.nvml.mig(bench.board, "2g.20gb", gi=9)
    after = bench.read()
    assert [facts.uuid for facts in before][2:4] == [gone_uuid, second.uuid]
    assert [gpu.uuid for gpu in after.gpus][2:4] == [second.uuid, third.uuid]
    assert [facts.uuid for facts in after.facts] == [gpu.uuid for gpu in after.gpus]


def test_a_changed_board_is_another_inventory_and_uses_follow(
    bench: Bench, child: "subprocess.Popen[bytes]"
) -> None:
    """The sampler sends no number and no task of one GPU at the place of another."""
    first, second = bench.split("3g.40gb", "4g.40gb")
    second.process(child.pid, 2**20)
    table = TaskTable(boot_id())
    state, places = SamplerState(), []
    for _ in range(2):
        reading = bench.read()
        tasks = table.describe(reading.processes or ())
        step = sample(state, reading, tasks, 1, bench.clock.now)
        state, frame = step.memory, step.messages[-1]
        assert isinstance(frame, Frame)
        assert step.inventory is not None
        assert frame.generation == step.inventory.generation
        assert len(frame.states) == len(step.inventory.gpus)
        assert frame.tasks is not None
        [use] = frame.tasks.uses
        assert step.inventory.gpus[use.gpu].uuid == second.uuid
        used_bytes = unpack(frame.values)[use.gpu * WIDTH + COLUMN["mem_used_bytes"]]
        assert used_bytes == second["mem_used"]
        places.append((frame.generation, use.gpu))
        first["uuid"] = None
    assert places == [(1, 3), (2, 2)]


def test_a_second_of_a_split_board_costs_few_calls(bench: Bench) -> None:
    """Pitfall 20, the monitor is the load. Two of each instance's seven find out who it is."""
    bench.split(*["1g.10gb"] * 7)
    for _ in range(15):
        bench.read(after_s=1.0)
    before = bench.nvml.call_count()
    for _ in range(30):
        bench.read(after_s=1.0)
    of_boards = 3 * 17
    assert (bench.nvml.call_count() - before) / 30 < of_boards + 7 * 8


def test_no_reading_under_a_wrong_uuid_when_places_change_hands(bench: Bench) -> None:
    """The place that one instance had is given to another: numbers go with the UUID."""
    first, second = bench.split("3g.40gb", "3g.40gb")
    bench.read()
    old = first.uuid
    stranger = {"uuid": f"MIG-{random.getrandbits(64):032x}", "gi": 12,
                "mem_used": random.randrange(2**30)}
    first.update(stranger)
    reading = bench.read()
    assert old not in {gpu.uuid for gpu in reading.gpus}
    assert value(gpu_of(reading, first.uuid), "mem_used_bytes") == stranger["mem_used"]
    assert facts_of(reading, first.uuid).gpu_instance == 12
    one, other = dict(first), dict(second)
    first.update(other)  # both swap places
    second.update(one)
    reading = bench.read()
    for device in (first, second):
        gpu = gpu_of(reading, device.uuid)
        assert value(gpu, "mem_used_bytes") == device["mem_used"]
        assert facts_of(reading, device.uuid).gpu_instance == device["gi"]


def test_a_lost_board_has_lost_its_instances_and_no_other(bench: Bench) -> None:
    devices = bench.split("3g.40gb", "4g.40gb")
    bench.read()
    bench.board.lose()
    states = {gpu.uuid: gpu.state for gpu in bench.read().gpus}
    for uuid, state in states.items():
        its = uuid in (bench.board.uuid, *(device.uuid for device in devices))
        assert state == ("lost" if its else "ok")
    bench.board.heal()
    assert {gpu.state for gpu in bench.read(after_s=60).gpus} == {"ok"}


@pytest.mark.parametrize("call", [
    "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigMode"])
def test_trouble_with_one_answer_takes_no_instance_away(bench: Bench, call: str) -> None:
    devices = bench.split("3g.40gb", "4g.40gb")
    bench.read()
    bench.board.error(call, UNKNOWN)
    reading = bench.read()
    assert [gpu.uuid for gpu in reading.gpus][2:4] == [device.uuid for device in devices]


def test_mig_switched_off_and_on(bench: Bench) -> None:
    """Refused queries are repeated: support differs with MIG."""
    [device] = bench.split("7g.80gb")
    uuid = device.uuid
    bench.read()
    bench.board.update(mig=0, mig_pending=0, util=random.randint(1, 99), mem_util=1)
    device["uuid"] = None
    reading = bench.read()
    assert uuid not in {gpu.uuid for gpu in reading.gpus}
    assert value(gpu_of(reading, bench.board.uuid), "util_pct") == bench.board["util"]
    bench.board.update(mig=1, mig_pending=1, util=None)
    device["uuid"] = uuid
    reading = bench.read(OFF_LOOKED_AT_EVERY_S + 1)
    assert uuid in {gpu.uuid for gpu in reading.gpus}
    assert value(gpu_of(reading, bench.board.uuid), "util_pct") is Absence.UNSUPPORTED


def test_memory_that_no_visible_process_holds_is_the_instances(
    bench: Bench, child: "subprocess.Popen[bytes]"
) -> None:
    """Memory of its instances' processes is not the board's unseen memory."""
    one, other = bench.split("3g.40gb", "4g.40gb")
    used_bytes, unseen = random.randrange(2**28, 2**30), random.randrange(2**28, 2**30)
    for device in (one, other):
        device.update(mem_used=used_bytes, mem_reserved=0)
    one.process(child.pid, used_bytes)
    other.process(child.pid, used_bytes - unseen if used_bytes > unseen else 0)
    reading = bench.read()
    assert slow_value(gpu_of(reading, bench.board.uuid), "mem_unseen_bytes") is (
        Absence.UNSUPPORTED)
    assert slow_value(gpu_of(reading, one.uuid), "mem_unseen_bytes") == 0
    assert slow_value(gpu_of(reading, other.uuid), "mem_unseen_bytes") == min(used_bytes, unseen)


def test_gr_activity_is_an_instances_own(bench: Bench) -> None:
    """metrics.py: under MIG it replaces utilization."""
    one, other = bench.split("3g.40gb", "4g.40gb")
    for device in (one, other):
        device["gpm_1"] = random.uniform(0, 100)
    bench.read()
    time.sleep(0.11)
    reading = bench.read(SLOW_EVERY_S)
    for device in (one, other):
        gpu = gpu_of(reading, device.uuid)
        assert slow_value(gpu, "gr_active_pct") == pytest.approx(device["gpm_1"])
        assert slow_value(gpu, "ecc_corrected") is Absence.UNSUPPORTED
        assert facts_of(reading, device.uuid).missing["ecc_corrected"] == "unsupported"


def test_memory_returned_is_judged_by_the_instance(bench: Bench) -> None:
    """An end on an instance looks at its memory: what happens elsewhere on the board
    does not matter."""
    one, other = bench.split("3g.40gb", "4g.40gb")
    amount = random.randrange(2**28, 2**30)
    for device in (one, other):
        device.update(mem_adds=1, mem_used=2**20)
    victim, neighbour = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    try:
        one.process(victim.pid, amount, after_exit="memory_stays")
        other.process(neighbour.pid, amount)
        bench.read()
        before = bench.reader.fresh()
        assert before.mem_used_bytes[one.uuid] == amount + 2**20
        victim.kill()
        victim.wait()
        bench.read()
        stays = memory(before, bench.reader.fresh(), frozenset({victim.pid}))
        assert (stays.returned, stays.before_bytes, stays.after_bytes) == (False, amount, amount)
        one.forget(victim.pid)
        bench.board["mem_used"] = int(str(bench.board["mem_used"])) + amount  # of somebody else
        bench.read()
        back = memory(before, bench.reader.fresh(), frozenset({victim.pid}))
        assert (back.returned, back.after_bytes) == (True, 0.0)
        assert neighbour.poll() is None
        rows: tuple[ProcessReading, ...] = bench.reader.fresh().processes
        assert [(row.pid, row.gpu_uuid) for row in rows] == [(neighbour.pid, other.uuid)]
    finally:
        for process in (victim, neighbour):
            process.kill()
            process.wait()
