"""Processes on a GPU, as the nvml backend makes them of what drivers of many ages say: on the C
fake, values random per run."""

import os
import random
import time
from pathlib import Path

import pytest

from agent.backends.nvml.processes import SILENT_MAX_S, has_wide_rows
from agent.backends.nvml.reader import NvmlReader
from agent.readings import ProcessReading, Reading
from tests.fakes.nvml import FakeNvml

ME = os.getpid()


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def clock() -> "Clock":
    return Clock()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def read(reader: NvmlReader, clock: Clock, after_s: float = 1.0) -> Reading:
    clock.now += after_s
    return reader.read()


def listed(reader: NvmlReader, clock: Clock) -> tuple[ProcessReading, ...]:
    processes = read(reader, clock, after_s=2.0).processes
    assert processes is not None
    return processes


def test_processes_are_the_union_by_pid(nvml: FakeNvml, clock: Clock) -> None:
    amount = random.randrange(2**33)
    nvml.lines = [
        f"process 0 compute {ME} {amount}", f"process 0 graphics {ME} {amount}",
        "process 0 mps 77 -1", "process 0 compute 77 4096", "process 1 graphics 88 -1",
    ]
    nvml.write()
    processes = read(NvmlReader(clock), clock).processes
    assert processes is not None
    assert {(row.pid, row.gpu_uuid, row.mem_used_bytes, row.kind) for row in processes} == {
        (ME, nvml.gpus[0]["uuid"], amount, "compute"),
        (77, nvml.gpus[0]["uuid"], 4096, "mps_client"),
        (88, nvml.gpus[1]["uuid"], None, "graphics"),
    }


def test_processes_are_asked_every_other_second(nvml: FakeNvml, clock: Clock) -> None:
    reader = NvmlReader(clock)
    has_processes = [read(reader, clock).processes is not None for _ in range(6)]
    assert has_processes == [True, False, True, False, True, False]


def test_a_process_list_that_fails_does_not_end_all_tasks(nvml: FakeNvml, clock: Clock) -> None:
    nvml.lines = [f"process 0 compute {ME} 1"]
    nvml.write()
    reader = NvmlReader(clock)
    read(reader, clock)
    nvml.lines.append("error 0 nvmlDeviceGetComputeRunningProcesses_v3 999")
    nvml.write()
    processes = read(reader, clock, after_s=2.0).processes
    assert processes is not None
    assert [row.pid for row in processes] == [ME]
    assert read(reader, clock, after_s=40.0).processes == ()


class Busy:
    """Two processes on GPU 0, and what the driver reports of their shares."""

    def __init__(self, nvml: FakeNvml, clock: Clock) -> None:
        self.nvml, self.clock = nvml, clock
        self.one, self.other = random.sample(range(1_000, 2**22), 2)
        self.reader = NvmlReader(clock)

    def shares(self, *rows: str, after_s: float = 2.0) -> tuple[float | None, float | None]:
        self.nvml.lines = [f"process 0 compute {pid} 1" for pid in (self.one, self.other)] + [*rows]
        self.nvml.write()
        time.sleep(0.001)
        processes = read(self.reader, self.clock, after_s).processes
        assert processes is not None
        shares = {row.pid: row.sm_pct for row in processes}
        return shares[self.one], shares[self.other]


@pytest.fixture
def busy(nvml: FakeNvml, clock: Clock) -> Busy:
    return Busy(nvml, clock)


def test_an_idle_process_has_no_row_and_that_is_0(busy: Busy) -> None:
    """trap A.3 lastSeen: the first answer averages the whole buffer, dead processes and all."""
    share = random.randint(1, 100)
    row = f"busy 0 {busy.one} {share}"
    assert busy.shares(row) == (None, None)
    assert busy.shares(row) == (share, 0.0)


def test_rows_may_hold_garbage(busy: Busy) -> None:
    """trap A.3: foreign pids, shares over 100."""
    row = f"busy 0 {busy.one} {random.randint(1, 100)}"
    busy.shares(row)
    share = random.randint(1, 100)
    rows = (f"busy 0 {busy.one} {share}", f"busy 0 {busy.other} 4000000", "busy 0 999 50")
    assert busy.shares(*rows) == (share, 0.0)


