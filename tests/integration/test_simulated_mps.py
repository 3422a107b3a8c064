"""MPS of a simulated node: the daemon answers in its agent's own process, and its clients are real
processes, which end when it takes their contexts away."""

import json
import os
import random
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.backends.simulation import folder, keeper
from agent.backends.simulation.folder import SimulationControlFile, state_of
from agent.backends.simulation.jobs import SYNTHETIC_PID_FROM, SimulatedJob
from agent.backends.simulation.keeper import JobKeeper
from agent.backends.simulation.mps_answers import SimulatedMpsSettings
from agent.backends.simulation.mps_state import pipes_path
from agent.backends.simulation.reader import SimulatedReader
from agent.backends.simulation.world import SimulationOptions
from agent.journal.store import ActionJournal, ActionStore
from agent.limits import mps_doctor, mps_view
from agent.limits.mps import LocalMpsDaemons, MpsDaemonHandle
from agent.limits.mps_simulated import open_mps
from agent.limits.mps_store import MpsSettingStore
from agent.readings import ProcessReading
from agent.tasks.boot_id import boot_id
from agent.tasks.task_table import TaskTable
from gpudeck.contract.limits import PIPES_MAX, MpsDaemon, MpsStart
from tests.fakes.hub import wait_for
from tests.integration.test_mps import TABLE

# As test_simulated_children.py says: ranks on GPUs 0 to 3, a server, a hog, a notebook.
NODE = "n001"


@dataclass
class Room:
    path: Path
    seed: int
    keeper: JobKeeper
    reader: SimulatedReader
    mps: LocalMpsDaemons

    def restarted(self) -> LocalMpsDaemons:
        """Open MPS as an agent does that has been started again."""
        mps = open_mps(f"node={NODE},gpus=8,seed={self.seed},mps=on,world={self.path}")
        assert mps is not None
        return mps

    @property
    def daemon(self) -> MpsDaemonHandle:
        [daemon] = self.mps.daemons()
        return daemon

    @property
    def server(self) -> int:
        [server] = self.daemon.servers() or ()
        return server

    def clients(self) -> set[int]:
        return {pid for pids in self.mps.clients().values() for pid in pids}

    def jobs(self) -> tuple[SimulatedJob, ...]:
        return self.keeper._jobs(NODE)

    def job(self, kind: str) -> SimulatedJob:
        [job] = [job for job in self.jobs() if job.kind == kind]
        return job

    def tell(self, **settings: object) -> None:
        (self.path / "control.json").write_text(json.dumps({"nodes": {NODE: settings}}))

    def listed(self) -> dict[int, ProcessReading]:
        return {process.pid: process for process in self.reader.fresh().processes}

    def step(self) -> bool:
        self.keeper.step(time.time())
        return True


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(keeper, "FOLLOWED_AFTER_S", (0.3, 0.4))
    monkeypatch.setattr(keeper, "END_WITHIN_S", 0.8)  # some save for half a second
    seed = int.from_bytes(os.urandom(4))
    job_keeper = JobKeeper(tmp_path, seed, [NODE], 8)
    job_keeper.step(time.time())
    reader = SimulatedReader(SimulationOptions(NODE, seed=seed, world=tmp_path),
                             SimulationControlFile(tmp_path / "control.json"))
    mps = open_mps(f"node={NODE},gpus=8,seed={seed},mps=on,world={tmp_path}")
    assert mps is not None
    yield Room(tmp_path, seed, job_keeper, reader, mps)
    job_keeper.close()


def lives(job: SimulatedJob) -> bool:
    return state_of(job.pid, job.start_ticks) is not None


def test_it_prints_what_the_real_one_prints(tmp_path: Path) -> None:
    mps = open_mps(f"node={NODE},seed=1,mps=on,world={tmp_path}")
    assert mps is not None
    answers = [(line, mps.front.ask(None, line + "\n", 1.0)) for line, _ in TABLE]
    assert answers == list(TABLE)


