"""A moment as people write it, in their own time. Pure."""

import re
from datetime import datetime, timedelta

_IN = re.compile(r"\+(\d{1,4})(min|h|d)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}


def parse_until(word: str, now: datetime) -> float:
    """`now` has a zone; a time of day is the next one. Raises ValueError with a sentence."""
    word = word.strip()
    if match := _IN.fullmatch(word):
        return (now + timedelta(**{_UNITS[match[2]]: int(match[1])})).timestamp()
    if re.fullmatch(r"\d{1,2}:\d{2}", word):
        return _next(word, now)
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError("give a time like 18:00, 2026-11-22T18:00, +90min, +2h or +1d") from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
    if at <= now:
        raise ValueError("that is over already")
    return at.timestamp()


def _next(word: str, now: datetime) -> float:
    hour, minute = map(int, word.split(":"))
    if hour > 23 or minute > 59:
        raise ValueError("there is no such time of day")
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (at if at > now else at + timedelta(days=1)).timestamp()
