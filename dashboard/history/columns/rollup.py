"""Seconds into minutes and hours: lowest, sum, highest, and how many seconds had a value.

Roll-ups of disjoint seconds add up, in any order and to any length: what comes late is one more
part. Nothing is averaged without its count, and no spike is lost."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import Floats, Ints, Slots, in_runs, lengths, runs
from .layout import AT, KEYS, MASKS, STORED, missing_at
from .memory import SampleRows


@dataclass(slots=True)
class Rollup:
    """Roll-ups by slot, then by time; of each metric. Where `n` is 0, the rest means nothing.
    Values, not steps."""

    slot: Slots
    t: Ints
    seconds: Ints
    low: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    high: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    total: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    n: dict[str, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.slot)

    def put(self, key: str, low: npt.NDArray[Any], high: npt.NDArray[Any],
            total: npt.NDArray[Any], n: Ints) -> None:
        self.low[key], self.high[key], self.total[key], self.n[key] = low, high, total, n

    def mean(self, key: str) -> Floats:
        return np.asarray(self.total[key] / np.maximum(self.n[key], 1))


def roll_up(rows: SampleRows, bucket_s: int, only: Collection[str] = KEYS) -> Rollup:
    """Roll up `rows`, by slot, then by time; `only`: these metrics."""
    t = rows.t - rows.t % bucket_s
    starts = runs(rows.slot, t)
    rollup = Rollup(rows.slot[starts], t[starts], lengths(starts, len(t)))
    codes, of_row = in_runs(rows.missing)
    for key in only:
        at = AT[key]
        units, step, is_there = rows.units[key], STORED[at].step, missing_at(codes, at) == 0
        if is_there.all():
            low, high, total = _reduce(key, (units, units, units), starts)
            rollup.put(key, low * step, high * step, total * step, rollup.seconds.copy())
        elif not is_there.any():
            none = np.zeros(len(rollup))
            rollup.put(key, none, none, none, np.zeros(len(rollup), np.int64))
        else:
            values = units.astype(np.float64) * step
            _add(rollup, key, (values, values, values), is_there[of_row].astype(np.int64), starts)
    return rollup


def coarser(fine: Rollup, bucket_s: int) -> Rollup:
    """Roll up `fine`, by slot, then by time; there may be several parts of one bucket."""
    t = fine.t - fine.t % bucket_s
    starts = runs(fine.slot, t)
    if len(starts) == len(fine):
        return replace(fine, t=t)
    rollup = Rollup(fine.slot[starts], t[starts], np.add.reduceat(fine.seconds, starts))
    for key, n in fine.n.items():
        _add(rollup, key, (fine.low[key], fine.high[key], fine.total[key]), n, starts)
    return rollup


def _add(rollup: Rollup, key: str, values: tuple[npt.NDArray[Any], ...], n: Ints,
         starts: Slots) -> None:
    """`values`: lowest, highest and sum; of rows without any, they change nothing."""
    nothing = (-1.0, 0.0, 0.0) if key in MASKS else (np.inf, -np.inf, 0.0)
    if not (there := n > 0).all():
        values = tuple(np.where(there, array, none)
                       for array, none in zip(values, nothing, strict=True))
    low, high, total = _reduce(key, values, starts)
    rollup.put(key, low, high, total, np.add.reduceat(n, starts))


def _reduce(key: str, values: tuple[npt.NDArray[Any], ...], starts: Slots
            ) -> tuple[Floats, Floats, Floats]:
    """Reduce numbers as they came: narrow ones are reduced faster."""
    low, high, total = values
    least: np.ufunc = np.minimum
    most: np.ufunc = np.maximum
    if key in MASKS:
        least, most, low, high = np.bitwise_and, np.bitwise_or, low.astype(int), high.astype(int)
    return (least.reduceat(low, starts).astype(np.float64),
            most.reduceat(high, starts).astype(np.float64),
            np.add.reduceat(total.astype(np.float64), starts))


def rollup_of(kind: str, rows: Rollup, values: Mapping[str, Floats], metrics: Collection[str]
              ) -> Rollup:
    """Fill `rows`: their columns as a file of this kind has them, or with sums in place of means;
    NaN, or no column: not there."""
    none = np.full(len(rows), np.nan)
    for key in metrics:
        if kind in ("minutes", "hours", "sums"):
            low, mean, total, high, n = (values.get(f"{key}_{part}", none)
                                         for part in ("min", "mean", "sum", "max", "n"))
            count = np.nan_to_num(n).astype(np.int64)
            rows.put(key, low, high, np.nan_to_num(total if kind == "sums" else mean * count),
                     count)
        else:
            column = values.get(key, none)
            rows.put(key, column, column, column, (~np.isnan(column)).astype(np.int64))
    return rows
