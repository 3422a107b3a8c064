"""Faults that last for an hour, or that no agent brings about: one fault, one alert, and one
receiver is told of its cause, once, and that it is over. All others are in tests/faults/matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dashboard.alerts.core.query import AlertQuery
from dashboard.alerts.store import AlertsStore
from dashboard.fleet.node_budget import HOUR_S, NodeBudget
from tests.unit.dashboard.automation.hand_turned_fleet import (
    INSTANCES,
    PHASE_S,
    Bench,
    give_back,
    make_bench,
    start,
)

__all__ = ["make_bench"]  # the fixture
BOARD = INSTANCES + 2  # of the first node, and not the one that is split


@dataclass(frozen=True)
class Fault:
    name: str
    begin: Callable[[Bench], None]
    mend: Callable[[Bench], None]
    rule: str
    lasts_s: int


def keep_waiting(what: str, xid: float | None = None) -> Callable[[Bench], None]:
    def begin(bench: Bench) -> None:
        bench.machines[0].rows[BOARD] = {what: 1.0}
        if xid is not None:
            bench.xid(bench.machines[0], BOARD, xid)

    return begin


def heat(bench: Bench) -> None:
    bench.machines[0].rows[BOARD] = {"temp_margin_c": -1.0, "slowed_hard_thermal_pct": 60.0,
                                     "fan_pct": 0.0, "temp_c": 92.0}


FAULTS = (
    Fault("a row waits for a reset for over an hour (Xid 63)", keep_waiting("rows_pending", 63.0),
          give_back, "rows-pending", 4_000),
    Fault("a page waits for its retirement for over an hour", keep_waiting("pages_pending"),
          give_back, "pages-pending", 4_000),
    Fault("a node sends more than allowed, and is refused for 2 min",
          lambda bench: bench.refuse(bench.machines[2], 120.0), start, "node-refused", 120),
    Fault("a fan stops and its board throttles", heat, give_back, "fan-stopped", 900),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_one_fault_is_one_alert(bench: Bench, fault: Fault) -> None:
    while bench.machines[0].seq % PHASE_S:
        bench.turn(1)
    bench.notifications = []
    fault.begin(bench)
    bench.turn(fault.lasts_s)
    standing = bench.standing()
    fault.mend(bench)
    for _ in range(150):
        bench.turn(10)
        if not bench.alerts.firing() and len(bench.notifications) == 2:
            break
    bench.turn(60)
    assert (standing, bench.standing()) == ({fault.rule}, set())
    assert [(what, rule) for _, what, rule in bench.notifications] == [
        ("firing", fault.rule), ("resolved", fault.rule)]


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
