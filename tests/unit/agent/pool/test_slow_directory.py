"""A directory service that does not answer: the pool of the node goes on meanwhile."""

import getpass
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.pool.queue import GROUPS_UNKNOWN
from agent.tasks import user_table
from gpudeck.contract.pool_link import LeaseOffer, PoolPlan
from gpudeck.pool.core.claims import Claim
from tests.fakes.hub import wait_for
from tests.patience import GIVE_UP_S

from .test_reservations import Asker, Machine

ME = getpass.getuser()
OFFER = LeaseOffer("made at the hub", ("a",), Claim(
    id="made at the hub", owner=ME, gpus=1, submitted_at=0.0))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold back the answers of the user table until this is set."""
    answers = threading.Event()
    for name in ("uid_of", "groups_of"):
        look = getattr(user_table, name)
        monkeypatch.setattr(user_table, name, lambda key, look=look: (
            answers.wait(GIVE_UP_S), look(key))[1])
    yield answers
    answers.set()


def test_it_is_not_waited_for_under_the_lock(tmp_path: Path, answers: threading.Event) -> None:
    machine = Machine(tmp_path)
    machine.ask(Asker(os.getuid(), ME), 1)
    machine.service.receive(PoolPlan((OFFER,)))
    for _ in range(3):
        [report] = machine.service.poll()
        assert (report.groups, report.refused) == ({}, {})
        machine.service.connected()
        machine.service.receive(PoolPlan((OFFER,)))
        machine.pass_by(1.0)
        assert len(machine.show().held) == 1, "that of the user at the node"
    answers.set()

    def is_granted() -> bool:
        machine.pass_by(1.0)
        return OFFER.claim_id in machine.service.leases.all

    wait_for(is_granted)
    assert machine.service.leases.all[OFFER.claim_id].uid == os.getuid()
    wait_for(lambda: any(report.groups == {ME: user_table.groups_of(os.getuid())}
                         for report in machine.service.poll()))
    machine.store.close()


def test_who_claimed_before_there_was_a_hub_gets_nothing_by_it_before_their_groups_are_known(
        tmp_path: Path, answers: threading.Event) -> None:
    machine = Machine(tmp_path)
    for gpus in (4, 1):
        machine.ask(Asker(os.getuid(), ME), gpus)
    machine.service.connected()
    [report] = machine.service.poll()
    assert [entry.paused for entry in report.claims] == [GROUPS_UNKNOWN]
    answers.set()
    wait_for(lambda: any(
        [entry.paused for entry in report.claims] == [""]
        and report.groups == {ME: user_table.groups_of(os.getuid())}
        for report in machine.service.poll()))
    machine.store.close()


def test_who_claims_under_a_hub_waits_alone_and_is_reported_with_their_groups(
        tmp_path: Path, answers: threading.Event) -> None:
    machine = Machine(tmp_path)
    machine.service.receive(PoolPlan())
    claims = threading.Thread(target=machine.ask, args=(Asker(os.getuid(), ME), 1))
    claims.start()
    assert machine.show().waiting == ()
    [report] = machine.service.poll()
    assert report.claims == ()
    answers.set()
    claims.join(GIVE_UP_S)
    [report] = machine.service.poll()
    assert [entry.claim.owner for entry in report.claims] == [ME]
    assert report.groups == {ME: user_table.groups_of(os.getuid())}
    machine.store.close()
