"""A task is suspended and restored, with a fake of `cuda-checkpoint` that really stops it: all
processes of a job or none, never without room for its memory, and whatever is cut short has a way
back."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.actions import guard
from agent.actions.kinds import suspend
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.signals import ProcessHandle
from agent.actions.standalone import StandaloneNode
from agent.actions.targets import TargetProcess
from agent.backends.nvml import driver as nvml_driver
from agent.backends.nvml import suspend as nvml_suspend
from agent.journal.facts import Fact
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.stores import SuspensionStore
from agent.limits.suspensions import SuspensionKeeper, suspended_here
from agent.readings import ProcessReading
from agent.runtime.action_lock import ActionLock
from agent.tasks import host_memory
from agent.tasks.boot_id import boot_id
from gpudeck.audit.chain import verify
from gpudeck.contract.actions import ActionParams, Preview, Reply
from gpudeck.contract.limits import Cordon
from gpudeck.contract.suspensions import SuspendedTask
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import TREE, Child, Children, state_of
from tests.fakes.cuda_checkpoint import FakeCudaCheckpoint
from tests.fakes.hub import wait_for
from tests.integration.killing import killed_at_every_step
from tests.integration.limits_bench import Bench, done

GPU, OTHER = "GPU-1", "GPU-2"
MIB = 2**20
ACTIONS = ["notify", "pause", "resume", "end", "suspend", "restore", "cordon"]
NOBODY = 65_534


class SuspendBench(Bench):
    """A node whose driver lists its children, with `cuda-checkpoint` as a fake."""

    def __init__(self, folder: Path, children: Children) -> None:
        super().__init__(folder, children)
        self.program = FakeCudaCheckpoint(folder)
        self.actions = ACTIONS
        self.total = 80 * 2**30
        self.cgroups = folder / "cgroups"
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.room(80 * 2**30)
        self.limit(None)

    def room(self, free_bytes: int) -> None:
        (self.proc / "meminfo").write_text(
            f"MemTotal: 1 kB\nMemAvailable: {free_bytes // 1_024} kB\n")

    def limit(self, free_bytes: int | None) -> None:
        """Set what the cgroup of all tasks has left; None: it has no limit."""
        top = self.cgroups / "tasks"
        top.mkdir(parents=True, exist_ok=True)
        (top / "memory.max").write_text("max" if free_bytes is None else f"{free_bytes + MIB}")
        (top / "memory.current").write_text(f"{3 * MIB}\n")
        (top / "memory.stat").write_text(f"anon {MIB}\ninactive_file {2 * MIB}\n")

    @contextmanager
    def node(self) -> Iterator[StandaloneNode]:
        facts = [GpuFacts(uuid, index, "H100", mem_total_bytes=float(self.total))
                 for index, uuid in enumerate((GPU, OTHER))]
        with self.here("nvml", actions=self.actions, own_pid_namespace=True) as local:
            local._context.tasks.recent.set_facts(facts)
            local._timeouts = ActionTimeouts(2.0, 2.0)
            yield local

    def preview(self, action: Any, child: Child) -> Preview:
        with self.node() as here:
            return here.preview(action, child.task_id, ActionParams())

    def act(self, action: Any, child: Child) -> Reply:
        with self.node() as here:
            return here.act(here.preview(action, child.task_id, ActionParams()), "a test", "ada")

    def refusals(self, action: Any, child: Child) -> list[str]:
        return [f"{refusal.code}: {refusal.sentence}"
                for refusal in self.preview(action, child).refusals]

    @contextmanager
    def store(self) -> Iterator[SuspensionStore]:
        disk = ActionStore(self.data / "acts.db")
        try:
            yield SuspensionStore(ActionJournal(disk))
        finally:
            disk.close()

    def records(self) -> tuple[SuspendedTask, ...]:
        with self.store() as store:
            return store.all()

    def follow(self) -> str:
        """Step the keeper as an agent does after its start; return its trouble."""
        with self.store() as store:
            keeper = SuspensionKeeper(store, boot_id(), ActionLock(self.data), nvml_suspend,
                                      lambda: None)
            try:
                for _ in range(3):
                    keeper.changed()
                    keeper.step(time.monotonic())
                    wait_for(lambda: keeper.is_idle)
                return keeper.trouble
            finally:
                keeper.close()


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> SuspendBench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    monkeypatch.setattr(suspend, "LISTED_WITHIN_S", 2.0)
    monkeypatch.setattr(nvml_suspend, "LOCK_WITHIN_S", 0.1)
    monkeypatch.setattr(nvml_driver, "driver_version", lambda: "580.95.05")
    children.start(gpu=OTHER)
    new_bench = SuspendBench(tmp_path, children)
    monkeypatch.setenv("PATH", new_bench.program.path)
    rooms = partial(host_memory.rooms, "0::/tasks\n", new_bench.cgroups, new_bench.proc)
    monkeypatch.setattr(host_memory, "rooms", lambda cgroups: rooms())
    real = children.fresh
    monkeypatch.setattr(Children, "fresh", lambda self, timeout_s: (
        None if (reading := real(timeout_s)) is None else new_bench.program.listed(reading)))
    return new_bench


def a_task(children: Children, code: str | None = None, gpu: str = GPU) -> Child:
    child = children.start(gpu=gpu) if code is None else children.start(code, gpu=gpu)
    child.mem_used_bytes = float(random.randint(100, 900) * MIB)
    return child


def workers_on_gpus(children: Children, child: Child) -> None:
    """Put the first two workers of a tree on its GPU, too."""
    children.more += [ProcessReading(pid, GPU, float(50 * MIB), 1.0) for pid in child.workers[:2]]


def test_suspended_and_restored(bench: SuspendBench, children: Children) -> None:
    task, neighbour = a_task(children), a_task(children)
    preview = bench.preview("suspend", task)
    assert preview.refusals == ()
    needed = 1.1 * (task.mem_used_bytes or 0.0) / 2**30
    assert any(f"takes {needed:.1f} GiB of host memory" in words for words in preview.warnings)
    assert any("Not verified on hardware" in words for words in preview.warnings)
    reply = bench.act("suspend", task)
    assert reply.state == "done", reply.step
    assert reply.verified is not None
    assert (reply.verified.memory_returned, reply.verified.bystanders_alive) == (True, True)
    assert reply.verified.mem_before_bytes == task.mem_used_bytes
    assert (bench.program.state(task.pid), state_of(task.pid)) == ("checkpointed", "T")
    assert bench.program.steps == ["lock", "checkpoint"]
    [record] = bench.records()
    assert (record.state, record.by, record.words) == ("suspended", "ada", "")
    assert [gpu.mem_used_bytes for entry in record.processes for gpu in entry.held] == [
        task.mem_used_bytes]

    # The driver does not list it any more; it is a task of its node all the same.
    with bench.node() as here:
        snapshot = here._context.tasks.find()
    assert snapshot is not None
    entries = {entry.task.id: entry for entry in snapshot.gpu_tasks}
    assert (entries[task.task_id].mem_used_bytes, entries[task.task_id].is_suspended) == (0.0, True)
    assert not entries[neighbour.task_id].is_suspended
    assert bench.refusals("suspend", task)[0].startswith("condition: it is suspended already")

    reply = bench.act("restore", task)
    assert reply.state == "done", reply.step
    assert (bench.program.state(task.pid), bench.records()) == ("running", ())
    wait_for(lambda: state_of(task.pid) == "S")
    assert neighbour.is_alive()
    assert state_of(neighbour.pid) == "S"
    journal = ActionJournal(ActionStore(bench.data / "acts.db"))
    assert verify(journal.audit.links()) is None
    bodies = "".join(link.body for link in journal.audit.links())
    assert all(f'"suspension_{event}"' in bodies for event in ("begun", "state", "over"))


def test_it_is_off_until_the_ceiling_names_it(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.actions = ["notify", "pause", "resume", "end"]
    assert bench.refusals("suspend", task)[0].startswith("type:")
    assert bench.act("suspend", task).state == "refused"
    assert bench.program.calls == []


def test_a_user_without_rights_suspends_nobody(bench: SuspendBench, children: Children) -> None:
    if os.geteuid() != 0:
        pytest.skip("root alone can become somebody else")
    task = a_task(children)
    assert bench.preview("suspend", task).refusals == ()
    for folder in (bench.folder, *bench.folder.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    for path in (bench.data, *bench.data.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    bench.ceiling.chmod(0o644)

    def codes() -> str:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        with StandaloneNode(bench.data, "nvml", "", bench.ceiling,
                            source=children) as here:  # type: ignore[arg-type]
            return " ".join(flaw.code for flaw in here.preview("suspend", task.task_id).refusals)

    assert "permission" in in_a_child(codes)
    assert (state_of(task.pid), bench.program.calls) == ("S", [])


def in_a_child(act: Callable[[], str]) -> str:
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = ""
        try:
            words = act()
        except BaseException as error:
            words = repr(error)
        finally:
            os.write(writes, words.encode())
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        words = pipe.read().decode()
    os.waitpid(pid, 0)
    return words


REFUSALS: dict[str, Callable[[SuspendBench, Child, pytest.MonkeyPatch], object]] = {
    "the machine has no room": lambda bench, task, patch: bench.room(10 * MIB),
    "its cgroup has no room": lambda bench, task, patch: bench.limit(20 * MIB),
    "its cgroup cannot be read":
        lambda bench, task, patch: (bench.cgroups / "tasks/memory.stat").unlink(),
    "its memory is not known": lambda bench, task, patch: setattr(task, "mem_used_bytes", None),
    "an old driver": lambda bench, task, patch: patch.setattr(
        nvml_driver, "driver_version", lambda: "575.51.03"),
    "no driver": lambda bench, task, patch: patch.setattr(
        nvml_driver, "driver_version", lambda: None),
    "another machine": lambda bench, task, patch: patch.setattr(nvml_suspend, "MACHINE", "vax"),
    "no program": lambda bench, task, patch: (bench.program.folder / "cuda-checkpoint").unlink(),
    "a client of MPS": lambda bench, task, patch: setattr(task, "kind", "mps_client"),
    "graphics": lambda bench, task, patch: setattr(task, "kind", "graphics"),
    "MIG": lambda bench, task, patch: setattr(task, "gpu", "MIG-1"),
    "it is paused": lambda bench, task, patch: bench.act("pause", task),
    "a hold": lambda bench, task, patch: (bench.data / "hold").write_text("not now\n"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_refused_before_anything_is_touched(bench: SuspendBench, children: Children, why: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(children)
    good = bench.preview("suspend", task)
    assert good.refusals == ()
    REFUSALS[why](bench, task, monkeypatch)
    assert bench.refusals("suspend", task) != [], why
    with bench.node() as here:
        # What was true at the preview is looked at again.
        reply = here.act(good, "a test", "ada")
    assert (reply.state, bench.program.steps, bench.records()) == ("refused", [], ()), reply
    assert task.is_alive()


def test_without_that_guard_a_task_without_room_is_hit(
        bench: SuspendBench, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control arm: what the guard guards from is real."""
    task = a_task(children)
    bench.limit(20 * MIB)
    monkeypatch.setattr(suspend, "_no_room", lambda task: iter(()))
    assert bench.act("suspend", task).state == "done"
    assert bench.program.state(task.pid) == "checkpointed"


