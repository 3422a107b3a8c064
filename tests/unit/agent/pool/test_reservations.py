"""Reservations of a machine without a hub, and how a hub that comes takes them over."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.journal.store import ActionJournal, ActionStore
from agent.pool.clock import PoolClock
from agent.pool.cores import NodeCores
from agent.pool.gpus import PoolSnapshot
from agent.pool.leases import NodeLeases
from agent.pool.lock import PoolGpu
from agent.pool.mps_look import MpsProbe
from agent.pool.requests import READ_WITHIN_S, PoolRequests
from agent.pool.reservations import MOST, NodeReservations
from agent.pool.service import NO_HUB, PoolService, read_disk
from agent.pool.shares import MpsFacts
from agent.pool.signs import ProcessSigns
from agent.pool.store import LeaseStore
from gpudeck.contract.pool_link import ClaimStanding, PoolPlan
from gpudeck.contract.pool_messages import (
    AskClaim,
    CancelClaim,
    ClaimCancelled,
    ClaimRefused,
    Extend,
    FromUser,
    Leased,
    PoolShown,
    Reserved,
    ShowPool,
)
from gpudeck.measures.availability import GpuConditions
from gpudeck.pool.core.claim_limits import USER
from gpudeck.pool.core.reservations import UNREAD_MOST_S
from gpudeck.pool.core.schedule import PoolPolicy
from tests.fakes.people import QuietPeople

HOUR_S = 3_600.0
EPOCH = 1_900_000_000.0


class Asker:
    """Somebody at the socket."""

    def __init__(self, uid: int = 1_000, owner: str = "ann") -> None:
        self.uid, self.owner, self.peer_pid = uid, owner, 1
        self.replies: list[object] = []

        self.is_open = True

    def send(self, message: object) -> None:
        self.replies.append(message)

    def hang_up(self) -> None:
        self.is_open = False


class Machine:
    """A node of four GPUs, whose agent and whose machine can be started again."""

    def __init__(self, folder: Path, is_local: bool = True) -> None:
        self.now = random.uniform(10.0, 1e6)
        self.utc_of_boot = EPOCH - self.now
        self.store = ActionStore(folder / "acts.db", durable=False)
        self.is_local, self.boot = is_local, "boot"
        self.people = QuietPeople()
        self.start()

    def start(self) -> None:
        clock = PoolClock(lambda: self.now, lambda: self.now + self.utc_of_boot)
        self.journal = journal = ActionJournal(self.store)
        self.reservations = NodeReservations(journal, "n1", clock)
        self.leases = NodeLeases(LeaseStore(journal, self.boot), clock, ProcessSigns(),
                                 NodeCores())
        self.service = PoolService(
            "n1", "n1", self.leases, self.reservations, PoolPolicy(), clock,
            MpsProbe(lambda: MpsFacts(()), clock.now), self.is_local, lambda: None, self.people,
            lambda: "", lambda: (), dict)
        read_disk(self.service)
        self.set_trouble(())
        self.requests = PoolRequests(self.service)

    def set_trouble(self, uuids: tuple[str, ...]) -> None:
        self.service.snapshot = PoolSnapshot({
            uuid: PoolGpu(uuid, "H100", index, False, 0, None, 80 * 2**30,
                          "it is lost" if uuid in uuids else "")
            for index, uuid in enumerate(("a", "b", "c", "d"))}, ())

    def restart(self) -> None:
        """Restart the machine: its clock begins at 0."""
        self.utc_of_boot += self.now - 1.0
        self.now, self.boot = 1.0, self.boot + "'"
        self.start()

    def handle(self, user: Asker, message: FromUser) -> None:
        self.requests.handle(user, message, None)  # type: ignore[arg-type]

    def ask(self, user: Asker, gpus: int, in_s: float | None = None, term_s: float = HOUR_S,
            name: str = "") -> object:
        starts_at = None if in_s is None else self.now + self.utc_of_boot + in_s
        claim_id = name or f"c{random.getrandbits(60)}"
        self.handle(user, AskClaim(claim_id, False, gpus, term_s=term_s, starts_at=starts_at))
        return user.replies[-1] if user.replies else None

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.service.step()

    def show(self) -> PoolShown:
        user = Asker()
        self.handle(user, ShowPool())
        [reply] = user.replies
        assert isinstance(reply, PoolShown)
        return reply


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.store.close()


def test_it_is_kept_and_begins_at_its_time(machine: Machine) -> None:
    ann, bob = Asker(), Asker(1_001, "bob")
    reserved = machine.ask(ann, 3, in_s=HOUR_S, name="r")
    assert isinstance(reserved, Reserved)
    assert (reserved.claim_id, len(reserved.gpus)) == ("r", 3)
    [row] = machine.show().waiting
    assert (row.claim_id, row.owner, row.why) == (
        "r", "ann", "reserved for a later time")
    # What ends before it may have its GPUs; what does not gets the fourth.
    short = machine.ask(bob, 3, term_s=HOUR_S / 2)
    assert isinstance(short, Leased)
    assert isinstance(machine.ask(Asker(1_001, "bob"), 1, term_s=2 * HOUR_S), Leased)
    late = Asker(1_001, "bob")
    machine.ask(late, 1, term_s=2 * HOUR_S)
    assert not any(isinstance(reply, Leased) for reply in late.replies)
    machine.leases.end(machine.leases.all[short.lease_id], "given back")
    machine.ask(late, 1, term_s=2 * HOUR_S)
    assert not any(isinstance(reply, Leased) for reply in late.replies), "it would last too long"
    machine.requests.drop_user(late)  # type: ignore[arg-type]
    machine.pass_by(HOUR_S + 1)
    lease = machine.leases.all["r"]
    assert (lease.claim.owner, lease.uid, lease.is_run) == ("ann", 1_000, False)
    assert set(lease.uuids) == {gpu.uuid for gpu in reserved.gpus}
    assert len(machine.reservations) == 0


def test_what_is_taken_then_says_from_when_on_it_is_not(machine: Machine) -> None:
    machine.ask(Asker(), 3, in_s=HOUR_S)
    refusal = machine.ask(Asker(), 2, in_s=1.5 * HOUR_S)
    assert isinstance(refusal, ClaimRefused)
    assert "not enough matching GPUs are free for all of that time; they are from" in refusal.why
    assert isinstance(machine.ask(Asker(), 2, in_s=2 * HOUR_S), Reserved)
    for in_s, why in ((-5.0, "in the past"), (91 * 86_400.0, "90 days")):
        answer = machine.ask(Asker(), 1, in_s=in_s)
        assert isinstance(answer, ClaimRefused)
        assert why in answer.why


def test_it_outlives_agent_and_machine_and_a_clock_that_was_set(machine: Machine) -> None:
    reserved = machine.ask(Asker(), 2, in_s=HOUR_S, name="r")
    assert isinstance(reserved, Reserved)
    machine.start()
    assert machine.show().waiting[0].claim_id == "r"
    machine.now += HOUR_S / 2
    machine.restart()
    machine.pass_by(HOUR_S / 2 - 60)
    assert "r" not in machine.leases.all
    machine.pass_by(61)
    assert set(machine.leases.all["r"].uuids) == {gpu.uuid for gpu in reserved.gpus}


def test_it_is_cancelled_by_its_owner_or_root_alone(machine: Machine) -> None:
    machine.ask(Asker(), 4, in_s=HOUR_S, name="r")
    bob, root = Asker(1_001, "bob"), Asker(0, "root")
    machine.handle(bob, CancelClaim("r"))
    assert bob.replies == [ClaimRefused("reservation r is of ann")]
    machine.handle(root, CancelClaim("r"))
    assert root.replies == [ClaimCancelled()]
    machine.start()
    assert len(machine.reservations) == 0


def test_it_moves_from_a_gpu_that_is_not_well_in_time(machine: Machine) -> None:
    reserved = machine.ask(Asker(), 2, in_s=HOUR_S, name="r")
    assert isinstance(reserved, Reserved)
    lost_uuid = reserved.gpus[0].uuid
    machine.set_trouble((lost_uuid,))
    machine.pass_by(60)
    machine.pass_by(HOUR_S - 120)
    [booking] = machine.reservations.bookings()
    assert lost_uuid not in {uuid for _, uuid in booking.gpus}
    machine.pass_by(120)
    assert lost_uuid not in machine.leases.all["r"].uuids


def test_what_never_got_its_gpus_is_over_with_its_time(machine: Machine) -> None:
    machine.ask(Asker(), 4, in_s=HOUR_S, name="r")
    machine.set_trouble(("a",))
    machine.pass_by(HOUR_S + 60)
    [row] = machine.show().waiting
    assert row.why == "it is due; its GPUs are not free yet"
    machine.pass_by(HOUR_S)
    assert machine.show().waiting == ()
    assert "r" not in machine.leases.all


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_hub_that_comes_takes_it_over_or_its_owner_hears_of_it(machine: Machine, is_kept: bool
                                                               ) -> None:
    machine.ask(Asker(), 2, in_s=HOUR_S, name="r")
    service = machine.service
    service.connected()
    [report] = service.poll()
    [claim] = report.claims
    assert (claim.claim.id, claim.claim.starts_at) == ("r", EPOCH + HOUR_S)
    service.receive(PoolPlan(standings=(ClaimStanding("r", 1, "it is being looked at"),)))
    assert len(machine.reservations) == 1, "the hub has not said that it keeps it"
    service.receive(PoolPlan(standings=(ClaimStanding(
        "r", 1, "", kept=("a", "b") if is_kept else (),
        never="" if is_kept else "not enough matching GPUs"),)))
    assert len(machine.reservations) == 0
    assert [*machine.people.at_terminals] == ([] if is_kept else [
        "your reservation r is off: not enough matching GPUs"])


@pytest.mark.parametrize(("conditions", "words"), [
    (GpuConditions(is_unread=True), "have not been read yet"),
    (GpuConditions(is_stale=True), "try again in some seconds"),
    (GpuConditions(is_lost=True), "not enough matching GPUs are free")])
def test_for_what_has_not_been_read_it_is_too_early(
        machine: Machine, conditions: GpuConditions, words: str) -> None:
    snapshot = machine.service.snapshot
    assert snapshot is not None
    machine.service.snapshot = replace(snapshot, gpus={
        uuid: replace(gpu, read=conditions if uuid in "ab" else gpu.read)
        for uuid, gpu in snapshot.gpus.items()})
    refusal = machine.ask(Asker(), 3, in_s=HOUR_S)
    assert isinstance(refusal, ClaimRefused)
    assert words in refusal.why
    assert isinstance(machine.ask(Asker(), 2, in_s=HOUR_S), Reserved), "of those that were read"


@pytest.mark.parametrize("is_asked_before", [False, True])
def test_what_is_never_read_counts_as_not_free(
        machine: Machine, is_asked_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.pool.requests.READ_WITHIN_S", 0.0)
    machine.start()
    snapshot = machine.service.snapshot
    assert snapshot is not None
    machine.service.snapshot = replace(snapshot, tasks=None)
    machine.pass_by(1.0)
    if is_asked_before:
        answer = machine.ask(Asker(), 3, in_s=HOUR_S)
        assert isinstance(answer, ClaimRefused)
        assert "try again in some seconds" in answer.why
    machine.pass_by(UNREAD_MOST_S)
    answer = machine.ask(Asker(), 3, in_s=HOUR_S)
    assert isinstance(answer, ClaimRefused)
    assert answer.why == "not enough matching GPUs are free for all of that time"
    machine.service.snapshot = snapshot
    machine.pass_by(1.0)
    assert isinstance(machine.ask(Asker(), 3, in_s=HOUR_S), Reserved)


def test_whose_agent_leases_nothing_by_itself_reserves_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.pool.requests.READ_WITHIN_S", 0.0)
    machine = Machine(tmp_path, is_local=False)
    assert machine.ask(Asker(), 1, in_s=HOUR_S) == ClaimRefused(NO_HUB)
    machine.store.close()


def test_right_after_its_start_it_waits_for_the_hub_to_decide(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, ann = Machine(tmp_path, is_local=False), Asker()
    monkeypatch.setattr("time.sleep", lambda seconds: machine.service.receive(PoolPlan()))
    machine.ask(ann, 1, in_s=HOUR_S, name="r")
    assert machine.service.waiting.all.keys() == {"r"}
    assert not ann.replies
    machine.store.close()


def test_long_after_its_start_it_waits_for_no_hub(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(tmp_path, is_local=False), time.monotonic
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        machine.service.receive(PoolPlan())

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: clock() + READ_WITHIN_S)
    assert machine.ask(Asker(), 1, in_s=HOUR_S) == ClaimRefused(NO_HUB)
    assert not sleeps
    machine.store.close()


def test_what_waits_for_a_later_time_keeps_nobody_from_extending(machine: Machine) -> None:
    ann, bob = Asker(), Asker(1_001, "bob")
    grant = machine.ask(ann, 4, term_s=HOUR_S)
    assert isinstance(grant, Leased)
    machine.service.receive(PoolPlan())
    machine.ask(bob, 1, in_s=HOUR_S / 2, name="r")
    assert machine.service.waiting.all.keys() == {"r"}
    until = machine.leases.all[grant.lease_id].until
    machine.handle(ann, Extend(grant.lease_id, 60.0))
    assert machine.leases.all[grant.lease_id].until == until + 60.0
    machine.now += HOUR_S / 2 + 1
    machine.handle(ann, Extend(grant.lease_id, 60.0))
    refusal = ann.replies[-1]
    assert isinstance(refusal, ClaimRefused)
    assert "others wait for GPUs" in refusal.why


def test_there_is_an_end_to_how_many(machine: Machine) -> None:
    for number in range(MOST):
        whose = Asker(1_000 + number // USER.waiting, f"u{number // USER.waiting}")
        assert isinstance(machine.ask(whose, 4, in_s=HOUR_S * (1 + number)), Reserved)
    answer = machine.ask(Asker(7), 4, in_s=HOUR_S * (2 + MOST))
    assert answer == ClaimRefused(f"there are {MOST} reservations already")
    answer = machine.ask(Asker(1_000, "u0"), 4, in_s=HOUR_S * (2 + MOST))
    assert answer == ClaimRefused(f"{USER.waiting} claims of u0 wait already: withdraw one first")
