"""What a filter looks at and what it answers, three-valued truth over a whole fleet; and metrics
in it: their names, their units, their words, and the comparison."""

import difflib
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import COLUMNS, SLOW, Absence, Metric
from gpudeck.wire import Task

from ..runtime.expressions import ExpressionError
from .fleet import Fleet, GpuStatus
from .visibility import ALL_READ, CommandLineVisibility

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ThreeValuedMask:
    """Where it is known to be so, and where it is known not to be."""

    yes: Mask
    no: Mask

    def __invert__(self) -> "ThreeValuedMask":
        return ThreeValuedMask(self.no, self.yes)

    def __and__(self, other: "ThreeValuedMask") -> "ThreeValuedMask":
        return ThreeValuedMask(self.yes & other.yes, self.no | other.no)

    def __or__(self, other: "ThreeValuedMask") -> "ThreeValuedMask":
        return ThreeValuedMask(self.yes | other.yes, self.no & other.no)


class FilterError(ExpressionError):
    """What a filter may not say."""


@dataclass(frozen=True, slots=True)
class TaskGpuPairs:
    """Tasks on GPUs, one row for each pair."""

    slots: npt.NDArray[np.intp]
    tasks: list[Task]


@dataclass(frozen=True, slots=True)
class FilterInput:
    """What a filter looks at: the fleet at one moment, GPU by GPU or Task by Task."""

    fleet: Fleet
    show: npt.NDArray[np.uint8]
    mono: float
    reads: CommandLineVisibility = ALL_READ
    uses: TaskGpuPairs | None = None


Test = Callable[[FilterInput], ThreeValuedMask]

METRICS = (*COLUMNS, *SLOW)
SHORT = [metric.filter_name or metric.key for metric in COLUMNS] + [
    metric.filter_name for metric in SLOW if metric.filter_name is not None]
NAMES: dict[str, Metric] = {metric.key: metric for metric in METRICS} | {
    metric.filter_name: metric for metric in METRICS if metric.filter_name is not None}

_BINARY = {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_DECIMAL = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES = {"b": 1.0} | _BINARY | _DECIMAL
FACTORS: dict[str, dict[str, float]] = {
    "%": {},
    "B": _BYTES,
    "B/s": {f"{unit}/s": factor for unit, factor in _BYTES.items()} | _BYTES,
    "°C": {"c": 1.0, "°c": 1.0},
    "W": {"w": 1.0, "kw": 1e3},
    "J": {"j": 1.0, "kj": 1e3, "mj": 1e6, "wh": 3.6e3, "kwh": 3.6e6},
    "MHz": {"mhz": 1.0, "ghz": 1e3},
    "lanes": {"lanes": 1.0},
    "rpm": {"rpm": 1.0},
    "": {},
}
UNITS = {"%"} | {unit for factors in FACTORS.values() for unit in factors}
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)(.*)", re.IGNORECASE)

# Without a unit, memory is in percent of the board, as pages show it.
PERCENT_BY_DEFAULT = {"mem_used_bytes"}

# In a comparison, what a coded metric is compared with.
CODED_OPS = ("=", "==", "!=", ":")


def amount(metric: Metric, text: str, at: int) -> tuple[float, bool]:
    """The number in the metric's own unit, or as a share of its full value."""
    match = NUMBER.fullmatch(text)
    if match is None:
        raise FilterError(f"{text!r} is not a number", at)
    number, unit, name = float(match[1]), match[2].lower(), short(metric)
    if unit == "%" and metric.unit != "%":
        if metric.full is None and metric.full_fact is None:
            raise FilterError(f"{name} has no full value to take a percentage of", at)
        return number / 100, True
    if unit in ("", "%"):
        is_share = metric.key in PERCENT_BY_DEFAULT
        return (number / 100 if is_share else number), is_share
    factors = FACTORS[metric.unit]
    if unit not in factors:
        allowed = ", ".join(factors) or "no unit"
        raise FilterError(f"{name} is not measured in {match[2]!r}; {allowed} or % fits",
                          at + match.start(2))
    return number * factors[unit], False


def short(metric: Metric) -> str:
    return metric.filter_name or metric.key


def code(metric: Metric, text: str, at: int) -> float:
    """The number behind a word of a coded metric: all of it, what is before its colon, or as much
    as only one of them begins with."""
    assert metric.words is not None
    words = {number: word.lower() for number, word in metric.words.items()}
    wanted = text.lower()
    whole = [number for number, word in words.items() if wanted in (word, word.partition(":")[0])]
    begun = [number for number, word in words.items() if word.startswith(wanted)]
    for found in (whole, begun):
        if len(found) == 1:
            return float(found[0])
    known = ", ".join(repr(word.partition(":")[0]) for word in words.values())
    near = difflib.get_close_matches(wanted, list(words.values()), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {known}"
    raise FilterError(f"{short(metric)} is never {text!r}; {hint}", at)


OPERATIONS: dict[str, Callable[[Any, float], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "=": operator.eq, "==": operator.eq, ":": operator.eq, "!=": operator.ne,
}


def compare(metric: Metric, op: str, number: float, is_share: bool) -> Test:
    operation = OPERATIONS[op]

    def test(data: FilterInput) -> ThreeValuedMask:
        column = data.fleet.column(metric.key, data.mono)
        known = (data.show == GpuStatus.OK) & (column.absent == Absence.PRESENT)
        values = column.values
        if is_share:
            known = known & ~np.isnan(column.full)
            values = values / np.where(known, column.full, 1.0)
        holds = operation(values, number)
        return ThreeValuedMask(known & holds, known & ~holds)

    return test