FAILURES: list[tuple[str, str, str]] = [
    ("lock", "refuse", "operation timed out"), ("lock", "refuse", "operation not permitted"),
    ("lock", "lie", ""), ("checkpoint", "refuse", "out of memory"),
    ("checkpoint", "refuse", "operation not supported"), ("checkpoint", "lie", ""),
]


@pytest.mark.parametrize(("step", "switch", "text"), FAILURES)
@pytest.mark.parametrize("count", [1, 3])
def test_a_step_that_fails_leaves_all_as_they_were(
        bench: SuspendBench, children: Children, monkeypatch: pytest.MonkeyPatch, step: str,
        switch: str, text: str, count: int) -> None:
    monkeypatch.setattr(nvml_driver, "driver_version", lambda: "610.43.02")
    task = a_task(children, TREE if count == 3 else None)
    pids = [task.pid]
    if count == 3:
        workers_on_gpus(children, task)
        pids += task.workers[:2]
    bench.program.do(step, switch, text, pids[-1])
    reply = bench.act("suspend", task)
    assert reply.state == "not_effective"
    assert "it runs as before" in reply.step
    assert text in reply.step
    assert [bench.program.state(pid) for pid in pids] == ["running"] * count
    wait_for(lambda: {state_of(pid) for pid in pids} == {"S"})
    assert bench.records() == ()


