"""A recording: what was read is what is played, at its pace, even from a torn file."""

import random
import re
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.backends import RECORDED, ReaderUnavailableError
from agent.backends.recorded import FORMAT, GAP_MAX_S, RecordedReader, RecordingHeader, readings
from agent.backends.simulation.reader import SimulatedReader
from agent.backends.simulation.world import SimulationOptions
from agent.reader.loop import next_second
from agent.reader.recording import FACTS_EVERY, RecordingWriter
from agent.readings import BackendEvent, GpuReading, Reading
from agent.settings import options_of
from agent.tasks.seen import GpuTask
from agent.tasks.task_table import TaskTable
from gpudeck.contract.wire import GpuFacts, Task
from gpudeck.errors import CommandError, ExitCode
from gpudeck.measures.metrics import COLUMN, SLOW_WIDTH, WIDTH, Absence

HEAD = RecordingHeader(FORMAT, "node-01", "simulated", "1")
MUCH = 2**40


def some(count: int) -> list[Reading]:
    reader = SimulatedReader(SimulationOptions("node-01", gpus=2, seed=random.randrange(10_000)),
                             None)
    return [structs.replace(reader.read(), taken_at=1_000.0 + at) for at in range(count)]


def bare(*moments: float, **more: Any) -> list[Reading]:
    gpu = GpuReading("A", "ok", (1.0,) * WIDTH, bytes(WIDTH))
    facts = (GpuFacts(uuid="A", index=0, name="a board"),)
    return [Reading(at, 1.0, (gpu,), facts, None, **more) for at in moments]


def write(path: Path, series: list[Reading], max_bytes: int = MUCH) -> str:
    table, recording = TaskTable("boot"), RecordingWriter(path, HEAD, max_bytes)
    for reading in series:
        tasks = None if reading.processes is None else table.describe(reading.processes)
        recording.put(reading, reading.happenings, tasks)
    recording.close()
    return recording.trouble


class Clock:
    def __init__(self) -> None:
        self.now = 5_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def played(path: Path, count: int, speed: float = 1.0, loops: bool = True) -> list[Reading]:
    """Read `count` times, once a second, as the reading process does."""
    clock, replayed = Clock(), []
    reader = RecordedReader(path, speed, loops, clock, clock.sleep)
    for _ in range(count):
        replayed.append(reader.read())
        clock.now = max(clock.now, 5_000.0 + len(replayed) * 1.0 + random.uniform(-0.05, 0.05))
    return replayed


@pytest.mark.parametrize("name", ["night.jsonl", "night.jsonl.gz"])
def test_what_was_recorded_is_played(tmp_path: Path, name: str) -> None:
    series = some(5)
    assert write(tmp_path / name, series) == ""
    replayed = list(readings(tmp_path / name))
    assert [structs.replace(reading, processes=None) for reading in replayed] == [
        structs.replace(reading, processes=None) for reading in series]
    assert series[0].processes
    tasks = [process.task for process in replayed[0].processes or () if process.task]
    assert [task.command for task in tasks] == [process.command for process in series[0].processes]
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_facts_stand_where_they_changed_and_now_and_then(tmp_path: Path) -> None:
    series = bare(*range(FACTS_EVERY + 3))
    other = structs.replace(series[2], facts=(GpuFacts(uuid="A", index=0, name="another"),))
    write(tmp_path / "a.jsonl", [*series[:2], other, *series[3:]])
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    fact_lines = [at for at, line in enumerate(lines[1:]) if "board" in line or "another" in line]
    assert fact_lines == [0, 2, 3, FACTS_EVERY]
    assert [reading.facts[0].name for reading in readings(tmp_path / "a.jsonl")][:4] == [
        "a board", "a board", "another", "a board"]
    # without its beginning it is a recording still
    (tmp_path / "b.jsonl").write_text("\n".join([lines[0], *lines[2:]]))
    assert len(list(readings(tmp_path / "b.jsonl"))) == FACTS_EVERY + 1


