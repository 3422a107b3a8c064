"""Words about alerts for pages that are read: targets, places, values. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..alerts.core.rule_signal import PER
from .words import NONE, age, amount, bytes_words, per_second, plural

Item = Mapping[str, Any]
NOUNS = {"gpu": "GPU", "task": "task", "job": "job", "node": "node", "owner": "owner",
         "fleet": "fleet"}
TONES = {"crit": "lost", "warn": "stale", "info": ""}
SEVERITIES = {"info": "info", "warn": "warning", "crit": "critical"}
MOST_NAMED = 3
LARGE = 1e6
_COMPARISON = re.compile(r"[<>=!]+")


def targets_words(of: str, count: int) -> str:
    return plural(count, NOUNS.get(of, "target"))


def place_words(alert: Item) -> str:
    """Return where an alert is, or whom it is about."""
    of, host, place = alert["of"], alert["host"], alert["place"]
    if of == "fleet":
        return "the whole fleet"
    if of == "owner":
        return str(next(iter(alert["users"]), alert["target"]))
    spot = f"GPU {place}" if place and of != "node" else place
    return " · ".join(filter(None, (host, spot))) or str(alert["target"])


def users_words(users: Sequence[str]) -> str:
    more = f" and {len(users) - MOST_NAMED} more" if len(users) > MOST_NAMED else ""
    return ", ".join(users[:MOST_NAMED]) + more


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
            return f"{_in_unit(value * PER[per], unit[:-2])}/{per}"
        return _in_unit(100 * value, "%") if unit == "" and "%" in self.fire else _in_unit(
            value, unit)

    def limit_words(self) -> str:
        """Format the limit as the value; as it was written, where its unit is not known."""
        comparison = _COMPARISON.match(self.fire)
        if self.fires_at is None or comparison is None:
            return self.fire
        return f"{comparison[0]} {self.value_words(self.fires_at)}"


def measure_of(rule: Item) -> Measure:
    """Return what a rule measures, of the hub's answer about it."""
    return Measure(rule["unit"], rule["rule"]["fire"], rule["fires_at"])


def _in_unit(value: float, unit: str) -> str:
    if value < 0 and unit in ("B", "s"):
        return f"-{_in_unit(-value, unit)}"
    if unit == "B":
        return bytes_words(value)
    if unit == "s":
        return age(value)
    return f"{f'{value:.2e}' if abs(value) >= LARGE else _short(value)} {unit}".rstrip()


def _short(value: float) -> str:
    """Format with four digits that count, without an exponent."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:.10f}".rstrip("0").rstrip(".") if rounded else "0"


def hours_words(hours: float) -> str:
    return f"{amount(hours, 1)} GPU-hours"
