"""Real processes as jobs of a simulated node: stopped, ended, replaced, never mistaken."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.backends.simulation import folder, keeper
from agent.backends.simulation.folder import SimulationControlFile, state_of, task_id, write_jobs
from agent.backends.simulation.jobs import SimulatedJob
from agent.backends.simulation.keeper import JobKeeper
from agent.backends.simulation.reader import SimulatedReader
from agent.backends.simulation.world import SimulationOptions
from agent.readings import GpuReading
from agent.simulator.past import idle_since
from agent.tasks.processes import read_stat
from gpudeck.measures.metrics import COLUMN
from tests.demos import descendants

# The showcase: a training of four ranks on GPUs 0 to 3, a server on 4, on 5 a hog with workers, on
# 6 a notebook that ignores SIGTERM.
NODE = "n001"
RANKS, SERVER, HOG, NOTEBOOK = range(4), 4, 5, 6
FREE = 0.0  # the driver tells its own reserve apart


@dataclass
class SimulatedNode:
    keeper: JobKeeper
    reader: SimulatedReader
    path: Path

    def jobs(self) -> tuple[SimulatedJob, ...]:
        return self.keeper._jobs(NODE)

    def job(self, gpu: int) -> SimulatedJob:
        [job] = [job for job in self.jobs() if self.reader._uuids[gpu] in job.gpus]
        return job

    def other_jobs(self, *gpus: int) -> list[SimulatedJob]:
        mine = {self.reader._uuids[gpu] for gpu in gpus}
        return [job for job in self.jobs() if mine.isdisjoint(job.gpus)]

    def control(self, job: SimulatedJob, **settings: object) -> None:
        (self.path / "control.json").write_text(json.dumps({"tasks": {task_id(job): settings}}))

    def listed(self) -> set[tuple[int, str | None]]:
        return {(process.pid, process.state) for process in self.reader.read().processes or ()}

    def gpu(self, index: int) -> GpuReading:
        return self.reader.read().gpus[index]

    def mem(self, index: int) -> float:
        return self.gpu(index).values[COLUMN["mem_used_bytes"]]

    def util(self, index: int) -> float:
        return self.gpu(index).values[COLUMN["util_max_pct"]]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedNode]:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(keeper, "FOLLOWED_AFTER_S", (0.3, 0.4))
    seed = int.from_bytes(os.urandom(4))
    job_keeper = JobKeeper(tmp_path, seed, [NODE], 8)
    job_keeper.step(time.time())
    options = SimulationOptions(NODE, seed=seed, world=tmp_path)
    reader = SimulatedReader(options, SimulationControlFile(tmp_path / "control.json"))
    yield SimulatedNode(job_keeper, reader, tmp_path)
    job_keeper.close()


def soon(condition: Callable[[], bool], seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_true


def all_run(jobs: list[SimulatedJob]) -> bool:
    return bool(jobs) and all(lives(job) for job in jobs)


def lives(job: SimulatedJob) -> bool:
    return state_of(job.pid, job.start_ticks) is not None


def running(pids: "tuple[int, ...] | list[int]") -> list[int]:
    stats = {pid: read_stat(folder.PROC, pid) for pid in pids}
    return [pid for pid, stat in stats.items() if stat is not None and stat.state != "zombie"]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def root_of(job: SimulatedJob) -> int:
    assert job.job_id is not None
    return int(job.job_id.split("-")[1])


def hears_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask_line = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask_line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def sigterm(job: SimulatedJob) -> None:
    assert soon(lambda: hears_sigterm(job.pid))
    os.kill(job.pid, signal.SIGTERM)


def test_no_task_idles_for_longer_than_it_is_old(node: SimulatedNode) -> None:
    """The process is seconds old, but what ran before it in the made-up past is the same job: the
    demo had a task that was idle for 2 h at the age of 72 s."""
    now = int(time.time())
    idle = idle_since(node.reader._options, node.jobs(), range(now - 7_200, now))
    assert node.reader._uuids[HOG] in idle
    assert {uuid: job.started_at <= idle[uuid] for job in node.jobs() for uuid in job.gpus
            if uuid in idle} == dict.fromkeys(idle, True)
    os.kill(node.job(HOG).pid, signal.SIGKILL)

    def has_young_follower() -> bool:
        node.keeper.step(time.time())
        return any(job.started_at > now for job in node.jobs())

    assert soon(has_young_follower, 20)


def test_the_jobs_are_there_and_named(node: SimulatedNode) -> None:
    reading = node.reader.read()
    assert reading.processes is not None
    listed = {process.pid for process in reading.processes}
    assert listed == {job.pid for job in node.jobs()}
    tasks = json.loads((node.path / "world" / "tasks.json").read_text())
    assert {task["pid"] for task in tasks} == listed
    assert max(listed) <= 2**22
    for job in node.jobs():
        command = Path(f"/proc/{job.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert " ".join(word.decode() for word in command) == job.command
        assert os.getsid(job.pid) == root_of(job)


def test_a_stopped_job_computes_no_more_and_keeps_its_memory(node: SimulatedNode) -> None:
    job, bystander = node.job(0), node.job(SERVER)
    assert soon(lambda: node.util(0) > 0)
    os.kill(job.pid, signal.SIGSTOP)
    assert soon(lambda: node.util(0) == 0)
    assert node.mem(0) > FREE
    assert state_of(job.pid, job.start_ticks) == "paused"
    assert soon(lambda: (job.pid, "paused") in node.listed())
    os.kill(job.pid, signal.SIGCONT)
    assert soon(lambda: node.util(0) > 0)
    assert state_of(bystander.pid, bystander.start_ticks) == "running"


def test_a_killed_job_gives_its_memory_back_and_another_follows(node: SimulatedNode) -> None:
    job, bystanders = node.job(SERVER), node.other_jobs(SERVER)
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: node.mem(SERVER) == FREE, 1.0)
    node.keeper.step(time.time())
    tasks = json.loads((node.path / "world" / "tasks.json").read_text())
    assert {task["id"] for task in tasks} == {task_id(bystander) for bystander in bystanders}

    def replaced() -> bool:
        node.keeper.step(time.time())
        return any(new.gpus == job.gpus and task_id(new) != task_id(job) for new in node.jobs())

    assert soon(replaced)
    assert soon(lambda: node.mem(SERVER) > FREE)
    for bystander in bystanders:
        assert state_of(bystander.pid, bystander.start_ticks) == "running"
        assert bystander in node.jobs()


def test_each_rank_is_a_task_on_its_own_gpu_and_one_takes_all(node: SimulatedNode) -> None:
    ranks, bystanders = [node.job(gpu) for gpu in RANKS], node.other_jobs(*RANKS)
    launcher = root_of(ranks[0])
    assert {root_of(job) for job in ranks} == {parent(job.pid) for job in ranks} == {launcher}
    assert [len(job.gpus) for job in ranks] == [1, 1, 1, 1]
    assert launcher not in {pid for pid, _ in node.listed()}
    tasks = json.loads((node.path / "world" / "tasks.json").read_text())
    assert sum(task["job"] == ranks[0].job_id for task in tasks) == len(ranks)
    os.kill(ranks[random.choice(RANKS)].pid, signal.SIGKILL)
    assert soon(lambda: not any(lives(job) for job in ranks))
    assert soon(lambda: {node.mem(gpu) for gpu in RANKS} == {FREE}, 1.0)
    assert all_run(bystanders)


def test_a_launcher_that_is_asked_to_end_ends_its_ranks(node: SimulatedNode) -> None:
    ranks, bystanders = [node.job(gpu) for gpu in RANKS], node.other_jobs(*RANKS)
    assert soon(lambda: all(hears_sigterm(job.pid) for job in ranks))
    os.kill(root_of(ranks[0]), signal.SIGTERM)
    assert soon(lambda: not any(lives(job) for job in ranks))
    assert all_run(bystanders)


def test_ranks_outlive_a_killed_launcher_until_the_next_job(node: SimulatedNode) -> None:
    ranks, bystanders = [node.job(gpu) for gpu in RANKS], node.other_jobs(*RANKS)
    os.kill(ranks[0].pid, signal.SIGSTOP)
    os.kill(root_of(ranks[0]), signal.SIGKILL)
    node.keeper._posts[NODE, 0].tree.root.wait()  # type: ignore[union-attr]
    node.keeper.step(time.time())
    assert all_run(ranks)
    assert node.job(0) == ranks[0]

    def followed() -> bool:
        node.keeper.step(time.time())
        return node.keeper._posts[NODE, 0].is_running

    assert soon(followed)
    assert soon(lambda: not any(lives(job) for job in ranks))
    assert all_run([node.job(gpu) for gpu in RANKS])
    assert all_run(bystanders)


def test_workers_outlive_a_killed_parent_and_not_one_that_was_asked(node: SimulatedNode) -> None:
    job, bystanders = node.job(HOG), node.other_jobs(HOG)
    assert 2 <= len(job.workers) <= 4
    assert children(job.pid) == list(job.workers)
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: not lives(job))
    assert soon(lambda: node.mem(HOG) == FREE, 1.0)
    assert running(job.workers) == list(job.workers)

    def followed() -> bool:
        node.keeper.step(time.time())
        return any(new.gpus == job.gpus and task_id(new) != task_id(job) for new in node.jobs())

    assert soon(followed)
    assert soon(lambda: not running(job.workers))
    after = node.job(HOG)
    sigterm(after)
    assert soon(lambda: not lives(after) and not running(after.workers))
    assert all_run(bystanders)


def test_a_training_saves_before_it_ends_and_a_server_does_not(node: SimulatedNode) -> None:
    took_s = {}
    bystanders = node.other_jobs(HOG, SERVER)
    for gpu in (HOG, SERVER):
        job = node.job(gpu)
        sigterm(job)
        began = time.monotonic()
        if gpu == HOG:
            assert node.mem(gpu) > FREE
        assert soon(lambda job=job: not lives(job))  # type: ignore[misc]
        took_s[gpu] = time.monotonic() - began
        assert node.mem(gpu) == FREE
    assert took_s[HOG] > 0.4
    assert all_run(bystanders)


def test_sigterm_is_ignored_by_whoever_control_json_says(node: SimulatedNode) -> None:
    stubborn, server = node.job(NOTEBOOK), node.job(SERVER)
    tasks = json.loads((node.path / "world" / "tasks.json").read_text())
    assert [task["id"] for task in tasks if task["ignores_sigterm"]] == [task_id(stubborn)]
    node.control(server, ignore_sigterm=True)
    sigterm(stubborn)
    sigterm(server)
    # Only what comes after it tells that a signal has been heard and ignored.
    for job in (stubborn, server):
        assert not soon(lambda job=job: not lives(job), 0.7)  # type: ignore[misc]
    node.control(stubborn, ignore_sigterm=False)
    sigterm(stubborn)
    sigterm(server)
    assert soon(lambda: not lives(stubborn) and not lives(server))
    assert all_run(node.other_jobs(NOTEBOOK, SERVER))


def test_one_that_forks_when_it_is_asked_to_end(node: SimulatedNode) -> None:
    job = node.job(SERVER)
    node.control(job, fork_on_term=True, ignore_sigterm=True)
    assert children(job.pid) == []
    sigterm(job)
    assert soon(lambda: len(children(job.pid)) == 1)
    [born] = children(job.pid)
    assert os.getsid(born) == job.pid
    assert soon(lambda: not hears_sigterm(born))
    os.kill(born, signal.SIGTERM)
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: not lives(job))
    assert running([born]) == [born]
    assert all_run(node.other_jobs(SERVER))


def test_processes_are_as_they_are_now(node: SimulatedNode) -> None:
    """Look without a reading between: a guard looks when it must know."""
    job, bystander = node.job(SERVER), node.job(HOG)
    node.reader.read()
    states = {process.pid: process.state for process in node.reader.fresh().processes}
    assert states[job.pid] == states[bystander.pid] == "running"
    os.kill(job.pid, signal.SIGSTOP)
    assert soon(lambda: state_of(job.pid, job.start_ticks) == "paused")
    now = {process.pid: process for process in node.reader.fresh().processes}
    assert now[job.pid].state == "paused"
    assert now[job.pid].mem_used_bytes
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: not lives(job))
    pids = {process.pid for process in node.reader.fresh().processes}
    assert job.pid not in pids
    assert bystander.pid in pids
    assert node.reader.fresh().mem_used_bytes[job.gpus[0]] == FREE


def test_a_reader_that_has_read_nothing_yet_lists_processes(tmp_path: Path) -> None:
    made_up = SimulatedReader(SimulationOptions(NODE, world=tmp_path), None).fresh().processes
    assert made_up
    # No kernel gives these out (Documentation/admin-guide/sysctl/kernel.rst: 2^22 is the most).
    assert min(process.pid for process in made_up) > 2**22


def test_a_leak_stays_until_it_is_withdrawn(node: SimulatedNode) -> None:
    job = node.job(HOG)
    control = node.path / "control.json"
    node.control(job, leak_memory_on_exit=True)
    node.reader.read()
    os.kill(job.pid, signal.SIGKILL)
    assert soon(lambda: not lives(job))
    assert node.mem(HOG) > FREE
    assert node.util(HOG) == 0
    assert job.pid not in {process.pid for process in node.reader.fresh().processes}
    control.unlink()
    assert soon(lambda: node.mem(HOG) == FREE)


def test_another_process_with_its_pid_is_not_the_job(tmp_path: Path) -> None:
    """A reused pid as the reader sees it: the pid lives, and its start ticks differ."""
    stranger = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(60)"])
    try:
        options = SimulationOptions(NODE, world=tmp_path)
        stat = read_stat(folder.PROC, stranger.pid)
        assert stat is not None
        uuid = SimulatedReader(options, None).read().gpus[0].uuid
        job = SimulatedJob(stranger.pid, stat.start_ticks, "train", 5, (uuid,), 0.8, "x", "x", 0.0,
                           0.0)
        write_jobs(tmp_path, NODE, (job,))
        reader = SimulatedReader(options, None)
        assert reader.read().gpus[0].values[COLUMN["mem_used_bytes"]] > FREE
        write_jobs(tmp_path, NODE, (replace_job(job, stat.start_ticks - 1),))
        assert reader.read().gpus[0].values[COLUMN["mem_used_bytes"]] == FREE
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def replace_job(job: SimulatedJob, start_ticks: int) -> SimulatedJob:
    return SimulatedJob(job.pid, start_ticks, job.kind, job.seed, job.gpus, job.mem_share, job.user,
                        job.command, job.started_at, job.working_since)


def test_a_hung_reader_blocks_and_is_released(node: SimulatedNode) -> None:
    control = node.path / "control.json"
    control.write_text(json.dumps({"nodes": {NODE: {"reader": "hang"}}}))
    has_read = threading.Event()

    def read() -> None:
        node.reader.read()
        has_read.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert not has_read.wait(0.6)
    control.write_text("{}")
    assert has_read.wait(2.0)
    thread.join()


def test_jobs_end_with_their_keeper_even_if_it_is_killed(tmp_path: Path) -> None:
    """End those that are stopped and those that are not its own children, too."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from agent.backends.simulation.keeper import JobKeeper\n"
        "JobKeeper(Path(sys.argv[1]), 1, ['n001'], 8).step(time.time())\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root,
                               stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == b"ready\n"
        pids = sorted(descendants(process.pid))
        tasks = json.loads((tmp_path / "world" / "tasks.json").read_text())
        job_pids = [pid for task in tasks for pid in (task["pid"], *task["workers"])]
        assert len(pids) == len(job_pids) + 1  # the launcher of the ranks
        assert running(pids) == pids
        for pid in job_pids[::2]:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
    assert soon(lambda: not running(pids))
