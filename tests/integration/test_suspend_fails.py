"""A suspension that fails or is cut short: all processes of the job or none, and always a way
back."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agent.actions.kinds import suspend
from agent.actions.signals import ProcessHandle
from agent.actions.targets import TargetProcess
from agent.backends.nvml import driver as nvml_driver
from agent.backends.nvml import suspend as nvml_suspend
from agent.journal.facts import Fact
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.stores import SuspensionStore
from agent.limits.suspensions import suspended_here
from agent.readings import ProcessReading
from gpudeck.contract.actions import Reply
from gpudeck.contract.limits import Cordon
from tests.fakes.children import TREE, Children, state_of
from tests.fakes.hub import wait_for
from tests.integration.killing import killed_at_every_step
from tests.integration.limits_bench import done
from tests.integration.suspend_bench import (
    GPU,
    MIB,
    SuspendBench,
    a_task,
    open_bench,
    workers_on_gpus,
)


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> SuspendBench:
    return open_bench(tmp_path, children, monkeypatch)


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
    assert reply.refusal is not None
    assert (reply.state, "cannot be learned" in reply.refusal.sentence) == ("refused", True)
    assert (bench.program.steps, bench.records()) == ([], ())


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
    assert suspended_here(bench.folder / "nobodys") == ()
    assert not (bench.folder / "nobodys").exists()
    assert suspended_here(bench.data) == ()
    assert bench.act("suspend", task).state == "done"
    [use] = suspended_here(bench.data)
    assert (use.pid, use.start_ticks, use.gpu_uuid) == (task.pid, task.start_ticks, GPU)
