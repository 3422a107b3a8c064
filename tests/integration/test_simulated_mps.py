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
from gpudeck.limits import PIPES_MAX, MpsDaemon, MpsStart
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

    def again(self) -> LocalMpsDaemons:
        """As by an agent that is started anew."""
        found = open_mps(f"node={NODE},gpus=8,seed={self.seed},mps=on,world={self.path}")
        assert found is not None
        return found

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

    def tell(self, **told: object) -> None:
        (self.path / "control.json").write_text(json.dumps({"nodes": {NODE: told}}))

    def listed(self) -> dict[int, ProcessReading]:
        return {each.pid: each for each in self.reader.fresh().processes}

    def step(self) -> bool:
        self.keeper.step(time.time())
        return True


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(folder, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(keeper, "FOLLOWED_AFTER_S", (0.3, 0.4))
    monkeypatch.setattr(keeper, "END_WITHIN_S", 0.8)  # some save for half a second
    seed = int.from_bytes(os.urandom(4))
    made = JobKeeper(tmp_path, seed, [NODE], 8)
    made.step(time.time())
    reader = SimulatedReader(SimulationOptions(NODE, seed=seed, world=tmp_path),
                             SimulationControlFile(tmp_path / "control.json"))
    found = open_mps(f"node={NODE},gpus=8,seed={seed},mps=on,world={tmp_path}")
    assert found is not None
    yield Room(tmp_path, seed, made, reader, found)
    made.close()


def lives(job: SimulatedJob) -> bool:
    return state_of(job.pid, job.start_ticks) is not None


def test_it_prints_what_the_real_one_prints(tmp_path: Path) -> None:
    found = open_mps(f"node={NODE},seed=1,mps=on,world={tmp_path}")
    assert found is not None
    said = [(line, found.front.ask(None, line + "\n", 1.0)) for line, _ in TABLE]
    assert said == list(TABLE)


def test_its_clients_are_the_tasks_of_the_node(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    pids = {job.pid for job in room.jobs()}
    assert room.clients() == pids
    assert room.server >= SYNTHETIC_PID_FROM, "nobody can signal it"
    assert room.daemon.status(room.server) == "ACTIVE"
    assert {pid for pid, each in room.listed().items() if each.kind == "mps_client"} == pids
    [seen] = mps_view.daemons(room.mps)
    assert (seen.is_alive, seen.uid, seen.pipes) == (
        True, os.geteuid(), str(pipes_path(room.path, NODE)))
    assert [server.uid for server in seen.servers] == [os.geteuid()]
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
    gone = room.job("serve")
    assert room.mps.terminate(gone.pid) == ""
    wait_for(lambda: room.step() and not lives(gone))
    wait_for(lambda: room.step() and {job.pid for job in room.jobs()} > old - {gone.pid})
    room.mps = room.again()
    [server] = view(room, book).servers
    given = {client.pid: client.pct for client in server.clients}
    new = room.job("serve").pid
    assert given == {**dict.fromkeys(old - {gone.pid}, 100.0), new: pct}
    assert (room.daemon.percent(), room.daemon.memory(3), room.daemon.priority()) == (
        default_pct, f"{mem_mib}M", 1)
    store.close()


def view(room: Room, book: MpsSettingStore) -> MpsDaemon:
    return mps_view.view(room.daemon, range(8), book.of)


def test_one_that_is_taken_out_ends_and_nobody_else(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    wanted = room.job(random.choice(["serve", "hog", "notebook"]))
    others = [job for job in room.jobs() if job != wanted]
    table = TaskTable(boot_id())

    def kind() -> str:
        return next(each.task.kind for each in table.describe(tuple(room.listed().values()))
                    if each.task.pid == wanted.pid)

    assert kind() == "mps_client"
    assert room.mps.terminate(wanted.pid) == ""
    assert kind() == "compute"
    assert room.clients() == {job.pid for job in others}
    assert "no MPS server lists" in room.mps.terminate(wanted.pid)
    # The notebook ignores SIGTERM, and holds on for as long as its keeper waits.
    wait_for(lambda: room.step() and not lives(wanted))
    assert all(map(lives, others))
    assert room.clients() >= {job.pid for job in others}


def test_quitting_ends_its_clients_and_what_comes_next_has_a_new_server(room: Room) -> None:
    wait_for(lambda: len(room.jobs()) == 7)
    former, server = room.jobs(), room.server
    room.daemon.set_percent(30)
    [seen] = mps_view.daemons(room.mps)
    assert room.daemon.quit(0) == ""
    assert not room.daemon.is_alive()
    [quit_one] = mps_view.daemons(room.mps)
    assert (quit_one.pipes, quit_one.is_alive) == (seen.pipes, False), "it may be started again"
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
    room.mps = room.again()
    assert not room.daemon.is_alive(), "an agent that is started anew brings nobody back"
    assert room.daemon.start() == ""
    assert room.daemon.is_alive(), "it is obeyed once"
    assert room.daemon.percent() == 100
    assert room.clients() == set(), "those that run have lost it"
    assert {each.kind for each in room.listed().values()} == {"compute"}
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
    found = open_mps(f"node={NODE},mps=on,world={long}")
    assert found is not None
    assert (mps_view.why_not(found), long.exists()) == (
        "a simulated node has no MPS", False)


def test_a_server_takes_its_own_settings_along() -> None:
    """A copy, down to the memory of its devices."""
    default = SimulatedMpsSettings(50.0, {1: 2}, 1)
    server = default.copy()
    server.memory[1] = 3
    assert (default.memory, server.percent, server.priority) == ({1: 2}, 50.0, 1)
