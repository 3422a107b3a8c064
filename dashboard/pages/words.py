"""Words of pages that Python writes: quantities, moments in the viewer's zone, sentences. The same
as assets/parts/format.mjs. Pure."""

from datetime import datetime
from zoneinfo import ZoneInfo

from gpudeck.words.quantities import NONE as NONE
from gpudeck.words.quantities import age as age
from gpudeck.words.quantities import amount as amount
from gpudeck.words.quantities import bytes_words as bytes_words
from gpudeck.words.quantities import per_second as per_second
from gpudeck.words.quantities import plural as plural


def when(at: float | None, now: float, never: str = "never") -> str:
    """Format a moment as `3 min ago` or `in 6 d`."""
    if at is None:
        return never
    ahead = at - now
    if abs(ahead) < 5:
        return "just now"
    return f"in {age(max(10.0, ahead))}" if ahead > 0 else f"{age(max(10.0, -ahead))} ago"


def moment(at: float, zone: str) -> str:
    """Format a moment as `29 Nov 2026, 14:05` in the viewer's zone."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    return f"{local.day} {local:%b %Y, %H:%M}"


def clock(at: float, now: float, zone: str) -> str:
    """Format a moment as `14:05:00`, or `Thu 26 Nov 14:05:00` on another day."""
    local, today = (datetime.fromtimestamp(second, ZoneInfo(zone)) for second in (at, now))
    day = "" if local.date() == today.date() else f"{local:%a} {local.day} {local:%b} "
    return f"{day}{local:%H:%M:%S}"


def until_words(at: float, now: float, zone: str) -> str:
    """Format a moment as `14:00`, or `Thu 26 Nov, 14:00` on another day."""
    local, today = (datetime.fromtimestamp(second, ZoneInfo(zone)) for second in (at, now))
    day = "" if local.date() == today.date() else f"{local:%a} {local.day} {local:%b}, "
    return f"{day}{local:%H:%M}"


def zone_words(at: float, zone: str) -> str:
    """Format the viewer's zone as `Europe/Berlin, UTC+1`."""
    offset = datetime.fromtimestamp(at, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    minutes = round(offset.total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    sign = "\N{MINUS SIGN}" if minutes < 0 else "+"
    words = "UTC" if minutes == 0 else f"UTC{sign}{hours}{f':{rest:02}' if rest else ''}"
    return words if zone == "UTC" else f"{zone.replace('_', ' ')}, {words}"


def capital(text: str) -> str:
    """Return the text with a capital first; a name such as vLLM stays as it is written."""
    is_name = not text[:1].isupper() and text.partition(" ")[0].lower() != text.partition(" ")[0]
    return text if is_name else text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return the text as a sentence, with a capital and an end."""
    return capital(text) if text.endswith((".", "!", "?", "…")) else f"{capital(text)}."
