"""Scans of all processes without the pool's lock: what becomes of a lease during one counts more
than what the scan saw."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.pool.lock import LeasedProcess, Marks, NodeLease, ProcessKey
from agent.pool.marks import SCAN_EVERY_S, LeaseMarks
from agent.pool.signs import ProcessSigns
from gpudeck.contract.pool_messages import ClaimRefused, GiveBack, Leased, LeaseEnded, UseLease

from .test_lock import lease
from .test_reservations import Asker, Machine

COMMAND = LeasedProcess(10, 77, None)
ORPHAN = 20, 78


class Scanned(ProcessSigns):
    """`on_scan`: called while all processes are looked through; none has a mark."""

    def __init__(self, on_scan: Callable[[], None]) -> None:
        self.on_scan = on_scan

    def marked(self, uids: Mapping[str, int], roots: Mapping[str, Collection[ProcessKey]],
               proc: Path = Path()) -> Marks:
        marks = {lease_id: {*roots.get(lease_id, ())} for lease_id in uids}
        self.on_scan()
        return marks


class Leases:
    """Leases of a node, and their marks."""

    def __init__(self) -> None:
        self.all: dict[str, NodeLease] = {
            name: lease(name, uuid, is_run=False) for name, uuid in (("a", "G0"), ("b", "G1"))}
        self.now = 0.0
        self.signs = Scanned(lambda: None)
        self.marks = LeaseMarks(self.signs, lambda: self.all, lambda: self.now)

    def bind(self) -> None:
        self.all = {**self.all, "a": replace(self.all["a"], process=COMMAND)}
        self.marks.forget("a")

    def look(self, **orphans: Collection[ProcessKey]) -> None:
        self.marks.take(self.marks.scan(orphans))


@pytest.fixture
def leases() -> Leases:
    return Leases()


def test_a_process_that_is_bound_meanwhile_counts_until_the_next_scan(leases: Leases) -> None:
    leases.signs.on_scan = leases.bind
    leases.look()
    assert [leases.marks.count(leases.all[name]) for name in "ab"] == [1, 0]
    assert leases.marks.of("a") == ()
    leases.signs.on_scan = lambda: None
    leases.look()
    assert leases.marks.of("a") == {COMMAND.key}


def test_what_another_scan_has_found_meanwhile_stays(leases: Leases) -> None:
    leases.bind()

    def give_back() -> None:
        leases.signs.on_scan = lambda: None
        leases.look(a=[ORPHAN])

    leases.signs.on_scan = give_back
    leases.look()
    assert leases.marks.of("a") == {COMMAND.key, ORPHAN}


def test_of_leases_that_come_and_go_meanwhile_nothing_is_known(leases: Leases) -> None:
    leases.look()

    def change() -> None:
        leases.all = {"b": leases.all["b"], "c": lease("c", "G2")}

    leases.signs.on_scan = change
    leases.look()
    assert leases.marks.all.keys() == {"b"}
    assert leases.marks.count(leases.all["c"]) == 1


def test_it_is_due_each_few_seconds(leases: Leases) -> None:
    assert leases.marks.is_due
    leases.look()
    leases.now += SCAN_EVERY_S - 0.1
    assert not leases.marks.is_due
    leases.now += 0.2
    assert leases.marks.is_due


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.store.close()


def test_nobody_waits_while_all_processes_are_looked_through(machine: Machine) -> None:
    is_free: list[bool] = []

    def ask_elsewhere() -> None:
        def ask() -> None:
            is_free.append(machine.service.lock.acquire(timeout=0.1))
            if is_free[-1]:
                machine.service.lock.release()

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    ann = Asker()
    grant = machine.ask(ann, 1)
    assert isinstance(grant, Leased)
    machine.leases.marks = LeaseMarks(
        Scanned(ask_elsewhere), lambda: machine.leases.all, lambda: machine.now)
    machine.pass_by(SCAN_EVERY_S)
    machine.handle(ann, UseLease(grant.lease_id, is_run=True))
    machine.handle(ann, GiveBack(grant.lease_id))
    assert [type(reply) for reply in ann.replies] == [Leased, Leased, LeaseEnded]
    assert is_free == [True] * 3


def test_whose_lease_it_is_not_looks_through_nothing(machine: Machine) -> None:
    grant = machine.ask(Asker(), 1)
    assert isinstance(grant, Leased)
    scans: list[None] = []
    machine.leases.marks = LeaseMarks(
        Scanned(lambda: scans.append(None)), lambda: machine.leases.all, lambda: machine.now)
    bob = Asker(1_001, "bob")
    machine.handle(bob, GiveBack(grant.lease_id))
    machine.handle(bob, GiveBack("no-such-lease"))
    assert [type(reply) for reply in bob.replies] == [ClaimRefused] * 2
    assert not scans


class Ending(Scanned):
    """A command that ends right after it was asked for the first time, and leaves an orphan."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.answers = [False, True]

    def is_alive(self, process: LeasedProcess) -> bool:
        return self.answers.pop() if self.answers else False

    def marked(self, uids: Mapping[str, int], roots: Mapping[str, Collection[ProcessKey]],
               proc: Path = Path()) -> Marks:
        return {lease_id: {ORPHAN if not self.answers else COMMAND.key} for lease_id in uids}


