"""A board that is out of service is reset and diagnosed, with fakes of NVIDIA's programs that act
on the C fake of the driver: never one in use, judged by reading again, and at most twice a day."""

import random
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agent.actions import guard, hold_files, quiet_window
from agent.actions.kinds import board_repair
from agent.actions.standalone import StandaloneNode
from agent.backends.nvml import repair as nvml_repair
from agent.journal.store import ActionJournal, ActionStore
from agent.limits.apply import LimitApplier
from agent.limits.repairs import RepairKeeper
from agent.limits.stores import RepairStore
from agent.runtime.action_lock import ActionLock
from agent.tasks.boot_id import boot_id
from gpudeck.contract.actions import Reply
from gpudeck.contract.limits import Cordon, GpuDiagnosis, GpuReset, ReturnToService
from gpudeck.contract.repairs import GpuRepair, RepairState
from gpudeck.contract.wire import GpuFacts
from tests.fakes.children import Children
from tests.fakes.hub import wait_for
from tests.fakes.nvml import FakeNvml
from tests.fakes.vendor_tools import VendorTools
from tests.integration.killing import killed_at_every_step
from tests.integration.limits_bench import Bench, codes, done, shown

HOLDERS = nvml_repair.holders
ACTIONS = ["cordon", "return_to_service", "reset_gpu", "diagnose_gpu"]


class RepairBench(Bench):
    """A node of the C fake, with NVIDIA's programs as fakes."""

    def __init__(self, folder: Path, children: Children) -> None:
        super().__init__(folder, children)
        self.nvml = FakeNvml(folder, gpus=2)
        self.board = self.nvml.gpus[0]
        self.board["recovery"] = random.choice((1, 2, 4))
        self.board["minor"] = 200  # no device file of this machine
        self.gpu = self.board.uuid
        self.tools = VendorTools(folder, self.nvml)
        self.nvml.save()

    def facts_of(self) -> list[GpuFacts]:
        return [GpuFacts(gpu.uuid, index, "H100", pci_bus_id=str(gpu["pci"]),
                         minor=int(str(gpu["minor"])))
                for index, gpu in enumerate(self.nvml.gpus)]

    def act(self, setting: object) -> Reply:
        with self.node() as here:
            return done(here, setting, "Xid 79")  # type: ignore[arg-type]

    def node(self) -> AbstractContextManager[StandaloneNode]:
        return self.opened(ACTIONS, self.facts_of())

    def state(self) -> RepairState | None:
        with_disk = ActionStore(self.data / "acts.db")
        try:
            repair = RepairStore(ActionJournal(with_disk)).of(self.gpu)
            return None if repair is None else repair.state
        finally:
            with_disk.close()


@pytest.fixture
def bench(tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch) -> RepairBench:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    children.start(gpu="GPU-elsewhere")
    new_bench = RepairBench(tmp_path, children)
    new_bench.nvml.use(monkeypatch)
    monkeypatch.setenv("PATH", new_bench.tools.path)
    monkeypatch.setattr(nvml_repair, "holders", lambda facts: ())  # not of this machine's /proc
    # The list of the driver has this board, with nobody on it.
    real = children.fresh

    def with_board(self: Children, timeout_s: float) -> object:
        reading = real(timeout_s)
        if reading is not None:
            reading.mem_used_bytes.setdefault(new_bench.gpu, 0.0)
        return reading

    monkeypatch.setattr(Children, "fresh", with_board)
    return new_bench


def test_a_reset_is_done_and_read_again(bench: RepairBench) -> None:
    with bench.node() as here:
        assert codes(here, GpuReset(bench.gpu)) == ["setting"], "it is in service"
    assert bench.act(Cordon(bench.gpu)).state == "done"
    reply = bench.act(GpuReset(bench.gpu))
    assert (reply.state, bench.state()) == ("done", "drained"), reply.step
    assert bench.tools.calls == [f"--gpu-reset -i {bench.board['pci']}"]
    assert not (bench.data / quiet_window.QUIET_FILE).exists(), "the readers may read again"


def test_a_reset_that_changed_nothing_is_none(bench: RepairBench) -> None:
    bench.tools.smi("lie")
    bench.act(Cordon(bench.gpu))
    reply = bench.act(GpuReset(bench.gpu))
    assert (reply.state, bench.state()) == ("not_effective", "needs_reboot")
    assert "successfully reset" in reply.step
    assert "advises" in reply.step


def test_a_refusal_of_the_driver_leaves_it_cordoned(bench: RepairBench) -> None:
    bench.tools.smi("refuse")
    bench.act(Cordon(bench.gpu))
    reply = bench.act(GpuReset(bench.gpu))
    assert (reply.state, bench.state()) == ("not_effective", "cordoned")
    assert "In use by another client" in reply.step


