"""Holds on actions while a rule fires: flapping, cooling down, warming up, clocks, old samples."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.flap_cooldown import STRETCHES, CooldownTracker, FlapDetector
from dashboard.alerts.core.rule import check, read
from dashboard.alerts.core.rule_tracker import RuleTracker, TargetStability
from dashboard.alerts.core.state_machine import AlertPhase, EvaluationHealth
from tests.unit.dashboard.alerts.test_evaluator import Stage

LADDER = [{"do": "tell"}, {"do": "end", "after": "10m"}]


def rule(**change: Any) -> dict[str, Any]:
    return {"id": "r", "title": "t", "scope": "*", "of": "task", "signal": "mem_used_bytes",
            "fire": ">= 10", "clear": "< 5", "for": "30s", "ladder": LADDER} | change


class Story:
    def __init__(self, **change: Any) -> None:
        self.evaluator = RuleEvaluator()
        ready = check(read(rule(**change)))
        self.evaluator.set_rules({"r": ready})
        self.watch: RuleTracker = self.evaluator.watches["r"]
        self.now = 60_000.0 + random.randrange(0, 6_000) * 60

    def go(self, seconds: int, value: float, stands: TargetStability | None = None,
           age_s: float = 0.0
           ) -> list[str]:
        for _ in range(seconds):
            self.now += 1
            stage = Stage(self.now, {"mem_used_bytes": lambda *_: value}, rows=1, stands=stands)
            if age_s:
                stage.sampled_at = lambda names: np.array([self.now - age_s])  # type: ignore[method-assign]
            list(self.evaluator.step({"task": stage}, self.now))
        return self.watch.holds(0)

    @property
    def phase(self) -> AlertPhase:
        return AlertPhase(self.watch.machine.phase[0])


def test_what_fires_steadily_is_held_by_nothing() -> None:
    story = Story()
    assert story.go(90, 20.0) == []
    assert story.phase is AlertPhase.FIRING


def test_what_comes_and_goes_is_held_and_let_go_when_it_has_been_calm() -> None:
    story = Story(cooldown="0s")
    rounds = 0
    while not (holds := story.go(40, 20.0)):
        story.go(20, 0.0)
        rounds += 1
        assert rounds < 12
    assert rounds >= 3, "two or three times are no flapping"
    assert story.phase is AlertPhase.FIRING
    assert "flapping" in holds[0]
    calm_s = 0
    while story.go(60, 20.0):
        calm_s += 60
        assert calm_s <= STRETCHES * 60
    assert calm_s >= 180, "and not let go at once"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=80))
def test_flapping_by_the_plain_sum(changes: list[bool]) -> None:
    """Compare with the rule read aloud: weights from 1.2 down to 0.8 over 21 stretches."""
    flaps, was = FlapDetector(0, 1), False
    flaps.take([], 0.0)
    for at in range(len(changes)):
        flaps._turn(at)
        if changes[at]:
            flaps.bits[0] |= 1
        flaps.judge()
        newest = changes[: at + 1][::-1][:STRETCHES]
        share = sum(1.2 - 0.4 * place / (STRETCHES - 1)
                    for place, changed in enumerate(newest) if changed) / STRETCHES
        was = share > 0.15 if was else share >= 0.30
        assert bool(flaps.is_flapping[0]) is was


def test_cooling_down_doubles_and_has_an_end() -> None:
    cool, now = CooldownTracker(600.0, 1), 1e6
    spans = []
    for _ in range(8):
        cool.end_episode(np.array([0]), now)
        spans.append(float(cool.until[0]) - now)
        now += 7_200
    assert spans == [600, 1_200, 2_400, 4_800, 9_600, 14_400, 14_400, 14_400]
    cool.end_episode(np.array([0]), now + 90_000)
    assert float(cool.until[0]) - now - 90_000 == 600, "a day later it begins anew"


def test_after_an_episode_it_cools_down_and_only_rules_that_act_do() -> None:
    for ladder, is_held in ((LADDER, True), ([], False)):
        story = Story(ladder=ladder)
        story.go(60, 20.0)
        story.go(5, 0.0)
        holds = story.go(60, 20.0)
        assert story.phase is AlertPhase.FIRING
        assert any("cooling down" in hold for hold in holds) is is_held


@pytest.mark.parametrize(("steady_s", "skew_s", "says"), [
    (10.0, 0.0, "warming up"), (1_000.0, 2.5, "2.5 s off"), (1_000.0, -9.0, "9.0 s off"),
    (1_000.0, np.nan, ""), (np.nan, 0.0, "warming up")])
def test_where_it_is(steady_s: float, skew_s: float, says: str) -> None:
    stands = TargetStability(np.array([steady_s]), np.array([skew_s]))
    holds = Story().go(60, 20.0, stands)
    assert [says in hold for hold in holds] == ([True] if says else [])


def test_what_is_told_late_never_counts_for_a_rule_that_acts() -> None:
    for age_s, fires in ((3.0, True), (11.0, False), (400.0, False)):
        story = Story()
        story.go(60, 20.0, age_s=age_s)
        assert (story.phase is AlertPhase.FIRING) is fires, age_s
    story = Story(ladder=[])
    story.go(60, 20.0, age_s=11.0)
    assert story.phase is AlertPhase.FIRING, "what only tells takes it"


def test_an_old_sample_holds_and_so_does_silence() -> None:
    story = Story()
    story.go(60, 20.0)
    assert story.watch.holds(0, story.now + 2) == []
    assert "4 s old" in story.watch.holds(0, story.now + 4)[0]
    holds = story.go(5, float("nan"))
    assert "no data" in holds[0]


def test_a_rule_that_fails_says_so_and_the_others_go_on() -> None:
    evaluator = RuleEvaluator()
    evaluator.set_rules({name: check(read(rule(id=name, signal=signal))) for name, signal in (
        ("good", "mem_used_bytes"), ("bad", "age_s"))})

    def boom(*_: Any) -> float:
        raise ZeroDivisionError("no such thing")

    for second in range(60):
        stage = Stage(6_000.0 + second, {"mem_used_bytes": lambda *_: 20.0, "age_s": boom}, rows=2)
        list(evaluator.step({"task": stage}, 6_000.0 + second))
    good, bad = evaluator.watches["good"], evaluator.watches["bad"]
    assert good.machine.phase.tolist() == [AlertPhase.FIRING] * 2
    assert (bad.failures, bad.machine.health.tolist()) == (60, [EvaluationHealth.ERROR] * 2)
    assert "cannot be evaluated: ZeroDivisionError: no such thing" in bad.holds(0)[0]
    stage = Stage(6_060.0, {"mem_used_bytes": lambda *_: 20.0, "age_s": lambda *_: 0.0}, rows=2)
    list(evaluator.step({"task": stage}, 6_060.0))
    assert (bad.failures, bad.trouble, bad.holds(0)) == (0, "", [])


def test_why_it_cannot_be_told() -> None:
    evaluator = RuleEvaluator()
    evaluator.set_rules({"r": check(read(rule(of="gpu", signal="mem_temp_c", ladder=[])))})
    for second in range(5):
        stage = Stage(float(second), {}, cannot={"mem_temp_c"})
        list(evaluator.step({"gpu": stage}, float(second)))
    assert evaluator.watches["r"].holds(1) == ["cannot evaluate: mem_temp_c is not reported there"]
