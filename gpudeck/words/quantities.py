"""Numbers, sizes and spans with their units, as people read them: the same words as
assets/parts/format.mjs. Pure."""

NONE = "\N{EN DASH}"
RATES = ("B/s", "kB/s", "MB/s", "GB/s")
LARGE = 1e6


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


def in_unit(value: float, unit: str) -> str:
    """Format a value of a metric. `unit`: that of its row in the table of metrics."""
    if value < 0 and unit in ("B", "s"):
        return f"-{in_unit(-value, unit)}"
    if unit == "B":
        return bytes_words(value)
    if unit == "s":
        return age(value)
    return f"{f'{value:.2e}' if abs(value) >= LARGE else _short(value)} {unit}".rstrip()


def _short(value: float) -> str:
    """Format with four digits that count, without an exponent."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:.10f}".rstrip("0").rstrip(".") if rounded else "0"
