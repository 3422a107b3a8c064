"""Leases on disk that are not understood: nothing is leased, nobody accused, root can end them."""

from pathlib import Path

import pytest

from agent.journal.facts import Fact
from agent.journal.store import JournalError
from agent.pool.store import LeaseStore
from gpudeck.contract.pool_messages import Bind, ClaimRefused, GiveBack, Leased, LeaseEnded

from .test_reservations import Asker, Machine


@pytest.mark.parametrize("text", ["}{", '{"boot_id": "boot", "leases": [{"id": "x"}]}'])
def test_nothing_is_leased_until_root_says_that_nothing_runs(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path)
    machine.journal.keep(Fact.POOL_LEASES, text)
    machine.start()
    ann, root = Asker(), Asker(0, "root")
    refusal = machine.ask(ann, 1)
    assert isinstance(refusal, ClaimRefused)
    assert "are not understood" in refusal.why
    assert {gpu.why for gpu in machine.show().unavailable} == {machine.service.leases.trouble}
    [report] = machine.service.poll()
    assert not any(not gpu.trouble for gpu in report.gpus)
    machine.handle(ann, GiveBack("unread"))
    assert isinstance(ann.replies[-1], ClaimRefused)
    machine.handle(root, GiveBack("unread"))
    assert isinstance(root.replies[-1], LeaseEnded)
    assert not machine.show().unavailable
    machine.ask(ann, 1)
    machine.pass_by(1.0)
    assert len(machine.service.leases.all) == 1
    machine.store.close()


def test_who_has_a_lease_is_not_told_that_it_has_ended_before_the_disk_is_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    ann = Asker()
    lease = machine.ask(ann, 1)
    assert isinstance(lease, Leased)

    def fails(store: LeaseStore) -> None:
        raise JournalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(LeaseStore, "read", fails)
        machine.start()
        for message in (Bind(lease.lease_id), GiveBack(lease.lease_id)):
            asker = Asker()
            machine.handle(asker, message)
            assert (asker.replies, asker.is_open) == ([], False), "it asks again"
    machine.pass_by(1.0)
    machine.handle(ann, GiveBack(lease.lease_id))
    assert isinstance(ann.replies[-1], LeaseEnded)
    machine.store.close()
