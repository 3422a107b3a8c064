"""Words about alerts for pages that are read: targets, places, values. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..alerts.core.measure import Measure
from .words import amount, plural

Item = Mapping[str, Any]
NOUNS = {"gpu": "GPU", "task": "task", "job": "job", "node": "node", "owner": "owner",
         "fleet": "fleet"}
TONES = {"crit": "lost", "warn": "stale", "info": ""}
SEVERITIES = {"info": "info", "warn": "warning", "crit": "critical"}
MOST_NAMED = 3


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


def measure_of(rule: Item) -> Measure:
    """Return what a rule measures, of the hub's answer about it."""
    return Measure(rule["unit"], rule["rule"]["fire"], rule["fires_at"])


def hours_words(hours: float) -> str:
    return f"{amount(hours, 1)} GPU-hours"
