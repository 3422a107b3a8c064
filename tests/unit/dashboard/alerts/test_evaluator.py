"""Rules over many targets: what they see, whom they mean, and closed minutes."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from dashboard.alerts.core.evaluator import RuleEvaluator
from dashboard.alerts.core.rule import check, read
from dashboard.alerts.core.rule_signal import Floats, SignalTerm
from dashboard.alerts.core.rule_tracker import RuleTracker, TargetStability, TargetValues
from dashboard.alerts.core.state_machine import AlertPhase, EvaluationHealth, Mask, Rows
from dashboard.fleet.filters import Filter

ROWS = 4


@dataclass
class Stage:
    """Numbers by name, each a function of (second, row)."""

    now: float
    says: dict[str, Callable[[float, int], float]]
    rows: int = ROWS
    there: Mask = field(init=False)
    fresh: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    late: set[int] = field(default_factory=set)  # rows that give no sample now
    cannot: set[str] = field(default_factory=set)
    scoped: set[int] | None = None
    stands: TargetStability | None = None

    def __post_init__(self) -> None:
        self.there = np.ones(self.rows, bool)

    def sampled_at(self, names: frozenset[str]) -> Floats:
        return np.array([np.nan if row in self.late else self.now for row in range(self.rows)])

    def numbers(self, term: SignalTerm) -> TargetValues:
        if term.name in self.cannot:
            return TargetValues(np.full(self.rows, np.nan), np.ones(self.rows, bool))
        values = [self.says[term.name](self.now, row) for row in range(self.rows)]
        return TargetValues(np.array(values, float), np.zeros(self.rows, bool))

    def in_scope(self, scope: Filter) -> Mask:
        return np.array([self.scoped is None or row in self.scoped for row in range(self.rows)])

    def standing(self) -> TargetStability | None:
        return self.stands

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        return iter(())


def rule(**change: Any) -> dict[str, Any]:
    return {"id": "hot", "title": "Hot", "scope": "*", "signal": "temp_c", "fire": ">= 85",
            "clear": "< 80", "for": "10s"} | change


def evaluator_with(definition: dict[str, Any]) -> tuple[RuleEvaluator, RuleTracker]:
    evaluator = RuleEvaluator()
    evaluator.set_rules({definition["id"]: check(read(definition))})
    return evaluator, evaluator.watches[definition["id"]]


def run(evaluator: RuleEvaluator, seconds: range, **says: Callable[[float, int], float]
        ) -> list[tuple[float, int, AlertPhase, str]]:
    changes = []
    for second in seconds:
        stage = Stage(float(second), says)
        for change in chain.from_iterable(evaluator.step({"gpu": stage}, float(second))):
            changes += [(change.at, int(row), change.moves.after, change.moves.reason)
                        for row in change.moves.rows]
    return changes


def test_only_who_is_hot_for_long_enough_fires() -> None:
    rng = np.random.default_rng(random.getrandbits(32))
    begin = int(rng.integers(10_000, 20_000))
    hot = int(rng.integers(ROWS))
    evaluator, watch = evaluator_with(rule())
    changes = run(evaluator, range(begin, begin + 30), temp_c=lambda second, row: (
        90.0 if row == hot and second >= begin + 5 else 60.0))
    assert changes == [(begin + 5, hot, AlertPhase.PENDING, "breach"),
                       (begin + 15, hot, AlertPhase.FIRING, "held")]
    assert watch.machine.phase.tolist() == [2 if row == hot else 0 for row in range(ROWS)]


def test_who_leaves_the_scope_is_at_rest() -> None:
    evaluator, watch = evaluator_with(rule(scope="node:a"))
    for second in range(40):
        stage = Stage(float(second), {"temp_c": lambda *_: 90.0})
        stage.scoped = {1, 2} if second < 20 else {2}
        list(evaluator.step({"gpu": stage}, float(second)))
        if second == 19:
            assert watch.machine.phase.tolist() == [0, 2, 2, 0]
    assert watch.machine.phase.tolist() == [0, 0, 2, 0]


def test_what_stands_beside_must_be_so_too() -> None:
    evaluator, watch = evaluator_with(rule(signal="util_pct", fire="<= 1", clear="> 6",
                                           where=["mem_used_bytes >= 1GiB"]))
    run(evaluator, range(20), util_pct=lambda *_: 0.0,
        mem_used_bytes=lambda _, row: row * 2.0**29)
    assert watch.machine.phase.tolist() == [0, 0, 2, 2]


def test_what_is_not_supported_cannot_be_evaluated_and_is_said() -> None:
    evaluator, watch = evaluator_with(rule(signal="mem_temp_c"))
    for second in range(20):
        stage = Stage(float(second), {})
        stage.cannot = {"mem_temp_c"}
        list(evaluator.step({"gpu": stage}, float(second)))
    assert watch.machine.health.tolist() == [EvaluationHealth.CANNOT] * ROWS
    assert watch.machine.phase.tolist() == [0] * ROWS


def test_a_row_that_is_anothers_inherits_nothing() -> None:
    evaluator, watch = evaluator_with(rule(signal="max(temp_c, 5s)"))
    run(evaluator, range(20), temp_c=lambda *_: 99.0)
    assert watch.machine.phase.tolist() == [2] * ROWS
    stage = Stage(20.0, {"temp_c": lambda *_: 20.0}, fresh=np.array([1]))
    list(evaluator.step({"gpu": stage}, 20.0))
    assert watch.machine.phase.tolist() == [2, 0, 2, 2]
    assert watch.last_values.values[0] == 99.0
    assert watch.last_values.values[1] != 99.0


def test_an_edit_of_its_words_lets_it_go_on_and_one_of_its_meaning_does_not() -> None:
    evaluator, _ = evaluator_with(rule())
    run(evaluator, range(20), temp_c=lambda *_: 90.0)
    assert evaluator.set_rules({"hot": check(read(rule(title="Very hot")))}) == []
    assert evaluator.watches["hot"].machine.phase.tolist() == [2] * ROWS
    assert evaluator.watches["hot"].ready.rule.title == "Very hot"
    assert evaluator.set_rules({"hot": check(read(rule(fire=">= 86")))}) == ["hot"]
    assert evaluator.watches["hot"].machine.phase.tolist() == []


# -- by minutes

IDLE = rule(id="idle", signal="max(util_pct, 10m)", fire="<= 5", clear="> 10", **{"for": "30m"})


def test_a_long_hold_looks_at_closed_minutes_and_misses_no_burst() -> None:
    """Row 1 works for one second every quarter of an hour."""
    evaluator, watch = evaluator_with(IDLE)
    assert watch.ready.is_by_minutes
    changes = run(evaluator, range(3_600), util_pct=lambda second, row: (
        90.0 if row == 1 and second % 900 == 7 else 2.0))
    fired = {row for _, row, after, _ in changes if after is AlertPhase.FIRING}
    assert fired == {0, 2, 3}
    assert all(at % 60 == 0 for at, *_ in changes)
    first = min(at for at, _, after, _ in changes if after is AlertPhase.FIRING)
    assert first == 60 * (8 + 30)  # eight of its ten minutes must be there


def test_minutes_with_holes_are_no_minutes() -> None:
    evaluator, watch = evaluator_with(IDLE)
    for second in range(3_600):
        stage = Stage(float(second), {"util_pct": lambda *_: 0.0})
        stage.late = {row for row in (0, 1) if second % 60 < (row + 1) * 10}
        list(evaluator.step({"gpu": stage}, float(second)))
    assert watch.machine.phase.tolist() == [2, 0, 2, 2]


def test_a_hub_that_stood_still_makes_no_minutes_up() -> None:
    evaluator, watch = evaluator_with(IDLE)
    run(evaluator, range(1_500), util_pct=lambda *_: 0.0)
    run(evaluator, range(5_000, 6_000), util_pct=lambda *_: 0.0)
    assert watch.machine.phase.tolist() == [1] * ROWS


def test_ten_thousand_gpus_and_thirty_rules_are_a_tenth_of_a_core_at_most() -> None:
    """CPU time, not the clock's: others have the same cores."""
    rng = np.random.default_rng(random.getrandbits(32))
    size, seconds = 10_000, 12
    names = ("temp_c", "util_pct", "power_w", "mem_used_bytes", "sm_clock_mhz", "fan_pct")
    texts = [f"{how}({name}, {span})" if how else name
             for name in names for how, span in (("", ""), ("avg", "1m"), ("max", "5m"),
                                                 ("min", "30s"), ("rate", "1h"))]
    evaluator = RuleEvaluator()
    evaluator.set_rules({f"r{at}": check(read(rule(
        id=f"r{at}", signal=text, fire="> 0.999", clear="< 0.9",
        **{"for": "10m" if at % 3 == 0 else "20s"}))) for at, text in enumerate(texts)})
    assert len(texts) == 30

    class Big(Stage):
        data: dict[str, Floats]

        def numbers(self, term: SignalTerm) -> TargetValues:
            return TargetValues(self.data[term.name], np.zeros(self.rows, bool))

        def sampled_at(self, names: frozenset[str]) -> Floats:
            return np.full(self.rows, self.now)

    cpu_s = 0.0
    for second in range(seconds):
        stage = Big(float(second), {}, rows=size)
        stage.data = {name: rng.random(size) for name in names}
        before = time.process_time()
        list(evaluator.step({"gpu": stage}, float(second)))
        cpu_s += time.process_time() - before
    print(f"{cpu_s / seconds * 1_000:.1f} ms a second")
    assert cpu_s / seconds < 0.1
