"""Moments and spans as people write them: future ones in their own time, past ones in UTC. Pure."""

import re
from datetime import UTC, datetime, timedelta

from gpudeck.errors import CommandError, ExitCode

SPANS = "90s, 30m or 30min, 2h, 1d"
SPANS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_SPAN = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]+)?)\s*(s|min|m|h|d)\s*")
AHEAD_MOST_S = 9_999 * 86_400.0


def parse_span(text: str) -> float:
    """Parse a span into seconds. Raises ValueError with a sentence."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a span of time; write for example 90s, 30m, 12h "
                         "or 7d")
    return float(match[1]) * SPANS_S[match[2]]


def span_words(seconds: float) -> str:
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{short_number(seconds / size)} {unit}"
    return f"{short_number(seconds)} s"


def short_number(number: float) -> str:
    return f"{number:.2g}" if 0 < number < 1 else f"{number:.1f}".removesuffix(".0")


def minute_words(seconds: float) -> str:
    """Format an estimated span, rounded to the minute."""
    return span_words(max(60.0, round(seconds / 60.0) * 60.0))


def utc_words(at: float) -> str:
    """Format a moment in UTC, rounded up to the minute."""
    return f"{datetime.fromtimestamp(at + 59.999, UTC):%Y-%m-%d %H:%M} UTC"


def parse_seconds(text: str) -> float:
    """Parse a span into seconds; a bare number is seconds. Raises ValueError with a sentence."""
    bare = re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)?", text)
    return parse_span(text if bare is None else f"{text}s")


def parse_until(word: str, now: datetime) -> float:
    """Parse a future moment into UTC seconds. `now` has a zone; a time of day is the next one.
    Raises ValueError with a sentence."""
    word = word.strip()
    if word.startswith("+"):
        ahead_s = parse_span(word[1:])
        if ahead_s > AHEAD_MOST_S:
            raise ValueError("that is too far ahead")
        return now.timestamp() + ahead_s
    if re.fullmatch(r"\d{1,2}:\d{2}", word):
        return _next(word, now)
    if match := re.fullmatch(r"tomorrow (\d{1,2}:\d{2})", word):
        return _next(match[1], now.replace(hour=23, minute=59, second=59, microsecond=999_999))
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError("give a time like 18:00, tomorrow 09:00, 2026-11-22T18:00, +90min, +2h or "
                         "+1d") from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
    if at <= now:
        raise ValueError("that is in the past")
    return at.timestamp()


def _next(word: str, now: datetime) -> float:
    hour, minute = map(int, word.split(":"))
    if hour > 23 or minute > 59:
        raise ValueError("there is no such time of day")
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (at if at > now else at + timedelta(days=1)).timestamp()


TIMES = "24h or 7d (that long ago), now, UTC seconds, or such as 2026-01-31T12:00:00Z"


def moment_of(text: str, now: float) -> float:
    """Parse a moment into UTC seconds; without a zone it is UTC. Raises CommandError."""
    if text == "now":
        return now
    if re.fullmatch(r"[0-9]{9,11}(\.[0-9]+)?", text):
        return float(text)
    if _SPAN.fullmatch(text):
        return now - parse_span(text)
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise CommandError(f"{text[:80]!r} is not a time: write {TIMES}", ExitCode.USAGE) from None