def test_its_clients_are_the_tasks_of_the_node(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    pids = {job.pid for job in room.jobs()}
    assert room.clients() == pids
    assert room.server >= SYNTHETIC_PID_FROM, "nobody can signal it"
    assert room.daemon.status(room.server) == "ACTIVE"
    assert {pid for pid, process in room.listed().items() if process.kind == "mps_client"} == pids
    [daemon] = mps_view.daemons(room.mps)
    assert (daemon.is_alive, daemon.uid, daemon.pipes) == (
        True, os.geteuid(), str(pipes_path(room.path, NODE)))
    assert [server.uid for server in daemon.servers] == [os.geteuid()]
    assert stat.S_ISSOCK((room.daemon.folder / "control").lstat().st_mode)
    assert mps_doctor.findings(room.mps) == ()


def test_settings_are_for_new_clients_only_and_outlive_the_agent(room: Room) -> None:
    store = ActionStore(room.path / "acts.db")
    book = MpsSettingStore(ActionJournal(store), boot_id())
    default_pct, pct, mem_mib = random.randint(50, 99), random.randint(1, 49), 900
    old = room.clients()
    room.daemon.set_percent(default_pct)
    room.daemon.set_memory(3, mem_mib)
    room.daemon.set_priority(1)
    assert (room.daemon.percent(), room.daemon.percent(room.server)) == (default_pct, 100)
    book.note(str(room.daemon.folder), room.server, 100.0, room.daemon.clients(room.server))
    room.daemon.set_percent(pct, room.server)
    victim = room.job("serve")
    assert room.mps.terminate(victim.pid) == ""
    wait_for(lambda: room.step() and not lives(victim))
    wait_for(lambda: room.step() and {job.pid for job in room.jobs()} > old - {victim.pid})
    room.mps = room.restarted()
    [server] = view(room, book).servers
    percents = {client.pid: client.pct for client in server.clients}
    new = room.job("serve").pid
    assert percents == {**dict.fromkeys(old - {victim.pid}, 100.0), new: pct}
    assert (room.daemon.percent(), room.daemon.memory(3), room.daemon.priority()) == (
        default_pct, f"{mem_mib}M", 1)
    store.close()


def view(room: Room, book: MpsSettingStore) -> MpsDaemon:
    return mps_view.view(room.daemon, range(8), book.of)


def test_one_that_is_taken_out_ends_and_nobody_else(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    victim = room.job(random.choice(["serve", "hog", "notebook"]))
    other_jobs = [job for job in room.jobs() if job != victim]
    table = TaskTable(boot_id())

    def kind() -> str:
        return next(row.task.kind for row in table.describe(tuple(room.listed().values()))
                    if row.task.pid == victim.pid)

    assert kind() == "mps_client"
    assert room.mps.terminate(victim.pid) == ""
    assert kind() == "compute"
    assert room.clients() == {job.pid for job in other_jobs}
    assert "no MPS server lists" in room.mps.terminate(victim.pid)
    # The notebook ignores SIGTERM, and holds on for as long as its keeper waits.
    wait_for(lambda: room.step() and not lives(victim))
    assert all(map(lives, other_jobs))
    assert room.clients() >= {job.pid for job in other_jobs}


def test_quitting_ends_its_clients_and_what_comes_next_has_a_new_server(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    former, server = room.jobs(), room.server
    room.daemon.set_percent(30)
    [daemon] = mps_view.daemons(room.mps)
    assert room.daemon.quit(0) == ""
    assert not room.daemon.is_alive()
    [quit_one] = mps_view.daemons(room.mps)
    assert (quit_one.pipes, quit_one.is_alive) == (daemon.pipes, False), "it may be started again"
    assert room.daemon.start() == ""
    assert "did not start" in room.daemon.start()
    assert room.clients() == set()
    assert room.daemon.servers() == ()
    assert room.daemon.percent() == 100, "it has forgotten all"
    wait_for(lambda: room.step() and not any(map(lives, former)))
    wait_for(lambda: room.step() and len(room.jobs()) == 7)
    assert room.clients() == {job.pid for job in room.jobs()}
    assert room.server != server


def test_killed_by_control_json_it_is_found_dead_and_started_again(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    room.daemon.set_percent(30)
    room.tell(mps="dead")
    assert room.mps.clients() == {}
    assert "does not answer" in room.mps.trouble()
    [dead] = mps_doctor.findings(room.mps)
    assert (dead.code, dead.fixes) == ("dead", (MpsStart(str(room.daemon.folder)),))
    assert all(map(lives, room.jobs()))
    room.mps = room.restarted()
    assert not room.daemon.is_alive(), "an agent that is started anew brings nobody back"
    assert room.daemon.start() == ""
    assert room.daemon.is_alive(), "it is obeyed once"
    assert room.daemon.percent() == 100
    assert room.clients() == set(), "those that run have lost it"
    assert {process.kind for process in room.listed().values()} == {"compute"}
    room.tell()
    assert room.daemon.is_alive()
    room.tell(mps="dead")
    assert not room.daemon.is_alive()
    room.tell()
    assert room.daemon.is_alive(), "without the entry it goes on by itself"


def test_one_that_quits_lets_all_others_wait(room: Room) -> None:
    quitting = threading.Thread(target=room.daemon.quit, args=(1,))
    quitting.start()
    wait_for(lambda: room.mps.front.ask(None, "get_server_list", 0.02) is None)
    assert quitting.is_alive()
    quitting.join()
    assert not room.daemon.is_alive()


def test_another_folder_has_no_daemon(room: Room) -> None:
    assert room.mps.front.ask(None, "get_server_list", 1.0) is not None
    assert room.mps.front.ask(room.path, "get_server_list", 1.0) is None
    assert str(room.daemon.folder) in MpsDaemonHandle(room.path, front=room.mps.front).start()


def test_no_mps_without_being_asked_for(tmp_path: Path) -> None:
    assert open_mps(f"node={NODE},world={tmp_path}") is None
    assert open_mps(f"node={NODE},mps=on") is None
    long = tmp_path / ("x" * PIPES_MAX)
    mps = open_mps(f"node={NODE},mps=on,world={long}")
    assert mps is not None
    assert (mps_view.why_not(mps), long.exists()) == (
        "a simulated node has no MPS", False)


def test_a_server_takes_its_own_settings_along() -> None:
    """The settings are copied, down to the memory of the devices."""
    default = SimulatedMpsSettings(50.0, {1: 2}, 1)
    server = default.copy()
    server.memory[1] = 3
    assert (default.memory, server.percent, server.priority) == ({1: 2}, 50.0, 1)