@pytest.mark.parametrize("util", [0, 73])
def test_no_answer_is_no_answer(busy: Busy, util: int) -> None:
    """trap A.3: NotFound is "nobody was busy" or "asked too soon". The last value goes on for a
    while; then it is 0 only if the GPU itself was idle, else unknown."""
    busy.nvml.gpus[0]["util"] = util
    share = random.randint(1, 100)
    row = f"busy 0 {busy.one} {share}"
    busy.shares(row)
    assert busy.shares(row) == (share, 0.0)
    assert busy.shares() == (share, 0.0)
    assert busy.shares() == (share, 0.0)
    assert busy.shares() == ((0.0, 0.0) if util == 0 else (None, None))
    assert busy.shares(row) == (share, 0.0)


def test_shares_come_back_after_the_clock_was_set_back(busy: Busy) -> None:
    """Rows are stamped by a clock that people set: what was seen last may lie ahead of it."""
    busy.nvml.gpus[0]["util"] = 50
    row = f"busy 0 {busy.one} {random.randint(1, 100)}"
    busy.shares(row)
    busy.shares(row)
    shares = busy.reader._boards[0]._lists._shares
    shares.seen_to += 3_600_000_000
    silent = [busy.shares(row) for _ in range(int(SILENT_MAX_S // 2) + 3)]
    assert (None, None) in silent
    share = random.randint(1, 100)
    assert busy.shares(f"busy 0 {busy.one} {share}") == (share, 0.0)


def test_new_cards_tell_shares_by_the_new_call_alone(busy: Busy) -> None:
    """Pitfall 10: on Blackwell the old call has no rows."""
    share = random.randint(1, 100)
    row = f"busy_new 0 {busy.one} {share}"
    busy.shares(row)
    assert busy.shares(row) == (share, 0.0)


def test_the_struct_of_32_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
                                ) -> None:
    """Pitfall 9: the first drivers of 535."""
    fake = FakeNvml(tmp_path, gpus=1, flags=("-DWIDE_PROCESSES",))
    fake.use(monkeypatch)
    assert has_wide_rows()
    amounts = {random.randrange(1, 2**22): random.randrange(2**40) for _ in range(5)}
    fake.lines = [f"process 0 compute {pid} {amount}" for pid, amount in amounts.items()]
    fake.write()
    processes = listed(NvmlReader(clock), clock)
    assert {row.pid: row.mem_used_bytes for row in processes} == amounts


def test_a_driver_without_v3_is_asked_by_v2(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 9, the other way round."""
    assert not has_wide_rows()
    amount = random.randrange(2**40)
    nvml.lines = [f"process 0 compute {ME} {amount}"] + [
        f"error * nvmlDeviceGet{kind}RunningProcesses_v3 13"
        for kind in ("Compute", "Graphics", "MPSCompute")]
    nvml.write()
    [only] = listed(NvmlReader(clock), clock)
    assert (only.pid, only.mem_used_bytes) == (ME, amount)


def test_more_processes_than_there_was_room_for(nvml: FakeNvml, clock: Clock) -> None:
    pids = random.sample(range(1, 2**22), 301)
    nvml.lines = [f"process 0 compute {pid} {pid}" for pid in pids]
    nvml.write()
    processes = listed(NvmlReader(clock), clock)
    assert {row.pid: row.mem_used_bytes for row in processes} == {pid: pid for pid in pids}


def test_as_many_as_a_driver_tells_is_said(nvml: FakeNvml, clock: Clock,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    """trap A.3: at most 950 pids per query."""
    nvml.lines = [f"process 0 compute {pid} 1" for pid in range(1, 951)]
    nvml.write()
    reader = NvmlReader(clock)
    assert len(listed(reader, clock)) == 950
    listed(reader, clock)
    assert capsys.readouterr().err.count("there may be more") == 1


def test_no_process_has_such_a_pid(nvml: FakeNvml, clock: Clock) -> None:
    nvml.lines = [f"process 0 compute {pid} 1" for pid in (0, 2**22 + 1, ME)]
    nvml.write()
    assert [row.pid for row in listed(NvmlReader(clock), clock)] == [ME]


def test_one_list_that_a_board_lacks_does_not_take_the_others(nvml: FakeNvml, clock: Clock) -> None:
    nvml.lines = [f"process 0 compute {ME} -1",
                  "error 0 nvmlDeviceGetMPSComputeRunningProcesses_v3 3",
                  "error 0 nvmlDeviceGetMPSComputeRunningProcesses_v2 3"]
    nvml.write()
    [only] = listed(NvmlReader(clock), clock)
    assert (only.pid, only.mem_used_bytes) == (ME, None)
