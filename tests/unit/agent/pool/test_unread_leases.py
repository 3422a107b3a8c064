"""Leases on disk that are not understood: nothing is leased, nobody accused, root can end them."""

from pathlib import Path

import pytest

from agent.journal.facts import Fact
from gpudeck.contract.pool_messages import ClaimRefused, GiveBack, LeaseEnded

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
