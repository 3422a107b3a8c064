"""Moments and spans in the calendar of the person who views a page. Pure."""

import re
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

HOUR_S = 3_600
DAY_S = 86_400
LATEST_S = 2.0**36  # past the year 4000: a moment that a calendar has
Period = Literal["today", "7d", "30d", "month", "before", "custom"]
Bounds = tuple[float, float]  # UTC seconds
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")


def zone_of(name: str) -> ZoneInfo:
    """Return the zone of this name, or UTC where there is none: the browser sends it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def zone_words(at: float, zone: ZoneInfo) -> str:
    """Describe the zone at this moment: `Europe/Berlin, UTC+2`, or `UTC`."""
    moment = datetime.fromtimestamp(at, zone)
    minutes = round((moment.utcoffset() or timedelta()).total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    offset = f"UTC{'−' if minutes < 0 else '+'}{hours}" if minutes else "UTC"
    if rest:
        offset += f":{rest:02}"
    return offset if zone.key == "UTC" else f"{zone.key.replace('_', ' ')}, {offset}"


def seconds_in(text: str, zone: ZoneInfo) -> float | None:
    """Parse UTC seconds or RFC 3339; without an offset it is a moment of the zone. None: it is
    neither."""
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return seconds if 0 <= seconds < LATEST_S else None


def period_bounds(period: Period, now: float, zone: ZoneInfo) -> Bounds:
    """Return the bounds of a period of the calendar, until now. Those of `custom` are a week, until
    they are chosen."""
    today = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    match period:
        case "today":
            start, end = today.timestamp(), now
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
