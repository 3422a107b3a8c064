"""Seconds into minutes and hours: lowest, sum, highest, and how many seconds had a value.

Roll-ups of disjoint seconds add up, in any order and to any length: what comes late is one more
part. Nothing is averaged without its count, and no spike is lost."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import KEYS, MASKS, STORED, Ints, in_runs, missing_at
from .memory import SampleRows

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Rollup:
    """By slot, then by time. Where `n` is 0, the rest means nothing. Values, not steps."""

    slot: npt.NDArray[np.intp]
    t: Ints
    seconds: Ints
    low: list[Floats]
    high: list[Floats]
    total: list[Floats]
    n: list[Ints]

    def __len__(self) -> int:
        return len(self.slot)

    def take(self, which: Any) -> "Rollup":
        return Rollup(self.slot[which], self.t[which], self.seconds[which],
                      [array[which] for array in self.low], [array[which] for array in self.high],
                      [array[which] for array in self.total], [array[which] for array in self.n])


def rolled_up(rows: SampleRows, bucket_s: int,
              only: Collection[int] = range(len(STORED))) -> Rollup:
    """`rows` by slot, then by time; `only`: of these columns."""
    t = rows.t - rows.t % bucket_s
    starts = _starts(rows.slot, t)
    if len(starts) == 0:
        return _empty()
    made = Rollup(rows.slot[starts], t[starts], _lengths(starts, len(t)), [], [], [], [])
    codes, of_row = in_runs(rows.missing)
    for at, column in enumerate(STORED):
        is_there = missing_at(codes, at) == 0
        if at not in only or not is_there.any():
            _skip(made)
        elif is_there.all():
            _add_whole(made, KEYS[at], rows.units[at], column.step, starts)
        else:
            _add(made, KEYS[at], rows.units[at].astype(np.float64) * column.step,
                 is_there[of_row], starts)
    return made


def _add_whole(made: Rollup, key: str, units: npt.NDArray[Any], step: float,
               starts: npt.NDArray[np.intp]) -> None:
    """Where nothing is missing, numbers are added as they came."""
    least, most = ((np.bitwise_and, np.bitwise_or) if key in MASKS else (np.minimum, np.maximum))
    made.low.append(least.reduceat(units, starts).astype(np.float64) * step)
    made.high.append(most.reduceat(units, starts).astype(np.float64) * step)
    made.total.append(np.add.reduceat(units.astype(np.float64), starts) * step)
    made.n.append(made.seconds.copy())


def coarser(fine: Rollup, bucket_s: int) -> Rollup:
    """`fine` by slot, then by time; there may be several parts of one bucket."""
    t = fine.t - fine.t % bucket_s
    starts = _starts(fine.slot, t)
    if len(starts) == 0:
        return _empty()
    made = Rollup(fine.slot[starts], t[starts], np.add.reduceat(fine.seconds, starts),
                  [], [], [], [])
    for at, key in enumerate(KEYS):
        there = fine.n[at] > 0
        low, high = _ends(key, fine.low[at], fine.high[at], there, starts)
        made.low.append(low)
        made.high.append(high)
        made.total.append(np.add.reduceat(np.where(there, fine.total[at], 0.0), starts))
        made.n.append(np.add.reduceat(fine.n[at], starts))
    return made


def _skip(made: Rollup) -> None:
    for values in (made.low, made.high, made.total):
        values.append(np.zeros(len(made)))
    made.n.append(np.zeros(len(made), np.int64))


def _add(made: Rollup, key: str, values: Floats, there: npt.NDArray[np.bool_],
         starts: npt.NDArray[np.intp]) -> None:
    low, high = _ends(key, values, values, there, starts)
    made.low.append(low)
    made.high.append(high)
    made.total.append(np.add.reduceat(np.where(there, values, 0.0), starts))
    made.n.append(np.add.reduceat(there.astype(np.int64), starts))


def _ends(key: str, low: Floats, high: Floats, there: npt.NDArray[np.bool_],
          starts: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    if key in MASKS:
        every = np.where(there, low, -1.0).astype(np.int64)
        some = np.where(there, high, 0.0).astype(np.int64)
        return (np.bitwise_and.reduceat(every, starts).astype(np.float64),
                np.bitwise_or.reduceat(some, starts).astype(np.float64))
    return (np.minimum.reduceat(np.where(there, low, np.inf), starts),
            np.maximum.reduceat(np.where(there, high, -np.inf), starts))


def _starts(slot: npt.NDArray[Any], t: Ints) -> npt.NDArray[np.intp]:
    if len(t) == 0:
        return np.zeros(0, np.intp)
    changes = (np.diff(slot) != 0) | (np.diff(t) != 0)
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def _lengths(starts: npt.NDArray[np.intp], end: int) -> Ints:
    return np.diff(np.append(starts, end)).astype(np.int64)


def _empty() -> Rollup:
    none = np.zeros(0)
    ints = np.zeros(0, np.int64)
    many = len(STORED)
    return Rollup(np.zeros(0, np.intp), ints, ints, [none] * many, [none] * many, [none] * many,
                  [ints] * many)


def joined(parts: list[Rollup]) -> Rollup:
    """Of parts that do not share slots, in their order."""
    parts = [part for part in parts if len(part)] or [_empty()]
    if len(parts) == 1:
        return parts[0]
    many = range(len(STORED))
    return Rollup(
        np.concatenate([part.slot for part in parts]), np.concatenate([part.t for part in parts]),
        np.concatenate([part.seconds for part in parts]),
        [np.concatenate([part.low[at] for part in parts]) for at in many],
        [np.concatenate([part.high[at] for part in parts]) for at in many],
        [np.concatenate([part.total[at] for part in parts]) for at in many],
        [np.concatenate([part.n[at] for part in parts]) for at in many])
