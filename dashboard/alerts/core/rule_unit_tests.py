"""Unit tests of rules, kept in the same file as the rules: measured values over time, and the phase
in which the rule must be at given moments.

    tests:
      - rule: gpu-hot
        targets:
          a: {temp_margin_c: "20 x60  3 x180  20"}     # 60 s of 20, 180 s of 3, and 20 to the end
          b: {temp_margin_c: "20..3 x120  _ x60  3"}   # falls for 2 minutes, then none for one
        expect:
          - {at: 2m, a: pending, b: inactive}
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ...fleet.filters import Filter
from .evaluator import RuleEvaluator
from .numbers import NAMES
from .rule import CompiledRule, invalid
from .rule_signal import Floats, RuleSyntaxError, SignalTerm, parse_span
from .rule_tracker import TargetStability, TargetValues
from .state_machine import AlertPhase, EvaluationHealth, Mask, Rows

MOST_S = 7 * 86_400
MOST_TARGETS = 50
BEGIN = 60 * 10_000  # at a whole minute
WORDS = tuple(phase.name.lower() for phase in AlertPhase)
NO_DATA = "no data"
PIECE = re.compile(r"(?P<what>_|-?\d+\.?\d*(?:\.\.-?\d+\.?\d*)?)(?:\s*x\s*(?P<times>\d+))?"
                   r"(?:\s+|$)")
Name = Annotated[str, Meta(max_length=100)]


class RuleUnitTest(Struct, frozen=True, forbid_unknown_fields=True):
    rule: Name
    targets: Annotated[dict[Name, dict[Name, str]], Meta(min_length=1, max_length=MOST_TARGETS)]
    expect: Annotated[tuple[dict[Name, str], ...], Meta(min_length=1, max_length=200)]
    name: Name = ""


@dataclass(frozen=True, slots=True)
class RuleUnitTestMismatch:
    at_s: int
    target: str
    expected_state: str
    actual_state: str

    def __str__(self) -> str:
        return (f"at {self.at_s}s {self.target} is {self.actual_state}, and should be "
                f"{self.expected_state}")


# What a field must be, for one of another type.
HOW = {
    "rule": "the id of a rule in this file",
    "targets": f"1 to {MOST_TARGETS} names, each with its numbers: {{a: {{temp_c: '60 x5 90'}}}}",
    "expect": "1 to 200 lines, such as {at: 14s, a: pending}; a moment has a unit",
    "name": "a text of 100 characters at most",
}


def read(data: Any) -> RuleUnitTest:
    try:
        return msgspec.convert(_with_texts(data), RuleUnitTest)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        name = re.split(r"[.\[`]", path)[0]
        raise invalid(name or "test", HOW.get(name, message)) from None


def _with_texts(data: Any) -> Any:
    """Turn a plain number into text: the value that a target has all the time."""
    targets = data.get("targets") if isinstance(data, dict) else None
    if not isinstance(targets, dict):
        return data
    return data | {"targets": {target: {
        name: str(value) if type(value) in (int, float) else value
        for name, value in numbers.items()} if isinstance(numbers, dict) else numbers
        for target, numbers in targets.items()}}


def run(ready: CompiledRule, test: RuleUnitTest) -> list[RuleUnitTestMismatch]:
    """Run a test, every second up to the last one with an expectation. The scope does not matter:
    every target in the test counts as in scope."""
    expectations = sorted(_expectations(test), key=lambda expectation: expectation[0])
    series = {target: {name: _series(text, f"targets.{target}.{name}", expectations[-1][0])
                       for name, text in numbers.items()}
              for target, numbers in test.targets.items()}
    _all_named(ready, series)
    evaluator = RuleEvaluator()
    evaluator.set_rules({ready.rule.id: ready})
    machine = evaluator.watches[ready.rule.id].machine
    mismatches: list[RuleUnitTestMismatch] = []
    fake_targets, targets = _UnitTestTargets(series), list(series)
    for second in range(expectations[-1][0] + 1):
        fake_targets.second = second
        list(evaluator.step({ready.rule.of: fake_targets}, float(BEGIN + second)))
        while expectations and expectations[0][0] == second:
            _, target, word = expectations.pop(0)
            row = targets.index(target)
            now = _word(AlertPhase(machine.phase[row]), EvaluationHealth(machine.health[row]), word)
            if now != word:
                mismatches.append(RuleUnitTestMismatch(second, target, word, now))
    return mismatches


def _word(phase: AlertPhase, health: EvaluationHealth, expected_state: str) -> str:
    if expected_state == NO_DATA and health is not EvaluationHealth.OK:
        return NO_DATA
    return phase.name.lower()


def _expectations(test: RuleUnitTest) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(test.expect):
        where = f"expect[{number}]"
        if "at" not in line or len(line) < 2:
            raise invalid(where, "needs a time and a target: {at: 2m, a: firing}")
        try:
            at_s = parse_span(line["at"])
        except RuleSyntaxError as error:
            raise invalid(where, str(error)) from None
        if at_s > MOST_S:
            raise invalid(where, "a test lasts at most 7d")
        for target, word in line.items():
            if target == "at":
                continue
            if target not in test.targets:
                raise invalid(where, f"there is no target {target!r}; there are "
                              f"{', '.join(test.targets)}")
            if word not in WORDS and word != NO_DATA:
                raise invalid(where, f"{word!r} is not a state; there are {', '.join(WORDS)} and "
                                     f"{NO_DATA}")
            yield at_s, target, word


def _series(text: str, where: str, last_s: int) -> Floats:
    """Return one value a second; the last piece without a count goes on to the end."""
    values: list[float] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = PIECE.match(text, at)
        if match is None:
            raise invalid(where, f"what is {text[at:at + 12]!r}? Write '20 x60 3 x180', "
                                 "'20..3 x120' or '_ x5' for none", at)
        at = match.end()
        is_last = at >= len(text) and match["times"] is None
        times = max(1, last_s + 1 - len(values)) if is_last else int(match["times"] or 1)
        if len(values) + times > MOST_S + 1 and not is_last:
            raise invalid(where, "lasts longer than 7d")
        values += _piece(match["what"], times)
    if not values:
        raise invalid(where, "is empty")
    filled = np.full(last_s + 1, np.nan)
    filled[: len(values)] = values[: last_s + 1]
    return filled


def _piece(what: str, times: int) -> list[float]:
    if what == "_":
        return [np.nan] * times
    first, _, last = what.partition("..")
    return list(np.linspace(float(first), float(last or first), times))


def _all_named(ready: CompiledRule, series: dict[str, dict[str, Floats]]) -> None:
    for target, numbers in series.items():
        for name in sorted(ready.names - numbers.keys()):
            raise invalid(f"targets.{target}",
                          f"{ready.rule.id} looks at {name}, which is not given")
        for name in sorted(numbers.keys() - NAMES[ready.rule.of].keys()):
            raise invalid(f"targets.{target}", f"unknown metric {name!r} of a {ready.rule.of}")


@dataclass(slots=True)
class _UnitTestTargets:
    series: dict[str, dict[str, Floats]]
    second: int = 0
    there: Mask = field(init=False)
    fresh: Rows = field(default_factory=lambda: np.empty(0, np.intp))

    def __post_init__(self) -> None:
        self.there = np.ones(len(self.series), bool)

    def sampled_at(self, names: frozenset[str]) -> Floats:
        return np.full(len(self.series), float(BEGIN + self.second))

    def numbers(self, term: SignalTerm) -> TargetValues:
        nothing = np.full(self.second + 1, np.nan)
        values = np.array([numbers.get(term.name, nothing)[self.second]
                           for numbers in self.series.values()])
        return TargetValues(values)

    def in_scope(self, scope: Filter) -> Mask:
        return self.there

    def standing(self) -> TargetStability | None:
        return None

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        return iter(())
