"""Memory over a restart of the hub: of rules that only tell, the wait and the alert."""

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.firing_alerts import Alert, AlertTarget, FiringAlerts
from dashboard.alerts.core.restart_state import RuleStateRestore, SavedRuleStates, remember
from dashboard.alerts.core.rule import check, read
from dashboard.alerts.core.state_machine import AlertPhase
from tests.unit.dashboard.alerts.test_evaluator import Stage

BEGIN = 60_000.0


class Hub:
    """Hub between two starts, which watches one target by one rule."""

    def __init__(self, disk: dict[str, Any], now: float, **change: Any) -> None:
        self.disk, self.now = disk, now
        self.evaluator, self.alerts = RuleEvaluator(), FiringAlerts()
        self.evaluator.set_rules({"r": check(read({
            "id": "r", "title": "t", "scope": "*", "of": "task", "signal": "age_s", "fire": "> 5",
            "clear": "< 2", "for": "60s", "keep_firing_for": "30s"} | change))})
        self.watch = self.evaluator.watches["r"]
        memory = disk.get("memory")
        self.restart = RuleStateRestore(None if memory is None
                                        else msgspec.json.decode(memory, type=SavedRuleStates),
                                        disk.get("open", {}).values(), self.evaluator.watches, now)
        self.ended_alerts = list(self.restart.ended_alerts)

    def go(self, seconds: int, value: float, row: int = 0) -> None:
        for _ in range(seconds):
            self.now += 1
            stage = Stage(self.now, {"age_s": lambda *_: value}, rows=row + 1)
            stage.there[:row] = False
            self.ended_alerts += self.restart.restore(
                self.evaluator.watches, lambda _: {"t": row}, self.alerts, self.now)
            for changes in self.evaluator.step({"task": stage}, self.now):
                for change in changes:
                    for alert in self.alerts.take(change, lambda of,
                                                   _: AlertTarget("t", "n", "host")):
                        self.keep(alert)
        self.disk["memory"] = msgspec.json.encode(remember(
            self.evaluator.watches, lambda of, _: "t", self.now, self.restart))

    def keep(self, alert: Alert) -> None:
        open_alerts = self.disk.setdefault("open", {})
        open_alerts.pop(alert.id, None)
        if alert.ended_at is None:
            open_alerts[alert.id] = alert
        else:
            self.ended_alerts.append(alert)

    def phase(self) -> AlertPhase:
        return AlertPhase(self.watch.machine.phase.max())


def test_the_wait_goes_on_and_the_stop_does_not_count() -> None:
    disk: dict[str, Any] = {}
    waited, gap = random.randint(20, 50), random.choice([5, 100, 3_000])
    before = Hub(disk, BEGIN)
    before.go(waited, 9.0)
    after = Hub(disk, before.now + gap)
    after.go(60 - waited - 1, 9.0, row=3)
    assert after.phase() is AlertPhase.PENDING
    after.go(3, 9.0, row=3)
    assert after.phase() is AlertPhase.FIRING


@pytest.mark.parametrize(("gap", "change"), [
    (3_700, {}), (10, {"ladder": [{"do": "tell"}]}), (10, {"fire": "> 6"})])
def test_after_an_hour_or_by_another_rule_or_one_that_acts_it_begins_again(gap: int, change: Any
                                                                          ) -> None:
    disk: dict[str, Any] = {}
    before = Hub(disk, BEGIN, **{name: value for name, value in change.items() if name == "ladder"})
    before.go(50, 9.0)
    after = Hub(disk, before.now + gap, **change)
    after.go(59, 9.0)
    assert after.phase() is AlertPhase.PENDING


def test_what_fired_is_the_same_alert_if_it_is_still_so() -> None:
    disk: dict[str, Any] = {}
    before = Hub(disk, BEGIN)
    before.go(70, 9.0)
    [alert] = before.alerts.firing()
    after = Hub(disk, before.now + 900)
    after.go(5, 9.0, row=2)
    assert after.alerts.firing() == [alert]
    after.go(31, 0.0, row=2)
    [closed] = after.ended_alerts
    assert (closed.id, closed.why, closed.fired_at) == (
        alert.id, "the condition is not met any more", alert.fired_at)