def test_what_says_that_it_failed_and_did_not_is_done(
        bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.program.do("lock", "grumble")
    bench.program.do("checkpoint", "grumble")
    assert bench.act("suspend", task).state == "done"
    assert bench.program.state(task.pid) == "checkpointed"


@pytest.mark.parametrize(("text", "code"), [
    ("Insufficient driver", 255),
    ("error while loading shared libraries: libcuda.so.1: cannot open shared object file", 127)])
def test_a_program_that_does_not_start_changes_nothing(
        bench: SuspendBench, children: Children, text: str, code: int) -> None:
    task = a_task(children)
    bench.program.always(text, code)
    reply = bench.act("suspend", task)
    # Nobody can say in which state it is: that is said, with the way back.
    assert (reply.state, text in reply.step) == ("not_effective", True)
    assert f"gpudeck restore {task.task_id}" in reply.step
    [record] = bench.records()
    assert record.state == "cut_short"
    bench.program.work()
    assert bench.follow() == ""
    assert bench.records() == (), "each of its processes runs"


def test_a_way_back_that_fails_is_named_and_works_later(
        bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.program.refuse("checkpoint", "out of memory")
    bench.program.refuse("unlock", "unknown error")
    reply = bench.act("suspend", task)
    assert reply.state == "not_effective"
    assert f"process {task.pid} is locked" in reply.step
    assert f"gpudeck restore {task.task_id}" in reply.step
    [record] = bench.records()
    assert record.state == "cut_short"
    assert f"process {task.pid} is locked" in bench.follow()
    bench.program.work()
    assert bench.act("restore", task).state == "done"
    assert (bench.records(), bench.follow()) == ((), "")
    wait_for(lambda: state_of(task.pid) == "S")


def test_a_failed_process_is_said_to_be_that(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.program.do("checkpoint", "fail")
    reply = bench.act("suspend", task)
    assert (reply.state, f"process {task.pid} is failed" in reply.step) == ("not_effective", True)
    # It can be ended like any other.
    assert bench.act("end", task).state == "done"
    task.process.wait()
    bench.follow()
    assert bench.records() == ()


@pytest.mark.parametrize("step", ["lock", "checkpoint"])
def test_one_that_ends_meanwhile(bench: SuspendBench, children: Children, step: str) -> None:
    task, neighbour = a_task(children), a_task(children)
    bench.program.do(step, "kill")
    reply = bench.act("suspend", task)
    assert reply.state == "not_effective"
    assert bench.records() == ()
    assert neighbour.is_alive()


def test_memory_that_stays_is_no_success(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.program.memory_stays = True
    reply = bench.act("suspend", task)
    assert reply.state == "not_effective"
    assert f"gpudeck restore {task.task_id}" in reply.step
    assert bench.act("restore", task).state == "done"


def test_a_job_of_several_needs_a_driver_that_can(
        bench: SuspendBench, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(children, TREE)
    workers_on_gpus(children, task)
    assert bench.refusals("suspend", task)[0].startswith("multi_process:")
    assert bench.act("suspend", task).state == "refused"
    monkeypatch.setattr(nvml_driver, "driver_version", lambda: "610.43.02")
    assert bench.act("suspend", task).state == "done"
    pids = [task.pid, *task.workers[:2]]
    assert bench.program.steps == ["lock"] * 3 + ["checkpoint"] * 3
    assert bench.act("restore", task).state == "done"
    assert bench.program.steps[6:] == ["restore"] * 3 + ["unlock"] * 3
    assert {bench.program.state(pid) for pid in pids} == {"running"}


def test_one_that_came_to_a_gpu_after_the_preview_is_not_left_behind(
        bench: SuspendBench, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_driver, "driver_version", lambda: "610.43.02")
    orphan = """
import os, signal, sys
print("ready", flush=True)
sys.stdin.readline()
pid = os.fork()
if pid:
    print(pid, flush=True)
while True:
    signal.pause()
"""
    task = a_task(children, orphan)
    with bench.node() as here:
        preview = here.preview("suspend", task.task_id)
        assert preview.refusals == ()
        assert task.process.stdin is not None
        assert task.process.stdout is not None
        task.process.stdin.write("\n")
        task.process.stdin.flush()
        late = int(task.process.stdout.readline())
        children.more.append(ProcessReading(late, GPU, float(MIB), 1.0))
        try:
            reply = here.act(preview, "a test", "ada")
        finally:
            os.kill(late, signal.SIGKILL)
    assert (reply.state, bench.program.steps) == ("refused", [])
    assert reply.refusal is not None
    assert f"process {late}" in reply.refusal.sentence


def test_it_is_restored_only_where_there_is_room(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    assert bench.act("suspend", task).state == "done"
    newcomer = a_task(children)
    newcomer.mem_used_bytes = float(bench.total - 50 * MIB)
    [words] = bench.refusals("restore", task)
    assert "stays suspended until there is room" in words
    assert bench.act("restore", task).state == "refused"
    assert bench.program.steps == ["lock", "checkpoint"]
    newcomer.gpu = ""
    # Its driver finds none: it is as before, and can be tried again.
    bench.program.refuse("restore", "out of memory")
    reply = bench.act("restore", task)
    assert (reply.state, "out of memory" in reply.step) == ("not_effective", True)
    [record] = bench.records()
    assert record.state == "suspended"
    bench.program.work()
    assert bench.act("restore", task).state == "done"


def test_what_was_not_suspended_is_not_restored(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    assert bench.refusals("restore", task) == ["condition: it was not suspended by gpudeck"]
    assert bench.act("restore", task).state == "refused"


def test_a_hold_in_the_middle_brings_it_back(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)

    def hold_at_lock(reply: Reply) -> None:
        if reply.step.startswith("lock of"):
            (bench.data / "hold").write_text("stop\n")

    with bench.node() as here:
        reply = here.act(here.preview("suspend", task.task_id), "a test", "ada", hold_at_lock)
    assert (reply.state, bench.program.steps) == ("not_effective", ["lock", "unlock"]), reply.step
    assert (bench.program.state(task.pid), bench.records()) == ("running", ())


def test_a_program_that_hangs_is_given_up(bench: SuspendBench, children: Children,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(children)
    monkeypatch.setattr(nvml_suspend, "STEP_WITHIN_S", 0.5)
    bench.program.do("checkpoint", "hang")
    reply = bench.act("suspend", task)
    assert (reply.state, "did not end within" in reply.step) == ("not_effective", True)
    assert (bench.program.state(task.pid), bench.records()) == ("running", ())


def test_one_that_became_another_program_is_not_touched(
        bench: SuspendBench, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(children)
    monkeypatch.setattr(suspend, "is_same", lambda now, former: False)
    reply = bench.act("suspend", task)
    assert (reply.state, bench.program.steps) == ("not_effective", [])
    assert "became another program" in reply.step


def test_whoever_took_over_its_number_is_released(children: Children) -> None:
    """The program takes a number: where ours ends and another gets it, that one was hit."""
    child = children.start()
    states = {child.pid: "running"}

    class Late:
        def state_of(self, pid: int) -> Any:
            return states[pid]

        def take(self, step: Any, pid: int) -> str:
            states[pid] = {"lock": "locked", "unlock": "running"}[step]
            child.process.kill()
            child.process.wait()
            return ""

    handle = ProcessHandle.open(child.pid)
    assert handle is not None
    facts = handle.facts()
    assert facts is not None
    target = TargetProcess(handle, facts.identity, None, "compute", True)
    assert "ended meanwhile" in suspend._take(Late(), target, "lock")  # type: ignore[arg-type]
    assert states == {child.pid: "running"}
    handle.close()


def test_beside_a_cordon_and_an_end(bench: SuspendBench, children: Children) -> None:
    """Other acts on the node: a GPU out of service, and the end of a suspended task."""
    task, neighbour = a_task(children), a_task(children)
    with bench.node() as here:
        assert done(here, Cordon(GPU)).state in ("done", "refused")
    assert bench.act("suspend", task).state == "done"
    assert bench.act("end", neighbour).state == "done"
    assert bench.program.state(task.pid) == "checkpointed"
    assert bench.act("end", task).state == "done"
    task.process.wait()
    assert len(bench.records()) == 1
    assert bench.follow() == ""
    assert bench.records() == (), "its processes have ended"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("action", ["suspend", "restore"])
def test_killed_at_every_step(bench: SuspendBench, children: Children, action: str, after: bool,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL leaves a record with a way back, or nothing was touched; no agent goes on by
    itself."""
    steps = [(SuspensionStore, "begin"), (SuspensionStore, "turn"), (SuspensionStore, "end"),
             (nvml_suspend, "take")]
    states, task, neighbour = set(), a_task(children), a_task(children)
    if action == "restore":
        assert bench.act("suspend", task).state == "done"

    def act() -> str:
        return bench.act(action, task).state

    for number in killed_at_every_step(monkeypatch, steps, act, after=after, at_least=3):
        state, call_count = bench.program.state(task.pid), len(bench.program.steps)
        states.add(state)
        trouble = bench.follow()
        assert (bench.program.state(task.pid), len(bench.program.steps)) == (state, call_count)
        if state != "running":
            assert len(bench.records()) == 1, number
            assert "gpudeck restore" in trouble or bench.records()[0].state == "suspended", number
            reply = bench.act("restore", task)
            assert reply.state == "done", (number, reply.step)
        assert (bench.program.state(task.pid), bench.records()) == ("running", ()), number
        assert neighbour.is_alive()
        if action == "restore":
            assert bench.act("suspend", task).state == "done", number
    assert states > {"running"}, "else this kills nowhere in the middle"


def test_a_record_that_is_not_understood_stays_and_is_said(
        bench: SuspendBench, children: Children) -> None:
    disk = ActionStore(bench.data / "acts.db")
    ActionJournal(disk).keep(Fact.SUSPENSIONS, '[{"of": "a later version"}]')
    disk.close()
    assert "1 of the suspensions on this node's disk cannot be understood" in bench.follow()
    task = a_task(children)
    assert bench.act("suspend", task).state == "done"
    assert bench.act("restore", task).state == "done"
    assert "1 of the suspensions" in bench.follow(), "it is on disk still"


def test_the_terminal_lists_it(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    assert suspended_here(bench.data) == ()
    assert bench.act("suspend", task).state == "done"
    [use] = suspended_here(bench.data)
    assert (use.pid, use.start_ticks, use.gpu_uuid) == (task.pid, task.start_ticks, GPU)
