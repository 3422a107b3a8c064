"""A lease whose work is suspended for another claim gives up its GPUs, and gets them again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.journal.leases import leases_of_gpus, waiting_leases
from agent.journal.store import ActionJournal, ActionStore
from agent.pool import views
from agent.pool.clock import PoolClock
from agent.pool.cores import NodeCores
from agent.pool.gpus import PoolSnapshot
from agent.pool.leases import NodeLeases
from agent.pool.lock import LeasedProcess, LeaseSigns, NodeLease, PoolGpu, review
from agent.pool.mps_look import MpsProbe
from agent.pool.queue import WaitingClaims, WaitingWithdrawals
from agent.pool.reservations import NodeReservations
from agent.pool.service import PoolService, read_disk
from agent.pool.shares import MpsFacts
from agent.pool.signs import ProcessSigns
from agent.pool.store import LeaseStore
from agent.pool.uses import misplaced_gpus
from agent.tasks.seen import GpuTask
from gpudeck.contract.pool_link import ClaimStanding, LeaseOffer, PoolPlan
from gpudeck.contract.suspensions import SuspendedTask, SuspensionState
from gpudeck.contract.wire import Task
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.host_resources import FreeHost
from gpudeck.pool.core.schedule import PoolPolicy
from tests.fakes.people import QuietPeople

GIB = 2**30
KEY = (4_242, 7)
TAKEN = "bob has asked for 1 GPU with priority 4"
HOST = FreeHost(16_000, 64 * GIB)


class SuspendingPool:
    """The pool of a node of two GPUs, and one process on both of them. `states`: of suspended
    processes; `by`: who has suspended them."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000.0
        self.states: dict[tuple[int, int], SuspensionState] = {}
        self.by = "pre-emption of a"
        self.store = ActionStore(folder / "acts.db", durable=False)
        self.people = QuietPeople()
        self.start()

    def start(self, is_local: bool = False) -> None:
        clock = PoolClock(lambda: self.now, lambda: self.now + 1e6)
        self.journal = ActionJournal(self.store)
        self.leases = NodeLeases(LeaseStore(self.journal, "boot"), clock, ProcessSigns(),
                                 NodeCores())
        self.service = PoolService(
            "n1", "n1", self.leases, NodeReservations(self.journal, "n1", clock), PoolPolicy(),
            clock, MpsProbe(lambda: MpsFacts(()), clock.now), is_local, lambda: None, self.people,
            lambda: "", lambda: (), lambda: {
                key: SuspendedTask("t1", "boot", (), state, 0.0, self.by)
                for key, state in self.states.items()})
        read_disk(self.service)
        self.see()

    def see(self) -> None:
        """List the process: with nothing on its GPUs while it is suspended, or may be."""
        is_away = KEY in self.states
        tasks = [GpuTask(Task("t1", *KEY, None, "ann", None, uid=1_000), uuid,
                         0.0 if is_away else 4.0 * GIB, None, "running", is_away)
                 for uuid in ("G0", "G1")]
        self.service.snapshot = PoolSnapshot({
            uuid: PoolGpu(uuid, "H100", index, False, 0, None, 80 * GIB, "")
            for index, uuid in enumerate(("G0", "G1"))}, tasks, host=HOST)

    def lease(self, name: str, *uuids: str) -> NodeLease:
        claim = Claim(id=name, owner="ann", gpus=len(uuids), submitted_at=10.0, cpu_milli=8_000,
                      is_preemptible=True, is_suspendable=True, hosts=("n1",))
        lease = NodeLease(id=name, claim=claim, uuids=uuids, uid=1_000, is_run=True, state="active",
                          since=self.now, until=self.now + 3_600.0, used_at=self.now,
                          process=LeasedProcess(*KEY, None))
        self.leases.put(lease, {"pool": "granted"})
        return lease

    def take(self, name: str = "a") -> None:
        """Take the GPUs of a lease: its work is suspended for somebody else."""
        self.service.receive(PoolPlan(preempt={name: TAKEN}))
        self.states[KEY] = "suspended"
        self.step()

    def step(self) -> None:
        self.see()
        self.service.suspended.step(self.leases.uses(self.service.snapshot))

    def offer(self, *uuids: str, name: str = "a") -> str:
        """Offer a lease its GPUs again; return why it does not take them."""
        self.service.receive(PoolPlan((LeaseOffer(name, uuids),)))
        return self.service.waiting.refusals.get(name, "")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[SuspendingPool]:
    pool = SuspendingPool(tmp_path)
    yield pool
    pool.store.close()