def test_what_a_command_leaves_while_its_lease_is_given_back_keeps_it(machine: Machine) -> None:
    ann = Asker()
    grant = machine.ask(ann, 1)
    assert isinstance(grant, Leased)
    leases = machine.leases
    leases.put(replace(leases.all[grant.lease_id], process=COMMAND, is_run=True), {})
    leases.processes = signs = Ending()
    leases.marks = LeaseMarks(signs, lambda: leases.all, lambda: machine.now)
    machine.handle(ann, GiveBack(grant.lease_id))
    answer = ann.replies[-1]
    assert isinstance(answer, LeaseEnded)
    assert answer.state == "draining"
    assert leases.all[grant.lease_id].left == (ORPHAN,)


@pytest.mark.parametrize(("change", "uid"), [
    ({"given_back_at": 1.0, "is_run": True}, 1_000), ({"preempted": "others need it"}, 1_000),
    ({"state": "offered"}, 1_000), ({}, 0)])
def test_who_is_refused_again_and_again_stops_no_scans(
        machine: Machine, change: dict[str, Any], uid: int) -> None:
    grant = machine.ask(Asker(), 1)
    assert isinstance(grant, Leased)
    scans: list[None] = []
    leases = machine.leases
    leases.marks = LeaseMarks(
        Scanned(lambda: scans.append(None)), lambda: leases.all, lambda: machine.now)
    machine.pass_by(1.0)
    kept = leases.all[grant.lease_id]
    of_node = 0
    for _ in range(int(SCAN_EVERY_S) + 1):
        leases.put(replace(kept, **change), {})
        whoever = Asker(uid)
        machine.handle(whoever, UseLease(grant.lease_id, is_run=True))
        assert [type(reply) for reply in whoever.replies] == [ClaimRefused]
        before = len(scans)
        machine.pass_by(1.0)
        of_node += len(scans) - before
    assert of_node == 1
    assert len(scans) == 1 + of_node, "a request that is refused looks through nothing"


def test_a_scan_that_fails_is_not_tried_each_second(machine: Machine) -> None:
    scans: list[float] = []

    def fail() -> None:
        scans.append(machine.now)
        raise OSError("no descriptors")

    machine.leases.marks = LeaseMarks(
        Scanned(fail), lambda: machine.leases.all, lambda: machine.now)
    for _ in range(int(SCAN_EVERY_S) + 2):
        machine.pass_by(1.0)
    assert len(scans) == 2


def test_what_only_shows_a_lease_looks_through_nothing(machine: Machine) -> None:
    ann = Asker()
    grant = machine.ask(ann, 1)
    assert isinstance(grant, Leased)
    scans: list[None] = []

    def fail() -> None:
        scans.append(None)
        raise OSError("no descriptors")

    machine.leases.marks = LeaseMarks(
        Scanned(fail), lambda: machine.leases.all, lambda: machine.now)
    machine.handle(ann, UseLease(grant.lease_id, is_run=False))
    assert [type(reply) for reply in ann.replies] == [Leased, Leased]
    assert not scans


def test_of_scans_at_once_that_find_the_same_none_is_made_again(leases: Leases) -> None:
    leases.bind()
    leases.look()
    first, second = leases.marks.scan(), leases.marks.scan({"b": [ORPHAN]})
    leases.marks.take(first)
    assert all(second.is_of(lease, leases.marks.all) for lease in leases.all.values())
    leases.marks.take(second)
    assert leases.marks.of("b") == {ORPHAN}
    assert not first.is_of(leases.all["b"], leases.marks.all)
