"""A GPU is taken out of service at its node, drained and returned: what the pool gives out, what
the record says, and that nobody's work is touched."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.actions import guard
from agent.journal.facts import Fact
from agent.journal.store import ActionJournal, ActionStore, JournalError
from agent.limits.repairs import RepairKeeper
from agent.limits.stores import RepairStore
from agent.pool.gpus import PoolSnapshot, pool_gpus, with_reasons
from agent.pool.lock import PoolGpu
from agent.runtime.action_lock import ActionLock
from agent.tasks.boot_id import boot_id
from agent.tasks.task_table import TaskTable
from gpudeck.contract.limits import Cordon, Drain, ReturnToService
from gpudeck.contract.repairs import WHOLE_NODE, GpuRepair, RepairsNow
from gpudeck.contract.wire import GpuFacts
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.host_resources import NOT_COUNTED
from tests.fakes.children import Child, Children
from tests.fakes.hub import wait_for
from tests.integration.limits_bench import Bench, codes, done, shown
from tests.integration.pools import PoolUnderTest, records
from tests.unit.readings import gpu_reading


@pytest.fixture
def child(children: Children, monkeypatch: pytest.MonkeyPatch) -> Child:
    monkeypatch.setattr(guard, "YOUNGEST_S", 0.0)
    return children.start()


@pytest.fixture
def bench(tmp_path: Path, children: Children, child: Child) -> Bench:
    bench = Bench(tmp_path, children)
    child.gpu = bench.gpu
    return bench


class Agent:
    """The keeper of an agent, over the same journal as the terminal's."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.disk = bench, ActionStore(bench.data / "acts.db")
        self.store = RepairStore(ActionJournal(self.disk))
        self.keeper = RepairKeeper(self.store, boot_id(), ActionLock(bench.data), lambda: None)
        self.polled: list[RepairsNow] = []

    def round(self, is_used: bool | None = None) -> tuple[GpuRepair, ...]:
        if is_used is not None:
            fresh = self.bench.children.fresh(1.0)
            assert fresh is not None
            tasks = TaskTable(boot_id()).describe(fresh.processes) if is_used else ()
            self.keeper.observe(tasks, [self.bench.facts])
        self.keeper.changed()
        self.keeper.step(time.monotonic())
        wait_for(lambda: self.keeper.is_idle)
        self.polled += self.keeper.poll()
        return self.polled[-1].repairs


@pytest.fixture
def agent(bench: Bench) -> Iterator[Agent]:
    agent = Agent(bench)
    yield agent
    agent.keeper.close()
    agent.disk.close()


def test_a_cordon_is_on_disk_shown_and_taken_back(bench: Bench, agent: Agent, child: Child) -> None:
    assert agent.round() == ()
    with bench.here() as here:
        look = shown(here, Cordon(bench.gpu))
        assert (look.changes[0].before, look.changes[0].after) == ("in service", "cordoned")
        assert [bystander.process.pid for bystander in look.bystanders] == [child.pid]
        assert agent.round() == (), "looking changes nothing"
        assert here.act(look, "fan noise", "ada").state == "done"
        [repair] = agent.round()
        assert (repair.state, repair.by, repair.reason) == ("cordoned", "ada", "fan noise")
        assert codes(here, Cordon(bench.gpu)) == ["setting"], "it is already"
        assert codes(here, ReturnToService(WHOLE_NODE)) == ["setting"]
        assert done(here, ReturnToService(bench.gpu)).state == "done"
        assert codes(here, ReturnToService(bench.gpu)) == ["setting"]
    assert agent.round() == ()
    assert child.is_alive()


def test_a_board_that_is_not_here_is_refused(bench: Bench) -> None:
    with bench.here() as here:
        assert codes(here, Cordon("GPU-nobody")) == ["setting"]


def test_the_ceiling_and_a_hold_stop_it(bench: Bench) -> None:
    with bench.here(actions=["end"]) as here:
        assert codes(here, Cordon(bench.gpu)) == ["type"]
    (bench.data / "hold").write_text("maintenance\n")
    with bench.here() as here:
        assert codes(here, Cordon(bench.gpu)) == ["hold"]


def test_a_drain_ends_when_its_tasks_have_and_ends_none(bench: Bench, agent: Agent, child: Child
                                                        ) -> None:
    with bench.here() as here:
        reply = done(here, Drain(bench.gpu, 600.0))
    assert reply.state == "done"
    assert "1 owner" in reply.step
    assert [repair.state for repair in agent.round(is_used=True)] == ["draining"]
    assert child.is_alive()
    assert [repair.state for repair in agent.round(is_used=False)] == ["drained"]
    # Somebody comes who asks no pool.
    assert [repair.state for repair in agent.round(is_used=True)] == ["draining"]
    with bench.here() as here:
        assert done(here, Cordon(bench.gpu)).state == "done", "the drain is called off"
    assert [repair.state for repair in agent.round(is_used=False)] == ["cordoned"]


def test_without_a_list_of_tasks_nothing_is_empty(bench: Bench, agent: Agent) -> None:
    with bench.here() as here:
        done(here, Drain(bench.gpu, 600.0))
    assert [repair.state for repair in agent.round()] == ["draining"]