def test_it_gives_its_gpus_up_once_all_of_its_work_is_suspended(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.by = "ada"
    pool.states[KEY] = "suspended"
    pool.step()
    lease = pool.leases.all["a"]
    assert (lease.uuids, lease.home_gpus) == (("G0", "G1"), ()), "nobody has asked for them"
    pool.service.receive(PoolPlan(preempt={"a": TAKEN}))
    for state in ("suspending", "restoring", "cut_short"):
        pool.states[KEY] = state
        pool.step()
        assert pool.leases.all["a"].uuids, "it may be on its GPUs yet, or again"
    pool.states[KEY] = "suspended"
    pool.step()
    lease = pool.leases.all["a"]
    assert (lease.uuids, lease.home_gpus, lease.preempted) == ((), ("G0", "G1"), "")
    assert "its work is suspended" in str(pool.people.at_terminals)
    assert not leases_of_gpus(pool.journal, "boot")
    assert waiting_leases(pool.journal, "boot") == {"a"}
    pool.service.receive(PoolPlan(preempt={"a": TAKEN}))
    assert pool.leases.all["a"].preempted == "", "what was on its way changes nothing"


def test_another_process_on_its_gpus_keeps_them(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.service.receive(PoolPlan(preempt={"a": TAKEN}))
    pool.states[KEY] = "suspended"
    pool.see()
    snapshot = pool.service.snapshot
    assert snapshot is not None
    assert snapshot.tasks is not None
    other = GpuTask(Task("t2", 4_300, 9, None, "ann", None, uid=1_000), "G1", GIB, None, "running")
    pool.service.suspended.step(pool.leases.uses(replace(
        snapshot, tasks=(*snapshot.tasks, other))))
    assert pool.leases.all["a"].uuids == ("G0", "G1")


def test_its_hub_sees_a_claim_for_the_same_gpus_and_what_it_held(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.now += 600.0
    pool.take()
    report = pool.service.poll()[0]
    assert report.leases == ()
    [entry] = report.claims
    claim = entry.claim
    assert (claim.id, claim.home_gpus, claim.is_again, claim.gpus, claim.hosts) == (
        "a", ("G0", "G1"), True, 2, ())
    assert claim.submitted_at == 10.0 + 1e6, "its age"
    [end] = report.ended
    assert (end.state, end.uuids, end.ended_at - end.since) == ("preempted", ("G0", "G1"), 600.0)
    assert end.claim.id != "a", "the lease itself has not ended"


def test_it_gets_exactly_its_gpus_and_only_while_nobody_has_them(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.take()
    assert "other GPUs" in pool.offer("G0")
    pool.lease("b", "G0")
    assert pool.offer("G0", "G1") == "GPU 0 is leased"
    pool.leases.end(pool.leases.all["b"], "given back")
    pool.now += 50.0
    assert pool.offer("G1", "G0") == ""
    lease = pool.leases.all["a"]
    assert (lease.uuids, lease.since) == (("G0", "G1"), 1_050.0)
    assert pool.service.poll()[0].leases[0].state == "restoring"
    pool.step()
    assert pool.leases.all["a"].home_gpus, "it is suspended still"
    pool.states.clear()
    pool.step()
    assert pool.leases.all["a"].home_gpus == ()
    assert pool.service.poll()[0].leases[0].state == "active"


def test_it_outlives_the_agent_at_every_step(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.take()
    pool.start()
    assert pool.leases.all["a"].waits
    assert pool.offer("G0", "G1") == ""
    pool.start()
    assert (pool.leases.all["a"].uuids, pool.leases.all["a"].home_gpus) == (
        ("G0", "G1"), ("G0", "G1"))


def test_without_a_hub_it_gets_them_when_nobody_has_them(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.take()
    pool.lease("b", "G1")
    pool.service.disconnected()
    pool.service.schedule()
    assert pool.leases.all["a"].waits
    pool.leases.end(pool.leases.all["b"], "given back")
    pool.service.schedule()
    assert pool.leases.all["a"].uuids == ("G0", "G1")
    assert "gpudeck restore" in str(pool.people.at_terminals)


def test_a_node_that_decides_itself_gives_them_in_its_turn(pool: SuspendingPool) -> None:
    pool.start(is_local=True)
    pool.lease("a", "G0", "G1")
    pool.take()
    pool.service.disconnected()
    pool.service.schedule()
    assert pool.leases.all["a"].uuids == ("G0", "G1")


def test_its_cpus_are_counted_while_it_waits_and_it_ends_with_its_processes(
        pool: SuspendingPool) -> None:
    lease = pool.lease("a", "G0", "G1")
    pool.take()
    assert HOST.after_grants([pool.leases.all["a"].claim]).cpu_milli == 8_000
    report = views.report((), WaitingClaims(), (), pool.leases.all.values(), (), (),
                          WaitingWithdrawals(), lambda uid: (), "", HOST, "", lambda own: own)
    assert report.claims[0].claim.cpu_milli == 8_000
    waits = pool.leases.all["a"]
    no_signs = LeaseSigns(is_connected=False, is_alive=False, marked=0, on_gpus=None)
    assert review(waits, replace(no_signs, is_alive=True), 0.0, 900.0, 1e9).lease is waits
    assert review(waits, no_signs, 0.0, 900.0, 1e9).why == "its processes have ended"
    ends = len(pool.leases.ended_leases)
    pool.leases.end(waits, "its processes have ended")
    assert len(pool.leases.ended_leases) == ends, "what it held was reported before"
    assert lease.id not in pool.leases.all


def test_its_users_read_its_place_in_the_queue(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.take()
    pool.service.receive(PoolPlan(standings=(ClaimStanding("a", 3, "0 of 2 are free", 60.0),)))
    view = views.pool_view("n1", pool.service.gpus(), pool.leases.all.values(), WaitingClaims(),
                           pool.service.suspended.standings, (), (), HOST, pool.now,
                           lambda own: own)
    assert view.held == ()
    [waits] = view.waiting
    assert (waits.claim_id, waits.place, waits.why, waits.wait_s) == (
        "a", 3, "0 of 2 are free", 60.0)


def test_what_was_suspended_for_nobody_comes_back(pool: SuspendingPool) -> None:
    """The claim that wanted its GPUs is gone while its work is suspended for that."""
    pool.lease("a", "G0", "G1")
    pool.service.receive(PoolPlan(preempt={"a": TAKEN}))
    pool.states[KEY] = "suspending"
    pool.step()
    pool.service.receive(PoolPlan())
    pool.states[KEY] = "suspended"
    pool.step()
    assert pool.leases.all["a"].uuids == ("G0", "G1")
    [lease] = pool.service.poll()[0].leases
    assert (lease.state, lease.task_ids) == ("restoring", ("t1",)), "its hub restores it"
    pool.states.clear()
    pool.step()
    assert pool.service.poll()[0].leases[0].state == "active"


def test_what_the_driver_lists_still_gives_no_gpu_up(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.service.receive(PoolPlan(preempt={"a": TAKEN}))
    pool.see()
    pool.states[KEY] = "suspended"
    pool.service.suspended.step(pool.leases.uses(pool.service.snapshot))
    assert pool.leases.all["a"].uuids == ("G0", "G1"), "its memory is there"
    pool.step()
    assert pool.leases.all["a"].waits


def test_a_claim_without_a_command_waits_as_long_as_its_work_is_suspended(
        pool: SuspendingPool) -> None:
    """Processes on its GPUs are its one sign of use."""
    lease = pool.lease("a", "G0", "G1")
    pool.leases.put(replace(lease, is_run=False, process=None), {"pool": "granted"})
    pool.take()
    pool.service.step()
    assert pool.leases.all["a"].waits
    pool.leases.put(replace(pool.lease("b", "G0"), process=None), {"pool": "granted"})
    pool.see()
    assert "t1" not in str(pool.service.poll()[0].leases), "it may be of either"
    pool.leases.end(pool.leases.all["b"], "given back")
    pool.states.clear()
    snapshot = pool.service.snapshot
    assert snapshot is not None
    pool.service.snapshot = replace(snapshot, tasks=())
    pool.service.step()
    assert "a" not in pool.leases.all, "its work has ended"


def test_a_process_that_runs_on_gpus_it_gave_up_is_misplaced(pool: SuspendingPool) -> None:
    pool.lease("a", "G0", "G1")
    pool.take()
    leases = list(pool.leases.all.values())

    def misplaced() -> tuple[str, ...]:
        uses = pool.leases.uses(pool.service.snapshot)
        assert uses is not None
        return misplaced_gpus(leases[0], uses, leases)

    assert misplaced() == (), "its suspended work is on none"
    snapshot = pool.service.snapshot
    assert snapshot is not None
    pool.service.snapshot = replace(snapshot, tasks=[
        GpuTask(Task("t1", *KEY, None, "ann", None, uid=1_000), "G1", GIB, None, "running")])
    assert misplaced() == ("G1",)
