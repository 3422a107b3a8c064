"""Distance of a number from its own past: evidence that sums up minute by minute (CUSUM). Pure.

The textbook's limits (0.5 and 5 standard deviations around the mean) mark a healthy training run a
hundred times a week, because minutes of one run resemble each other. So only values outside the
whole range of the past count, by more than a standard deviation, and one minute counts for so much
at most: a checkpoint, an evaluation or the end of a run is over before it is enough.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BLOCKS = 12  # of the past
LEAST_BLOCKS = 6  # known ones that are needed to judge
SLACK, MOST_A_MINUTE = 1.5, 4.0  # standard deviations
ENOUGH = 12.0  # evidence: 5 minutes at least
LEAST_SHARE = 0.01  # of the level: no past is steadier than its sensor
STEADY_SHARE = 0.3  # of the level, from lowest to highest: a number that varies more is not judged
RANGE_IN_SDS = {2: 1.13, 3: 1.69, 4: 2.06, 5: 2.33, 10: 3.08, 15: 3.47, 20: 3.73, 30: 4.09,
                60: 4.64, 120: 5.15}  # the expected range of so many normal values


@dataclass(frozen=True, slots=True)
class OwnPast:
    """Past of each row. NaN: too little is known. `is_steady` 0: it varies too much to be
    judged."""

    low: Floats
    high: Floats
    sd: Floats
    is_steady: npt.NDArray[np.bool_]


def own_past(mean: npt.NDArray[np.floating[Any]], low: npt.NDArray[np.floating[Any]],
             high: npt.NDArray[np.floating[Any]], minutes: int) -> OwnPast:
    """Summarise blocks x rows, `minutes` in each block: trimmed means, which one block that is
    unlike the others does not move."""
    is_known = ~np.isnan(mean)
    count = is_known.sum(axis=0)
    enough = count >= LEAST_BLOCKS
    level = _trimmed(mean, is_known, count).astype(mean.dtype)  # float32 takes half the time
    noise = _trimmed(high - low, is_known, count) / range_in_sds(minutes)
    drift = _trimmed(np.abs(mean - level), is_known, count) * 1.25  # mean deviation of a normal one
    sd = np.maximum(np.maximum(noise, drift), LEAST_SHARE * np.abs(level))
    lowest, highest = np.fmin.reduce(low, axis=0), np.fmax.reduce(high, axis=0)
    with np.errstate(invalid="ignore"):
        is_steady = enough & (sd > 0) & (highest - lowest <= STEADY_SHARE * np.abs(level))
    nothing = np.where(enough, 0.0, np.nan)
    return OwnPast(lowest + nothing, highest + nothing, sd + nothing, is_steady)


def _trimmed(values: npt.NDArray[np.floating[Any]], is_known: npt.NDArray[np.bool_],
             count: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return the mean without the lowest and the highest."""
    total = np.where(is_known, values, 0.0).sum(axis=0)
    ends = np.fmin.reduce(values, axis=0) + np.fmax.reduce(values, axis=0)
    return np.where(count >= 3, (total - ends) / np.maximum(count - 2, 1), np.nan)


def range_in_sds(many: int) -> float:
    return RANGE_IN_SDS[min(RANGE_IN_SDS, key=lambda size: abs(size - many))]


def evidence(before: Floats, value: Floats, past: OwnPast) -> Floats:
    """Return the evidence after one more minute, of one side. A minute that is not known changes
    nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        outside = np.where(value > past.high, value - past.high, 0.0) / past.sd
        step = np.clip(outside - SLACK, -SLACK, MOST_A_MINUTE - SLACK)
        after = np.maximum(0.0, before + step)
    after = np.where(past.is_steady, after, 0.0)
    return np.where(np.isnan(value) | np.isnan(past.low), before, after)


def mirrored(past: OwnPast) -> OwnPast:
    """Mirror the past, so that a fall is treated as a rise."""
    return OwnPast(-past.high, -past.low, past.sd, past.is_steady)
