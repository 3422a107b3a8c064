"""Spans of History: how an address names them, which steps they are drawn in, and their words in
the viewer's time zone. Pure."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
# Spans that end now, and their words.
LASTS = {"15m": (15 * MINUTE_S, "15 min"), "1h": (HOUR_S, "1 h"), "6h": (6 * HOUR_S, "6 h"),
         "24h": (DAY_S, "24 h"), "7d": (7 * DAY_S, "7 d"), "30d": (30 * DAY_S, "30 d"),
         "90d": (90 * DAY_S, "90 d")}
# Steps that history keeps: a step lies within one of the next longer.
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, HOUR_S, 7_200, 14_400, 21_600, 43_200,
         DAY_S)
GPU_POINTS, SUM_POINTS = 900, 720
MANY_LINES = 8  # more of them have half the points each
LEAST_S, LEAST_SUMMED_S = 10, 120  # sums are of whole minutes: a shorter span may have none
# A span that ends now moves on by its step, within these; a large figure not so often.
REFRESH_S, MANY_LINES_REFRESH_S = (5, 60), 30
MUCH = 0.7  # data in less than this share of the span: a closer span is offered

Kind = Literal["fleet", "group", "model", "user", "team", "gpus"]
LOADS: tuple[Kind, ...] = ("fleet", "group", "model")


@dataclass(frozen=True, slots=True)
class PastSpan:
    """Span of the figure in UTC seconds. `is_usual`: nobody chose it."""

    start: int
    end: int
    is_usual: bool = False


def span_of(kind: Kind, last: str, start: str, end: str, now: float, lines: int = 1) -> PastSpan:
    """Return the span that an address names: `start` and `end`, or the `last` so long, else the
    usual one. A span that ends now moves on by whole steps."""
    if (moments := moments_of(start, end, now)) is not None:
        begin, until = moments
        if until is None:
            until = _latest(step_for(kind, lines, now - begin), lines, now)
        return PastSpan(*widened(kind, begin, until))
    seconds, _ = LASTS[last if last in LASTS else usual_last(kind)]
    until = _latest(step_for(kind, lines, seconds), lines, now)
    return PastSpan(*widened(kind, until - seconds, until), is_usual=last not in LASTS)


def usual_last(kind: Kind) -> str:
    return "24h" if kind in LOADS else "1h"


def _latest(step: int, lines: int, now: float) -> float:
    grid = refresh_s(step, lines)
    return now // grid * grid


def refresh_s(step: int, lines: int) -> int:
    """Return the seconds after which a span that ends now has moved on."""
    shortest, longest = REFRESH_S
    return min(longest, max(MANY_LINES_REFRESH_S if lines > MANY_LINES else shortest, step))


def widened(kind: Kind, start: float, end: float) -> tuple[int, int]:
    """Return a span of whole seconds that is long enough to hold data."""
    whole = math.ceil(end)
    return max(0, min(int(start), whole - least_of(kind))), max(whole, least_of(kind))


def least_of(kind: Kind) -> int:
    return LEAST_S if kind == "gpus" else LEAST_SUMMED_S


def moments_of(start: str, end: str, now: float) -> tuple[float, float | None] | None:
    """Parse the moments of an address; an end of None is now. None: they name no span."""
    begin, until = seconds_of(start), seconds_of(end)
    if begin is None or begin >= (now if until is None else until):
        return None
    return begin, until


def seconds_of(text: str) -> float | None:
    """Parse UTC seconds or RFC 3339, as addresses have them; without a zone it is UTC. None: it is
    neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if 0 <= seconds < 10**10 else None  # the hub reads ten digits


def step_for(kind: Kind, lines: int, seconds: float) -> int:
    """Return the seconds of a step of the figure, as the hub has them ready. `lines`: how many are
    drawn."""
    if kind == "gpus":
        return _step(seconds, GPU_POINTS // 2 if lines > MANY_LINES else GPU_POINTS)
    step = _step(seconds, SUM_POINTS)
    if kind == "team" or (kind == "user" and seconds > DAY_S):
        return max(HOUR_S, step)  # these are kept by the hour; by the minute for a day at most
    return max(MINUTE_S, min(1_800, step) if kind == "user" else step)


def _step(seconds: float, points: int) -> int:
    return next((step for step in STEPS if seconds / step <= points),
                math.ceil(seconds / points / DAY_S) * DAY_S)


def is_short(data: tuple[float, float] | None, start: float, end: float) -> bool:
    """Return whether the data of a span takes so little of it that a closer one shows more."""
    return data is not None and data[1] - data[0] < MUCH * (end - start)


def step_words(step: int) -> str:
    size, unit = next((size, unit) for size, unit in (
        (DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s")) if step % size == 0)
    return f"{step // size} {unit}"


def zone_of(name: str) -> tzinfo:
    """Return the time zone of this name; UTC if this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return UTC


def minute_of(at: float, zone: tzinfo) -> str:
    """Format a moment such as "31 Jan 2026, 14:00"."""
    local = _local(at, zone)
    return f"{local.day} {local:%b %Y, %H:%M}"


def clock_of(at: float, zone: tzinfo, now: float) -> str:
    """Format a moment such as "14:00:05", of another day than today "Thu 26 Nov 14:00:05"."""
    local = _local(at, zone)
    day = "" if local.date() == _local(now, zone).date() else f"{local:%a} {local.day} {local:%b} "
    return f"{day}{local:%H:%M:%S}"


def _local(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone(zone)
