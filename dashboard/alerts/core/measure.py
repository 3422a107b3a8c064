"""Values and limits of a rule as people read them, wherever they are written. Pure."""

import re
from dataclasses import dataclass

from gpudeck.words.quantities import NONE, in_unit, per_second

from .rule import CompiledRule
from .rule_signal import PER, RuleSignal, RuleThreshold

_COMPARISON = re.compile(r"[<>=!]+")


@dataclass(frozen=True, slots=True)
class Measure:
    """Unit of what a rule watches, as its metrics are defined (the hub's RuleView), and its limit:
    as it was written, and in that unit."""

    unit: str | None = None
    fire: str = ""
    fires_at: float | None = None

    def value_words(self, value: float | None) -> str:
        """Format a value; a share or a rate as its limit is written, in % or per hour."""
        if value is None:
            return NONE
        unit, per = self.unit or "", self.fire.rpartition("/")[2].strip()
        if unit == "B/s" and per not in PER:
            return per_second(value)
        if unit.endswith("/s"):
            per = per if per in PER else "s"
            return f"{in_unit(value * PER[per], unit[:-2])}/{per}"
        return in_unit(100 * value, "%") if unit == "" and "%" in self.fire else in_unit(
            value, unit)

    def limit_words(self) -> str:
        """Format the limit as the value; as it was written, where its unit is not known."""
        comparison = _COMPARISON.match(self.fire)
        if self.fires_at is None or comparison is None:
            return self.fire
        return f"{comparison[0]} {self.value_words(self.fires_at)}"


def measure_of_rule(ready: CompiledRule) -> Measure:
    return measure_of_limit(ready.signal, ready.fire)


def measure_of_limit(signal: RuleSignal, limit: RuleThreshold) -> Measure:
    return Measure(signal.part.unit, limit.text, limit.number)
