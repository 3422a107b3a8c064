"""Real processes as jobs of a simulated node: stopped, killed, replaced, never mistaken."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.backends import GpuReading
from agent.backends.simulated import Options, SimulatedReader
from agent.backends.simulation import folder, keeper
from agent.backends.simulation.folder import ControlFile, state_of, task_id, write_jobs
from agent.backends.simulation.jobs import Job
from agent.backends.simulation.keeper import Keeper
from agent.backends.simulation.profiles import PROFILES
from agent.tasks import read_stat
from gpudeck.metrics import COLUMN

NODE = "n001"  # the showcase: a job on Gpus 0 to 3, another on 4, a hog on 5
RESERVED = PROFILES["h100"].mem_reserved_bytes


@dataclass
class Kept:
    keeper: Keeper
    reader: SimulatedReader
    path: Path

    def jobs(self) -> tuple[Job, ...]:
        return self.keeper._jobs(NODE)

    def listed(self) -> set[tuple[int, str | None]]:
        return {(each.pid, each.state) for each in self.reader.read().processes or ()}

    def gpu(self, index: int) -> GpuReading:
        return self.reader.read().gpus[index]

    def mem(self, index: int) -> float:
        return self.gpu(index).values[COLUMN["mem_used_bytes"]]

    def util(self, index: int) -> float:
        return self.gpu(index).values[COLUMN["util_max_pct"]]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(keeper, "FOLLOWED_AFTER_S", (0.3, 0.4))
    seed = int.from_bytes(os.urandom(4))
    made = Keeper(tmp_path, seed, [NODE], 8)
    made.step(time.time())
    options = Options(NODE, seed=seed, world=tmp_path)
    reader = SimulatedReader(options, ControlFile(tmp_path / "control.json"))
    yield Kept(made, reader, tmp_path)
    made.close()


def soon(true: Callable[[], bool], seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (held := true()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def test_the_jobs_are_there_and_named(kept: Kept) -> None:
    reading = kept.reader.read()
    assert reading.processes is not None
    listed = {process.pid for process in reading.processes}
    assert listed == {job.pid for job in kept.jobs()}
    told = json.loads((kept.path / "world" / "tasks.json").read_text())
    assert {task["pid"] for task in told} == listed
    for job in kept.jobs():
        command = Path(f"/proc/{job.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert " ".join(word.decode() for word in command) == job.command
        assert os.getsid(job.pid) == job.pid


def test_a_stopped_job_computes_no_more_and_keeps_its_memory(kept: Kept) -> None:
    job, bystander = kept.jobs()[0], kept.jobs()[1]
    assert soon(lambda: kept.util(0) > 0)
    os.kill(job.pid, signal.SIGSTOP)
    assert soon(lambda: kept.util(0) == 0)
    assert kept.mem(0) > RESERVED
    assert state_of(job.pid, job.start_ticks) == "paused"
    assert soon(lambda: (job.pid, "paused") in kept.listed())
    os.kill(job.pid, signal.SIGCONT)
    assert soon(lambda: kept.util(0) > 0)
    assert state_of(bystander.pid, bystander.start_ticks) == "running"


def test_a_killed_job_gives_its_memory_back_and_another_follows(kept: Kept) -> None:
    job, *bystanders = kept.jobs()
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: kept.mem(0) == RESERVED, 1.0)

    def replaced() -> bool:
        kept.keeper.step(time.time())
        return any(0 < len(new.gpus) == len(job.gpus) and new.pid != job.pid and
                   new.gpus == job.gpus for new in kept.jobs())

    assert soon(replaced)
    assert soon(lambda: kept.mem(0) > RESERVED)
    for each in bystanders:
        assert state_of(each.pid, each.start_ticks) == "running"
        assert each in kept.jobs()


def test_a_leak_stays_until_it_is_withdrawn(kept: Kept) -> None:
    job = kept.jobs()[0]
    control = kept.path / "control.json"
    control.write_text(json.dumps({"tasks": {task_id(job): {"leak_memory_on_exit": True}}}))
    kept.reader.read()
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: state_of(job.pid, job.start_ticks) is None)
    time.sleep(0.1)
    assert kept.mem(0) > RESERVED
    assert kept.util(0) == 0
    control.unlink()
    assert soon(lambda: kept.mem(0) == RESERVED)


def test_another_process_with_its_pid_is_not_the_job(tmp_path: Path) -> None:
    """What pid reuse looks like to the reader: the pid lives, its start ticks differ."""
    stranger = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(60)"])
    try:
        options = Options(NODE, world=tmp_path)
        stat = read_stat(folder.PROC, stranger.pid)
        assert stat is not None
        uuid = SimulatedReader(options, None).read().gpus[0].uuid
        job = Job(stranger.pid, stat.start_ticks, "train", 5, (uuid,), 0.8, "x", "x", 0.0, 0.0)
        write_jobs(tmp_path, NODE, (job,))
        reader = SimulatedReader(options, None)
        assert reader.read().gpus[0].values[COLUMN["mem_used_bytes"]] > RESERVED
        write_jobs(tmp_path, NODE, (replace_job(job, stat.start_ticks - 1),))
        assert reader.read().gpus[0].values[COLUMN["mem_used_bytes"]] == RESERVED
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def replace_job(job: Job, start_ticks: int) -> Job:
    return Job(job.pid, start_ticks, job.kind, job.seed, job.gpus, job.mem_share, job.user,
               job.command, job.started_at, job.working_since)


def test_a_hung_reader_blocks_and_is_released(kept: Kept) -> None:
    control = kept.path / "control.json"
    control.write_text(json.dumps({"nodes": {NODE: {"reader": "hang"}}}))
    done = threading.Event()

    def read() -> None:
        kept.reader.read()
        done.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert not done.wait(0.6)
    control.write_text("{}")
    assert done.wait(2.0)
    thread.join()


def test_jobs_end_with_their_keeper_even_if_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from agent.backends.simulation.keeper import Keeper\n"
        "Keeper(Path(sys.argv[1]), 1, ['n001'], 8).step(time.time())\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root,
                               stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == b"ready\n"
        pids = [task["pid"] for task in json.loads((tmp_path / "world/tasks.json").read_text())]
        assert pids
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        process.kill()
    assert soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