def test_a_board_in_use_is_never_reset(bench: RepairBench, children: Children) -> None:
    child = children.start(gpu=bench.gpu)
    bench.board.process(child.pid, 2**30)
    bench.nvml.save()
    bench.act(Cordon(bench.gpu))
    with bench.node() as here:
        [refusal] = shown(here, GpuReset(bench.gpu)).refusals
    assert child.task_id in refusal.sentence
    assert bench.act(GpuReset(bench.gpu)).state == "refused"
    assert bench.tools.calls == []
    assert child.is_alive()


def test_without_that_guard_the_fake_hits_it(bench: RepairBench, children: Children,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The control arm: what the guard guards from is real."""
    child = children.start(gpu=bench.gpu)
    bench.board.process(child.pid, 2**30)
    bench.nvml.save()
    monkeypatch.setattr(board_repair, "_in_the_way", lambda preview: iter(()))
    bench.act(Cordon(bench.gpu))
    bench.act(GpuReset(bench.gpu))
    wait_for(lambda: not child.is_alive())


def test_a_task_that_came_after_the_preview_is_seen(bench: RepairBench, children: Children
                                                    ) -> None:
    bench.act(Cordon(bench.gpu))
    with bench.node() as here:
        look = shown(here, GpuReset(bench.gpu))
        assert look.refusals == ()
        child = children.start(gpu=bench.gpu)
        assert here.act(look, "Xid 79", "ada").state == "refused"
    assert bench.tools.calls == []
    assert child.is_alive()


def test_without_a_list_of_processes_nothing_is_reset(bench: RepairBench, children: Children
                                                      ) -> None:
    bench.act(Cordon(bench.gpu))
    with bench.node() as here:
        children.hangs = True
        assert "setting" in codes(here, GpuReset(bench.gpu))


@pytest.mark.parametrize("holders", [("train (4711)",), None])
def test_what_else_has_it_open_stops_it(bench: RepairBench, holders: tuple[str, ...] | None,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_repair, "holders", lambda facts: holders)
    bench.act(Cordon(bench.gpu))
    reply = bench.act(GpuReset(bench.gpu))
    assert (reply.state, bench.state()) == ("not_effective", "cordoned")
    assert bench.tools.calls == []


def test_who_has_it_open_is_found_by_its_device_file(tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_repair, "PROC", tmp_path)
    for pid, device in ((7, "/dev/nvidia3"), (8, "/dev/nvidia30"), (9, "/dev/nvidiactl")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "5").symlink_to(device)
        (tmp_path / str(pid) / "comm").write_text("python\n")
    assert HOLDERS(GpuFacts("GPU-1", 0, "x", minor=3)) == ("python (7)",)
    assert HOLDERS(GpuFacts("GPU-1", 0, "x", minor=4)) == ()
    monkeypatch.setattr("agent.backends.nvml.repair.os.readlink", denied)
    assert HOLDERS(GpuFacts("GPU-1", 0, "x", minor=4)) is None, "not to know is not nobody"


def denied(_path: object) -> str:
    raise PermissionError


def test_at_most_twice_within_a_day(bench: RepairBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tools.smi("refuse")
    bench.act(Cordon(bench.gpu))
    for _ in range(board_repair.RESETS_MOST):
        bench.act(GpuReset(bench.gpu))
    with bench.node() as here:
        assert codes(here, GpuReset(bench.gpu)) == ["budget"]
        monkeypatch.setattr(board_repair, "RESETS_WITHIN_S", 0.0)
        monkeypatch.setattr("agent.actions.preview.RESETS_WITHIN_S", 0.0)
        assert codes(here, GpuReset(bench.gpu)) == []


def test_a_second_reset_that_fails_ends_in_inspection(bench: RepairBench) -> None:
    bench.tools.smi("refuse")
    bench.act(Cordon(bench.gpu))
    bench.act(GpuReset(bench.gpu))
    bench.tools.smi("lie")
    bench.act(GpuReset(bench.gpu))
    assert bench.state() == "needs_inspection"


def test_one_repair_at_a_time_on_a_node(bench: RepairBench) -> None:
    bench.act(Cordon(bench.gpu))
    with bench.node() as here:
        here._context.limits.repairs.keep(GpuRepair(
            "GPU-2", "diagnosing", "ada", "", 0.0, 0.0, boot_id()))
        assert codes(here, GpuReset(bench.gpu)) == ["setting"]


def test_what_an_agent_left_in_the_middle_needs_a_person(bench: RepairBench) -> None:
    bench.act(Cordon(bench.gpu))
    disk = ActionStore(bench.data / "acts.db")
    store, lock = RepairStore(ActionJournal(disk)), ActionLock(bench.data)
    store.keep(GpuRepair(bench.gpu, "resetting", "ada", "", 0.0, 0.0, boot_id()))
    keeper = RepairKeeper(store, boot_id(), ActionLock(bench.data), lambda: None)
    try:
        assert lock.take(0.0)
        keeper.step(time.monotonic())
        wait_for(lambda: keeper.is_idle)
        assert bench.state() == "resetting", "somebody is at it"
        lock.free()
        keeper.changed()
        keeper.step(time.monotonic())
        wait_for(lambda: keeper.is_idle)
        assert bench.state() == "needs_inspection"
    finally:
        keeper.close()
        disk.close()


@pytest.mark.parametrize(("status", "state"), [
    ("Pass", "drained"), ("Fail", "needs_inspection"), ("Skip", "cordoned")])
def test_a_diagnosis_is_judged(bench: RepairBench, status: str, state: RepairState) -> None:
    bench.tools.diag({"DCGM Diagnostic": {"test_categories": [{"tests": [
        {"name": "memory", "results": [{"entity_group_id": 1, "entity_id": 0,
                                        "status": status}]}]}]}})
    bench.act(Cordon(bench.gpu))
    reply = bench.act(GpuDiagnosis(bench.gpu, 2))
    assert bench.state() == state, reply.step
    assert bench.tools.calls == ["diag -r 2 -i 0 -j"]


def test_a_ceiling_that_does_not_name_it_forbids_it(bench: RepairBench) -> None:
    bench.act(Cordon(bench.gpu))
    with bench.here("nvml") as here:
        here._context.tasks.recent.set_facts(bench.facts_of())
        assert codes(here, GpuReset(bench.gpu)) == ["type"]
        assert codes(here, GpuDiagnosis(bench.gpu, 1)) == ["type"]


def test_a_quiet_window_ends_by_itself(tmp_path: Path) -> None:
    assert hold_files.driver_order(tmp_path) == ""
    with quiet_window.quiet(tmp_path, "", lambda: False) as is_quiet:
        assert is_quiet
        assert hold_files.driver_order(tmp_path) == quiet_window.SENTENCE
    assert hold_files.driver_order(tmp_path) == ""
    file = tmp_path / quiet_window.QUIET_FILE
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    for until, boot in ((now - 1, boot_id()), (now + 60, "another-boot"),
                        (now + 2 * quiet_window.LASTS_S, boot_id())):
        file.write_text(f"{until}\n{boot}\n")
        assert hold_files.driver_order(tmp_path) == "", (until - now, boot)
    file.write_text("nonsense")
    assert hold_files.driver_order(tmp_path) == ""


def test_a_reader_that_stays_stops_the_reset(bench: RepairBench, children: Children,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_window, "LET_GO_WITHIN_S", 0.2)
    bench.act(Cordon(bench.gpu))
    children.pids = frozenset({1})
    reply = bench.act(GpuReset(bench.gpu))
    assert "did not release" in reply.step
    assert (bench.tools.calls, bench.state()) == ([], "cordoned")


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_step(bench: RepairBench, children: Children, after: bool,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL leaves the board out of service and recorded as such; no agent goes on by itself, so
    that a task that has come since is not hit, and no reset is tried that nobody has asked for."""
    steps = [(RepairStore, "keep"), (RepairStore, "note_reset"), (nvml_repair, "holders"),
             (nvml_repair, "reset"), (LimitApplier, "read")]
    monkeypatch.setattr(board_repair, "RESETS_WITHIN_S", 0.0)  # more than two, for this
    monkeypatch.setattr("agent.actions.preview.RESETS_WITHIN_S", 0.0)
    states = set()
    bench.act(Cordon(bench.gpu))

    def act() -> str:
        return bench.act(GpuReset(bench.gpu)).state

    for number in killed_at_every_step(monkeypatch, steps, act, after=after, at_least=5):
        call_count = len(bench.tools.calls)
        child = children.start(gpu=bench.gpu)
        bench.board.process(child.pid, 2**30)
        bench.nvml.save()
        states.add(bench.state())
        follow(bench)
        assert bench.state() in ("cordoned", "drained", "needs_inspection"), number
        assert (len(bench.tools.calls), child.is_alive()) == (call_count, True), number
        assert bench.act(GpuReset(bench.gpu)).state == "refused", "it is in use"
        assert (len(bench.tools.calls), child.is_alive()) == (call_count, True), number
        child.process.kill()
        child.process.wait()
        bench.board.forget(child.pid)
        bench.board["recovery"] = 1
        bench.nvml.save()
        # As a person does it after the inspection; the window of the dead one ends by itself.
        (bench.data / quiet_window.QUIET_FILE).unlink(missing_ok=True)
        bench.act(ReturnToService(bench.gpu))
        assert bench.act(Cordon(bench.gpu)).state == "done"
    assert "resetting" in states, "else this kills nowhere in the middle"


def follow(bench: RepairBench) -> None:
    """Step the keeper of repairs as the agent does after its start."""
    disk = ActionStore(bench.data / "acts.db")
    keeper = RepairKeeper(RepairStore(ActionJournal(disk)), boot_id(), ActionLock(bench.data),
                          lambda: None)
    try:
        keeper.step(time.monotonic())
        wait_for(lambda: keeper.is_idle)
    finally:
        keeper.close()
        disk.close()
