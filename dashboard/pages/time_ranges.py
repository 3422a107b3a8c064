"""Moments and spans in the calendar of the person who views a page. Pure."""

import re
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

HOUR_S = 3_600
DAY_S = 86_400
LATEST_S = 2.0**36  # past the year 4000: a moment that a calendar has
Period = Literal["today", "yesterday", "7d", "30d", "month", "before", "custom"]
Bounds = tuple[float, float]  # UTC seconds
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")


def seconds_in(text: str, zone: str) -> float | None:
    """Parse UTC seconds or RFC 3339; without an offset it is a moment of the zone. None: it is
    neither."""
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
            seconds = (moment if moment.tzinfo else moment.replace(
                tzinfo=ZoneInfo(zone))).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return seconds if 0 <= seconds < LATEST_S else None


def period_bounds(period: Period, now: float, zone: str) -> Bounds:
    """Return the bounds of a period of the calendar, until now. Those of `custom` are a week, until
    they are chosen."""
    today = datetime.fromtimestamp(now, ZoneInfo(zone)).replace(
        hour=0, minute=0, second=0, microsecond=0, fold=0)
    month = today.replace(day=1)
    match period:
        case "today":
            start, end = today.timestamp(), now
        case "yesterday":
            start, end = (today - timedelta(days=1)).timestamp(), today.timestamp()
        case "30d":
            start, end = now - 30 * DAY_S, now
        case "month":
            start, end = month.timestamp(), now
        case "before":
            before = (month - timedelta(days=1)).replace(day=1)
            start, end = before.timestamp(), month.timestamp()
        case _:
            start, end = now - 7 * DAY_S, now
    return (start, end) if start < end else (end - HOUR_S, end)
