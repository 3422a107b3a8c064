"""Cells of a recording: a number, a time, or the reason why there is none. Pure."""

import re
from datetime import datetime, tzinfo

from gpudeck.measures.metrics import Absence
from gpudeck.measures.metrics import metric as metric_of

from .columns import MEMORY_TOTAL, RecordedColumn, unit_factor

# Reasons for a missing value as nvidia-smi writes them, with or without brackets.
_WHY = {
    "n/a": Absence.UNSUPPORTED, "not supported": Absence.UNSUPPORTED,
    "requested functionality has been deprecated": Absence.UNSUPPORTED,
    "insufficient permissions": Absence.DENIED, "unknown error": Absence.UNKNOWN,
    "err!": Absence.UNKNOWN, "nan": Absence.UNKNOWN, "gpu requires reset": Absence.LOST,
    "gpu is lost": Absence.LOST,
}
# DCGM's sentinels for missing integers start here; no real value is as large.
_BLANK = 9_223_372_036_854_775_792
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")


class BadCellError(ValueError):
    """A cell cannot be read; the message says why."""


def number(text: str, column: RecordedColumn) -> float | Absence | None:
    """Return the value of a cell in our unit, or why it is absent; None: the cell is empty."""
    word = text.strip()
    if not word:
        return None
    why = _WHY.get(word.strip("[]").strip().lower())
    if why is not None:
        return why
    return _in_range(_read(word, column), column)


def _read(word: str, column: RecordedColumn) -> float | Absence:
    if column.target == "pstate" and re.fullmatch(r"[Pp]\d{1,2}", word):
        return float(word[1:])
    if _HEX.fullmatch(word):
        return float(int(word, 16))
    match = _NUMBER.fullmatch(word)
    if match is None:
        raise BadCellError(f"{column.name} is {word[:40]!r}, not a number")
    value, unit = float(match[1]), match[2]
    if abs(value) >= _BLANK:
        return Absence.UNKNOWN
    factor = column.factor
    if unit:
        unit_scale = unit_factor(column.unit, unit)
        if unit_scale is None:
            raise BadCellError(f"{column.name} is {word[:40]!r}, in a unit that is not known for "
                               f"{column.target}")
        factor = unit_scale
    return value * factor


def _in_range(value: float | Absence, column: RecordedColumn) -> float | Absence:
    """Return the value; raise BadCellError if it is outside the metric's range, as a driver's
    sentinel or a value in another unit is."""
    if isinstance(value, Absence) or column.target == MEMORY_TOTAL:
        return value
    metric = metric_of(column.target)
    if not metric.low <= value <= metric.high:
        raise BadCellError(f"{column.name} is {value:g}, outside {metric.low:g} to {metric.high:g} "
                           f"{metric.unit}")
    return value


def moment(text: str, zone: tzinfo | None) -> float:
    """Return UTC seconds. Raises BadCellError, or NoZoneError if neither the text nor the caller
    gives a time zone."""
    word = text.strip()
    if re.fullmatch(r"\d{9,19}(\.\d+)?", word):
        value = float(word)
        for most, scale in ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6)):
            if value < most:
                return value * scale
        return value * 1e-9
    try:
        at = datetime.fromisoformat(word.replace("/", "-"))
    except ValueError:
        raise BadCellError(f"{word[:40]!r} is not a time") from None
    if at.tzinfo is None:
        if zone is None:
            raise NoZoneError(word)
        at = at.replace(tzinfo=zone)
    return at.timestamp()


class NoZoneError(ValueError):
    """The recording's times are in a zone that it does not name."""
