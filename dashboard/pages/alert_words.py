"""Words about alerts for pages that are read: targets, places, values. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .words import NONE, age, amount, bytes_words, plural

Item = Mapping[str, Any]
NOUNS = {"gpu": "GPU", "task": "task", "job": "job", "node": "node", "owner": "owner",
         "fleet": "fleet"}
TONES = {"crit": "lost", "warn": "stale", "info": ""}
SEVERITIES = {"info": "info", "warn": "warning", "crit": "critical"}
MOST_NAMED = 3
LARGE = 1e6
_AGE = re.compile(r"\b(age|silent|sample_age|reading_age)_s\b")
_BYTES = re.compile(r"_bytes\b")
_DEGREES = re.compile(r"\b(temp|mem_temp)\w*_c")


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


def value_words(value: float | None, signal: str) -> str:
    """Format an alert's value with the unit of what its rule watches, as far as that is one."""
    if value is None:
        return NONE
    if "/" not in signal:
        if _BYTES.search(signal) and "rate(" not in signal:
            return bytes_words(value)
        if _AGE.search(signal):
            return age(value)
    text = f"{value:.2e}" if abs(value) >= LARGE else _short(value)
    if "/" not in signal and "_pct" in signal:
        return f"{text} %"
    return f"{text} °C" if _DEGREES.search(signal) else text


def _short(value: float) -> str:
    """Format with four digits that count, without an exponent."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:.10f}".rstrip("0").rstrip(".") if rounded else "0"


def hours_words(hours: float) -> str:
    return f"{amount(hours, 1)} GPU-hours"