def test_played_as_if_it_were_now_and_over_again(tmp_path: Path) -> None:
    task = Task(id="a-7-5", pid=7, start_ticks=5, started_at=900.0, user="alice", command="python")
    recording = RecordingWriter(tmp_path / "a.jsonl", HEAD, MUCH)
    series = bare(1_000.0, 1_001.0)
    recording.put(series[0], (), [GpuTask(task, "A", 1e9, None, "paused")])
    recording.put(series[1], (), None)
    recording.close()
    first, second, third = played(tmp_path / "a.jsonl", 3)
    assert 5_000.0 <= first.taken_at < 5_001.0
    assert second.taken_at == pytest.approx(first.taken_at + 1.0)
    assert third.taken_at > second.taken_at
    [gpu_task] = TaskTable("here").describe(first.processes or ())
    assert gpu_task.task == structs.replace(task, started_at=first.taken_at - 100.0)
    assert (gpu_task.mem_used_bytes, gpu_task.sm_pct, gpu_task.state) == (1e9, None, "paused")
    assert second.processes is None
    [process] = third.processes or ()
    assert process.task is not None
    assert process.task.id == "a-7-5"


@pytest.mark.parametrize("phase_s", [0.0, 0.03, 0.1])
def test_each_second_of_the_recording_is_a_second_here(tmp_path: Path, phase_s: float) -> None:
    """Found by an examiner: a second that got two readings beside one that got none, where the
    pace met the full second. `phase_s`: of the node, as agent/reader/loop.py calls."""
    for begin in (0.0, 0.13, 0.37, 0.5, 0.63, 0.87, 0.99):  # of the recording, and of its playing
        jitter = [random.uniform(0, 0.03) for _ in range(60)]
        series = bare(100.0 + random.random(), *(
            101.05 + at + delay for at, delay in enumerate(jitter)))
        write(tmp_path / f"{begin}.jsonl", series)
        clock, replayed = Clock(), list[Reading]()
        clock.now = due = 5_000.0 + begin
        reader = RecordedReader(tmp_path / f"{begin}.jsonl", 1.0, True, clock, clock.sleep)
        while len(replayed) < len(series):
            replayed.append(reader.read())
            assert replayed[-1].taken_at <= clock.now, "nothing of the future"
            due = next_second(clock.now, phase_s, due)
            clock.now = due + random.uniform(0, 0.02)
        seconds = [int(reading.taken_at) for reading in replayed[1:]]
        assert seconds == [*range(seconds[0], seconds[0] + 60)], begin
        assert {reading.interval_s for reading in replayed} == {1.0}, "none of two"


