"""Numbers, spans and moments as pages write them: the same words as assets/parts/format.mjs, for
pages that Python writes. Pure."""

from datetime import datetime
from zoneinfo import ZoneInfo

NONE = "\N{EN DASH}"
RATES = ("B/s", "kB/s", "MB/s", "GB/s")


def amount(value: float, digits: int = 0) -> str:
    """Format a number with fixed digits, halves up as a browser does."""
    scaled = abs(value) * 10**digits
    rounded = int(scaled + 0.5) / 10**digits
    return f"{-rounded if value < 0 and rounded else rounded:,.{digits}f}"


def plural(count: float, one: str, several: str | None = None) -> str:
    return f"{amount(count)} {one if count == 1 else several or f'{one}s'}"


def bytes_words(size: float | None, unknown: str = NONE) -> str:
    if size is None:
        return unknown
    gib = size / 2**30
    if 0 < gib < 0.1:
        return f"{'<1' if size < 2**20 else amount(size / 2**20)} MiB"
    if gib >= 10_240:
        return f"{amount(gib / 1024, 1)} TiB"
    return f"{amount(gib, 1 if gib < 100 else 0)} GiB"


def per_second(value: float) -> str:
    """Format bytes per second in powers of a thousand."""
    power = 0
    while value >= 1_000 and power < 3:
        value, power = value / 1_000, power + 1
    return f"{amount(value, 0 if power == 0 or value >= 100 else 1)} {RATES[power]}"


def age(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    if seconds < 10:
        return f"{amount(max(0.0, seconds), 1)} s"
    if seconds < 120:
        return f"{amount(seconds)} s"
    if seconds < 7_200:
        return f"{amount(seconds / 60)} min"
    return f"{amount(seconds / 3_600)} h" if seconds < 172_800 else f"{amount(seconds / 86_400)} d"


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
