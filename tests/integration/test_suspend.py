"""A task is suspended and restored, where there is room for its memory and by those with the
right to."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.actions.kinds import suspend
from agent.actions.standalone import StandaloneNode
from agent.backends.nvml import driver as nvml_driver
from agent.backends.nvml import suspend as nvml_suspend
from agent.journal.facts import Fact
from agent.journal.store import ActionJournal, ActionStore
from agent.tasks.boot_id import boot_id
from gpudeck.audit.chain import verify
from tests.fakes.children import Child, Children, state_of
from tests.fakes.hub import wait_for
from tests.integration.suspend_bench import (
    ACTIONS,
    GPU,
    MIB,
    NOBODY,
    OTHER,
    SuspendBench,
    a_task,
    open_bench,
)


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> SuspendBench:
    return open_bench(tmp_path, children, monkeypatch)


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
    assert [gpu.mem_used_bytes for entry in record.processes for gpu in entry.gpus] == [
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


def test_nothing_else_is_done_to_it_while_it_is_suspended(
        bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.actions = [*ACTIONS, "limit"]
    assert bench.act("suspend", task).state == "done"
    for action in ("pause", "limit"):
        refusals = bench.refusals(action, task)
        assert any(words.startswith("condition: it is suspended") for words in refusals), action
        assert bench.act(action, task).state == "refused"
    assert bench.refusals("end", task) == []
    assert (bench.program.state(task.pid), len(bench.records())) == ("checkpointed", 1)


def test_what_another_program_has_locked_stays_locked(
        bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    assert nvml_suspend.take("lock", task.pid) == ""
    os.kill(task.pid, signal.SIGCONT)  # by the fake alone it is stopped
    wait_for(lambda: state_of(task.pid) == "S")
    before = bench.program.steps
    reply = bench.act("suspend", task)
    assert (reply.state, bench.records()) == ("refused", ())
    assert bench.program.state(task.pid) == "locked"
    assert bench.program.steps == before


def test_a_gpu_that_was_leased_since_is_not_taken_back(
        bench: SuspendBench, children: Children) -> None:
    task = a_task(children)

    def lease(*leases: tuple[str, str]) -> None:
        with bench.node() as here:
            here._journal.keep(Fact.POOL_LEASES, json.dumps({"boot_id": boot_id(), "leases": [
                {"id": lease_id, "uuids": [uuid]} for lease_id, uuid in leases]}))

    lease(("own", GPU))
    assert bench.act("suspend", task).state == "done"
    assert bench.refusals("restore", task) == []
    lease(("another", GPU))
    [refusal] = bench.refusals("restore", task)
    assert "was leased since" in refusal
    assert bench.act("restore", task).state == "refused"
    assert bench.program.state(task.pid) == "checkpointed"
    lease(("another", OTHER))
    assert bench.act("restore", task).state == "done"


def test_a_lease_that_waits_for_its_gpus_keeps_it_suspended(
        bench: SuspendBench, children: Children) -> None:
    task = a_task(children)

    def lease(**what: object) -> None:
        with bench.node() as here:
            here._journal.keep(Fact.POOL_LEASES, json.dumps({"boot_id": boot_id(), "leases": [
                {"id": "own", **what}]}))

    lease(uuids=[GPU])
    assert bench.act("suspend", task).state == "done"
    lease(uuids=[], home_gpus=[GPU])
    [refusal] = bench.refusals("restore", task)
    assert "lease own of it waits in the queue for its GPUs" in refusal
    assert bench.act("restore", task).state == "refused"
    assert bench.program.state(task.pid) == "checkpointed"
    lease(uuids=[GPU], home_gpus=[GPU])
    assert bench.act("restore", task).state == "done"


def test_it_is_off_until_the_ceiling_names_it(bench: SuspendBench, children: Children) -> None:
    task = a_task(children)
    bench.actions = ["notify", "pause", "resume", "end"]
    assert bench.refusals("suspend", task)[0].startswith("type:")
    assert bench.act("suspend", task).state == "refused"
    assert bench.program.calls == []


@pytest.fixture(name="open_to_all")
def _open_to_all(children: Children, monkeypatch: pytest.MonkeyPatch) -> Iterator[SuspendBench]:
    """A bench in a folder of its own: each run of pytest closes that of all runs to others."""
    with tempfile.TemporaryDirectory() as folder:
        yield open_bench(Path(folder), children, monkeypatch)


def test_a_user_without_rights_suspends_nobody(
        open_to_all: SuspendBench, children: Children) -> None:
    if os.geteuid() != 0:
        pytest.skip("root alone can become somebody else")
    bench, task = open_to_all, a_task(children)
    assert bench.preview("suspend", task).refusals == ()
    for folder in (bench.program.folder, bench.folder):
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
            bench.set_facts(here)
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
            words = f"{error!r} {getattr(error, 'filename', '')}"
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
    "its cgroup cannot be read": lambda bench, task, patch: bench.limit(80 * 2**30, is_whole=False),
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