def test_the_whole_node_drains_when_no_board_is_used(bench: Bench, agent: Agent) -> None:
    with bench.here() as here:
        assert done(here, Drain(WHOLE_NODE, 600.0)).state == "done"
        assert [repair.state for repair in agent.round(is_used=True)] == ["draining"]
        assert [repair.state for repair in agent.round(is_used=False)] == ["drained"]
        [refusal] = shown(here, ReturnToService(bench.gpu)).refusals
        assert "return the node" in refusal.sentence
        assert done(here, ReturnToService(WHOLE_NODE)).state == "done"
    assert agent.round() == ()


def test_the_pool_gives_out_nothing_that_is_out_of_service(bench: Bench, agent: Agent) -> None:
    part = GpuFacts("MIG-1", 0, "part", parent_uuid="GPU-2")
    facts = [bench.facts, GpuFacts("GPU-2", 1, "split"), part]
    snapshot = PoolSnapshot(pool_gpus(
        facts, (), [gpu_reading(uuid) for uuid in (bench.gpu, "GPU-2", "MIG-1")], ()), ())

    def offered() -> dict[str, PoolGpu]:
        return with_reasons(snapshot, agent.store.all_or_closed(), "", (), (), "")

    assert {uuid for uuid, gpu in offered().items() if not gpu.trouble} == {bench.gpu, "MIG-1"}
    with bench.here() as here:
        done(here, Cordon(bench.gpu), "fan noise")
    closed = offered()
    assert "fan noise" in closed[bench.gpu].trouble
    assert closed["MIG-1"].trouble == ""
    agent.store.keep(GpuRepair("GPU-2", "needs_reboot", "ada", "", 0.0, 0.0, boot_id()))
    assert offered()["MIG-1"].trouble != "", "as its board"
    agent.store.keep(GpuRepair(WHOLE_NODE, "cordoned", "ada", "", 0.0, 0.0, boot_id()))
    assert all(gpu.trouble for gpu in offered().values())


def test_a_journal_that_cannot_be_read_gives_nothing_out(bench: Bench, agent: Agent,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = PoolSnapshot(pool_gpus([bench.facts], (), [gpu_reading(bench.gpu)], ()), ())

    def broken(_name: str) -> str:
        raise JournalError("the disk is full")

    monkeypatch.setattr(agent.store._journal, "fact", broken)
    assert "the disk is full" in with_reasons(
        snapshot, agent.store.all_or_closed(), "", (), (), "")[bench.gpu].trouble
    assert agent.round()[0].gpu_uuid == WHOLE_NODE
    assert agent.polled[-1].trouble == "the disk is full"


@pytest.mark.parametrize(("fact", "text"), [
    (Fact.REPAIRS, "}{"), (Fact.REPAIRS, '[{"gpu_uuid": "GPU-1", "state": "sold"}]'),
    (Fact.RESETS, "}{")])
def test_what_is_not_understood_is_forgotten_by_returning_the_node(
        bench: Bench, agent: Agent, fact: Fact, text: str) -> None:
    other = GpuRepair("GPU-other", "cordoned", "ada", "fan noise", 0.0, 0.0, boot_id())
    with bench.here() as here:
        assert done(here, Cordon(bench.gpu)).state == "done", "a journal is there"
        assert done(here, ReturnToService(bench.gpu)).state == "done"
    journal = ActionJournal(agent.disk)
    agent.store.keep(other)
    if fact == Fact.REPAIRS and text[0] == "[":
        text = f"[{text[1:-1]}, {msgspec.json.encode(other).decode()}]"
    journal.keep(fact, text)
    with bench.here() as here:
        for setting in (Cordon(bench.gpu), ReturnToService(bench.gpu)):
            [refusal] = shown(here, setting).refusals
            assert refusal.code == "journal"
            assert "gpudeck node return" in refusal.sentence
        if fact == Fact.REPAIRS:
            assert "gpudeck node return" in agent.round()[0].sentence
        look = shown(here, ReturnToService(WHOLE_NODE))
        assert (look.refusals, look.changes[0].after) == ((), "in service")
        assert "is not understood" in look.warnings[0]
        assert here.act(look, "a new agent", "ada").state == "done"
        assert done(here, Cordon(bench.gpu)).state == "done"
    uuids = {repair.gpu_uuid for repair in agent.round()}
    assert uuids == {bench.gpu} | ({"GPU-other"} if text != "}{" or fact == Fact.RESETS else set())
    unread_records = [record for record in records(bench.data / "acts.db")
                      if record.get("kind") == f"{fact.value}_unread"]
    assert [(record["unread"], record["ended_by"]) for record in unread_records] == [(text, "ada")]


def test_a_cordon_counts_in_the_pool_at_once(tmp_path: Path) -> None:
    pool = PoolUnderTest(tmp_path)
    try:
        assert [gpu.trouble for gpu in pool.service.gpus().values()] == ["", ""]
        pool.repairs = (GpuRepair("GPU-1", "cordoned", "ada", "fan noise", 0.0, 0.0, "boot"),)
        gpus = pool.service.gpus()
        assert gpus["GPU-0"].trouble == ""
        assert "fan noise" in gpus["GPU-1"].trouble
        claim = Claim(id="c1", owner="alice", gpus=1, submitted_at=0.0, term_s=60.0)
        refusal = pool.service.leases.grant(claim, ("GPU-1",), gpus, NOT_COUNTED, 0, is_run=False)
        assert isinstance(refusal, str)
        assert "cordoned" in refusal
        assert not isinstance(pool.service.leases.grant(claim, ("GPU-0",), gpus, NOT_COUNTED, 0,
                                                          False), str)
    finally:
        pool.close()