def test_what_fired_by_a_rule_that_acts_has_ended() -> None:
    disk: dict[str, Any] = {}
    before = Hub(disk, BEGIN, ladder=[{"do": "tell"}])
    before.go(70, 9.0)
    after = Hub(disk, before.now + 10, ladder=[{"do": "tell"}])
    assert [alert.why for alert in after.ended_alerts] == ["the hub was restarted"]
    after.go(5, 9.0)
    assert after.phase() is AlertPhase.PENDING


def test_whose_target_never_comes_back_has_ended_after_an_hour() -> None:
    disk: dict[str, Any] = {}
    before = Hub(disk, BEGIN)
    before.go(70, 9.0)
    after = Hub(disk, before.now + 10)

    def nobody(_: Any) -> dict[str, int]:
        return {}

    assert not after.restart.restore(after.evaluator.watches, nobody, after.alerts, after.now)
    assert not after.restart.is_over
    [closed] = after.restart.restore(after.evaluator.watches, nobody, after.alerts,
                                     after.now + 3_601)
    assert closed.why == "the hub was restarted"
    assert after.restart.is_over


def test_who_was_not_heard_of_since_is_given_up() -> None:
    disk: dict[str, Any] = {}
    before = Hub(disk, BEGIN)
    before.go(70, 9.0)
    after = Hub(disk, before.now + 10)
    after.go(1, float("nan"))
    assert len(after.alerts.firing()) == 1
    after.go(700, float("nan"))
    assert [alert.why for alert in after.ended_alerts] == ["there was no data for too long"]
    assert not np.isin(after.watch.machine.phase, (AlertPhase.FIRING, AlertPhase.RESOLVING)).any()


def test_what_is_remembered_after_all_began_anew() -> None:
    """A reset of the brakes, or a clock that is set, comes between two looks."""
    hub = Hub({}, BEGIN, ladder=[{"do": "tell"}])
    hub.go(90, 9.0)
    assert hub.phase() == AlertPhase.FIRING
    hub.evaluator.restart(["r"])
    saved = remember(hub.evaluator.watches, lambda of, _: "t", hub.now, hub.restart)
    [states] = saved.held.values()
    assert not states["t"].is_firing


FEWER: dict[str, Any] = {"signal": "max(age_s, 10m) - age_s", "fire": ">= 1", "clear": "< 1",
                         "for": "5s", "keep_firing_for": "0s", "min_coverage": 0.01}


@pytest.mark.parametrize("stopped_s", [2, 90])
def test_what_a_rule_looks_back_over_goes_on(stopped_s: int) -> None:
    """A lost NVLink: a minute after a restart it was said to be up again."""
    disk: dict[str, Any] = {}
    before = Hub(disk, BEGIN, **FEWER)
    before.go(60, 18.0)
    before.go(20, 15.0)
    [alert] = before.alerts.firing()
    after = Hub(disk, before.now + stopped_s, **FEWER)
    after.go(120, 15.0, row=2)
    assert (after.alerts.firing(), after.ended_alerts) == ([alert], [])
    after.go(600, 15.0, row=2)
    [over] = after.ended_alerts
    assert over.id == alert.id, "it was lost more than ten minutes ago"
    assert over.why.startswith("no longer watched"), "it is as it was"


def test_what_is_as_before_again_has_resolved() -> None:
    hub = Hub({}, BEGIN, **FEWER)
    hub.go(60, 18.0)
    hub.go(20, 15.0)
    hub.go(5, 18.0)
    [over] = hub.ended_alerts
    assert over.why == "the condition is not met any more"


def test_what_has_waited_by_a_span_waits_on() -> None:
    disk: dict[str, Any] = {}
    change = FEWER | {"for": "40s"}
    before = Hub(disk, BEGIN, **change)
    before.go(60, 18.0)
    before.go(20, 15.0)
    after = Hub(disk, before.now + 5, **change)
    after.go(15, 15.0, row=1)
    assert after.phase() is AlertPhase.PENDING
    after.go(10, 15.0, row=1)
    assert after.phase() is AlertPhase.FIRING