def test_once_by_default_and_then_all_is_stale(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", some(3))
    *replayed, one, other = played(tmp_path / "a.jsonl", 5, loops=False)
    assert [gpu.state for reading in replayed for gpu in reading.gpus] == (
        ["ok"] * len(replayed[0].gpus) * 3)
    for reading in (one, other):
        assert {gpu.state for gpu in reading.gpus} == {"stale"}
        assert (reading.processes, reading.happenings) == ((), ())
        assert reading.facts == replayed[0].facts
        assert "has ended; --replay-loop" in reading.detail
    assert other.taken_at > one.taken_at


def test_at_more_than_its_pace_nothing_that_happened_is_lost(tmp_path: Path) -> None:
    series = bare(*range(100, 160))
    xids = {at: random.randrange(1, 100) for at in random.sample(range(60), 9)}
    series = [structs.replace(reading, happenings=() if at not in xids else (
        BackendEvent("xid", reading.taken_at, "A", numbers={"xid": float(xids[at])}),))
        for at, reading in enumerate(series)]
    slow = structs.replace(series[7].gpus[0], slow=(3.0,) * SLOW_WIDTH,
                           slow_absent=bytes(SLOW_WIDTH))
    series[7] = structs.replace(series[7], gpus=(slow,))
    write(tmp_path / "a.jsonl", series)
    replayed = played(tmp_path / "a.jsonl", 7, speed=10.0)
    codes = [event.numbers["xid"] for reading in replayed for event in reading.happenings]
    assert codes == [float(xids[at]) for at in sorted(xids)]
    assert any(reading.gpus[0].slow for reading in replayed)
    assert sum(reading.interval_s for reading in replayed) == pytest.approx(6.0)


@pytest.mark.parametrize("has_peaks", [True, False])
def test_at_more_than_its_pace_a_peak_is_kept_and_a_mean_stays_one(tmp_path: Path, has_peaks: bool
                                                                    ) -> None:
    power = [random.uniform(50, 400) for _ in range(60)]
    peaks = [watts + random.uniform(0, 50) if has_peaks else watts for watts in power]
    series = []
    for reading, mean_w, peak_w in zip(bare(*range(100, 160)), power, peaks, strict=True):
        values, absent = list(reading.gpus[0].values), bytearray(WIDTH)
        values[COLUMN["power_w"]] = mean_w
        values[COLUMN["power_max_w"]] = peak_w if has_peaks else 0.0
        absent[COLUMN["power_max_w"]] = 0 if has_peaks else Absence.UNSUPPORTED
        series.append(structs.replace(reading, gpus=(structs.replace(
            reading.gpus[0], values=tuple(values), absent=bytes(absent)),)))
    write(tmp_path / "a.jsonl", series)
    at = 0
    for merged in played(tmp_path / "a.jsonl", 6, speed=10.0):
        count = round(merged.interval_s * 10)
        [gpu] = merged.gpus
        assert gpu.value("power_w") == pytest.approx(sum(power[at : at + count]) / count)
        if has_peaks or count > 1:
            assert gpu.value("power_max_w") == pytest.approx(max(peaks[at : at + count]))
        at += count
    assert at > 40


def test_a_time_without_readings_is_one_here_too_but_not_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", bare(0.0, 1.0, 13.0, 50_000.0, 50_001.0, 20.0, 21.0))
    clock = Clock()
    reader = RecordedReader(tmp_path / "a.jsonl", 1.0, True, clock, clock.sleep)
    moments = [reader.read().taken_at - 5_000.0 for _ in range(7)]
    gaps = [b - a for a, b in pairwise(moments)]
    assert gaps == pytest.approx([1, 12, GAP_MAX_S, 1, 1, 1], abs=0.6)


@pytest.mark.parametrize("name", ["torn.jsonl", "torn.jsonl.gz"])
def test_a_torn_end_costs_no_whole_line(tmp_path: Path, name: str) -> None:
    path, series = tmp_path / name, some(6)
    write(path, series)
    moments = [reading.taken_at for reading in series]
    whole = path.read_bytes()
    for cut in random.sample(range(len(whole) // 2, len(whole)), 20):
        path.write_bytes(whole[:cut])
        times = [reading.taken_at for reading in readings(path)]
        assert times == moments[: len(times)]
        assert name.endswith(".gz") or len(times) >= whole[:cut].count(b"\n") - 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_each_reading_is_on_its_way_to_the_disk_before_the_next(tmp_path: Path, name: str) -> None:
    """A kill leaves the file as it is while nobody has closed it."""
    recording = RecordingWriter(tmp_path / name, HEAD, MUCH)
    for count, reading in enumerate(bare(*range(9)), 1):
        recording.put(reading, (), None)
        (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
        assert len(list(readings(tmp_path / f"copy-{name}"))) == count
    recording.close()


def test_a_recording_has_its_bounds(tmp_path: Path) -> None:
    most = random.randrange(20_000, 60_000)
    trouble = write(tmp_path / "a.jsonl", bare(*range(500)), most)
    assert "--record-max-mib" in trouble
    assert most <= (tmp_path / "a.jsonl").stat().st_size < most + 2_000
    assert len(list(readings(tmp_path / "a.jsonl"))) > 10


def test_what_happens_between_readings_is_part_of_the_next(tmp_path: Path) -> None:
    recording = RecordingWriter(tmp_path / "a.jsonl", HEAD, MUCH)
    recording.put_events([BackendEvent("xid", 9.0, "A", numbers={"xid": 119.0})])
    recording.put(bare(10.0)[0], (), None)
    recording.close()
    [reading] = readings(tmp_path / "a.jsonl")
    assert [(event.kind, event.at) for event in reading.happenings] == [("xid", 9.0)]


@pytest.mark.parametrize(("text", "why"), [
    ("", "not a recording"), ("{}\n", "not a recording"), ("GPU 0\n", "not a recording"),
    ('{"gpudeck_recording":99,"host":"a","backend":"b","agent_version":"c"}\n', "another gpudeck"),
    ('{"gpudeck_recording":1,"host":"a","backend":"b","agent_version":"c"}\n', "no reading"),
])
def test_what_is_no_recording_says_so(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "a b.jsonl"
    path.write_text(text)
    with pytest.raises(ReaderUnavailableError, match=why):
        RECORDED.open_reader(options_of(path, 2.0, False))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ReaderUnavailableError, match=re.escape(str(tmp_path / "gone.jsonl"))):
        RECORDED.open_reader(options_of(tmp_path / "gone.jsonl", 1.0, False))
    with pytest.raises(ReaderUnavailableError, match="--replay"):
        RECORDED.open_reader("")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", bare(1.0))
    with pytest.raises(CommandError, match="choose another file") as error:
        RecordingWriter(tmp_path / "a.jsonl", HEAD, MUCH)
    assert error.value.code == ExitCode.CANNOT_START
