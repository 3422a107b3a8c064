"""Turns on a machine without a hub go by what each owner had, whatever was started again since."""

from pathlib import Path

import pytest

from agent.journal.facts import Fact
from tests.unit.agent.pool.test_reservations import HOUR_S, Asker, Machine

GPUS = 4


def hold(machine: Machine, owner: str, hours: float) -> None:
    """Lease all GPUs to an owner for a while."""
    machine.ask(Asker(hash(owner) % 1_000 + 1_000, owner), GPUS, name=f"of-{owner}")
    machine.now += hours * HOUR_S
    machine.leases.end(machine.leases.all[f"of-{owner}"], "given back")


@pytest.mark.parametrize("restart", ["nothing", "agent", "machine"])
def test_who_had_more_waits_whatever_started_again(tmp_path: Path, restart: str) -> None:
    """Leases that had ended before the agent's start counted nothing."""
    machine = Machine(tmp_path)
    hold(machine, "ann", 5.0)
    hold(machine, "bob", 1.0)
    before = machine.leases.past_usage.sums(machine.now)
    if restart == "agent":
        machine.start()
    elif restart == "machine":
        machine.restart()
    assert machine.leases.past_usage.sums(machine.now) == pytest.approx(before, rel=1e-4)
    machine.ask(Asker(1_999, "cyd"), GPUS, name="now")
    for number, owner in enumerate(("ann", "bob"), 1):
        machine.ask(Asker(1_000 + number, owner), GPUS, name=f"next-{owner}")
    machine.leases.end(machine.leases.all["now"], "given back")
    machine.service.schedule()
    assert [*machine.leases.all] == ["next-bob"]
    machine.store.close()


def test_what_is_not_understood_is_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.journal.keep(Fact.POOL_USAGE, "}{")
    machine.start()
    hold(machine, "ann", 1.0)
    machine.start()
    assert machine.leases.past_usage.sums(machine.now) == pytest.approx(
        {"ann": GPUS * HOUR_S}, rel=0.01)
    machine.store.close()
