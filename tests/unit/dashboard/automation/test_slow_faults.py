"""Faults that last for an hour, or that no agent brings about: one fault, one alert, and one
receiver is told of its cause, once, and that it is over. All others are in tests/faults/matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dashboard.alerts.core.query import AlertQuery
from dashboard.alerts.store import AlertsStore
from dashboard.fleet.node_budget import HOUR_S, NodeBudget
from tests.unit.dashboard.automation.hand_turned_fleet import (
    PHASE_S,
    Bench,
    Machine,
    make_bench,
)

__all__ = ["make_bench"]  # the fixture


@dataclass(frozen=True)
class Fault:
    """A fault of a machine that has no other."""

    name: str
    machine: int
    begin: Callable[[Bench, Machine], None]
    mend: Callable[[Bench, Machine], None]
    rule: str
    lasts_s: int


def last_board(machine: Machine) -> int:
    """Return the place of a board that is not split."""
    return len(machine.facts) - 1


def keep_waiting(what: str, xid: float | None = None) -> Callable[[Bench, Machine], None]:
    def begin(bench: Bench, machine: Machine) -> None:
        machine.rows[last_board(machine)] = {what: 1.0}
        if xid is not None:
            bench.xid(machine, last_board(machine), xid)

    return begin


def heat(_: Bench, machine: Machine) -> None:
    machine.rows[last_board(machine)] = {"temp_margin_c": -1.0, "slowed_hard_thermal_pct": 60.0,
                                         "fan_pct": 0.0, "temp_c": 92.0}


def heal(_: Bench, machine: Machine) -> None:
    machine.rows.clear()


FAULTS = (
    Fault("a row waits for a reset for over an hour (Xid 63)", 0,
          keep_waiting("rows_pending", 63.0), heal, "rows-pending", 4_000),
    Fault("a page waits for its retirement for over an hour", 3,
          keep_waiting("pages_pending"), heal, "pages-pending", 4_000),
    Fault("a node sends more than allowed, and is refused for 2 min", 2,
          lambda bench, machine: bench.refuse(machine, 120.0),
          lambda bench, machine: bench.start(machine), "node-refused", 120),
    Fault("a fan stops and its board throttles", 5, heat, heal, "fan-stopped", 900),
)


def test_each_fault_is_one_alert(bench: Bench) -> None:
    """They begin at once, since an hour of this fleet is long: none hides or adds to another's."""
    while bench.machines[0].seq % PHASE_S:
        bench.turn(1)
    bench.notifications = []
    for fault in FAULTS:
        fault.begin(bench, bench.machines[fault.machine])
    began = bench.clock.mono
    standing = {}
    for fault in sorted(FAULTS, key=lambda fault: fault.lasts_s):
        bench.turn(int(began + fault.lasts_s - bench.clock.mono))
        standing[fault.name] = bench.standing()
        fault.mend(bench, bench.machines[fault.machine])
    for _ in range(150):
        bench.turn(10)
        if not bench.alerts.firing() and len(bench.notifications) == 2 * len(FAULTS):
            break
    bench.turn(60)
    assert bench.standing() == set()
    rules = {fault.rule for fault in FAULTS}
    for fault in FAULTS:
        assert fault.rule in standing[fault.name] <= rules, fault.name
        assert [what for _, what, rule in bench.notifications if rule == fault.rule] == [
            "firing", "resolved"], fault.name
    assert {rule for _, _, rule in bench.notifications} == rules


def test_a_node_that_makes_alerts_up_is_bounded_and_others_are_not(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.alerts.alerts, "_budget", NodeBudget(((HOUR_S, 5),)))
    liar, honest = bench.machines[2], bench.machines[3]
    before = len(bench.state.store(AlertsStore).ended_alerts(0, 1e12, AlertQuery()))
    for _ in range(20):
        liar.states = {} if liar.states else {0: "lost"}
        bench.turn(2)
    honest.states = {0: "lost"}
    bench.turn(20)
    assert "gpu-lost" in bench.standing()
    honest.states.clear()
    liar.states.clear()
    bench.turn(60)
    assert bench.alerts.alerts.left_out >= 5
    assert len(bench.state.store(AlertsStore).ended_alerts(0, 1e12, AlertQuery())) - before == 6
