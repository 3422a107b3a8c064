"""Duration of a training step, from samples of one second: a period that two metrics show. Pure.

Steps of under two seconds look like longer ones at that rate (0.4 s like 2 s), so that no period
under four is believed. Power alone lies too: a board that rests does its housekeeping every minute.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WINDOW_S = 600
WINDOWS = 2
LEAST_S, MOST_S = 4.0, 120.0
LIKE_ITSELF = 0.6  # the autocorrelation at one period
RISE = 0.3  # of it from the trough before: noise on a slow wave has peaks as well
RISE_BEFORE = 0.25  # of a peak before it, at most: of a shorter period this is a multiple
SWING_SHARE = 0.05  # standard deviation by the mean; what is left of shorter steps has less
AGREE = 0.1
KNOWN_SHARE = 0.95
WORKING_PCT = 20.0


def step_period_s(power_w: Floats, util_pct: Floats, witnesses: Sequence[Floats]) -> float | None:
    """Return the period in the last WINDOWS of WINDOW_S seconds of one GPU. `witnesses`: memory
    utilization, traffic of links. None: no period is visible."""
    periods = []
    for at in range(WINDOWS):
        part = slice(len(power_w) - (at + 1) * WINDOW_S, len(power_w) - at * WINDOW_S)
        if part.start < 0 or not _works(util_pct[part]):
            return None
        period = _period(power_w[part])
        if period is None or not any(
                _agree(period, _period(witness[part])) for witness in witnesses):
            return None
        periods.append(period)
    return float(np.mean(periods)) if _agree(*periods) else None


def _works(util_pct: Floats) -> bool:
    known_pct = util_pct[~np.isnan(util_pct)]
    return len(known_pct) >= KNOWN_SHARE * WINDOW_S and float(known_pct.mean()) >= WORKING_PCT


def _agree(one: float, other: float | None) -> bool:
    return other is not None and abs(one - other) <= AGREE * max(one, other)


def _period(values: Floats) -> float | None:
    is_known = ~np.isnan(values)
    if is_known.sum() < KNOWN_SHARE * len(values):
        return None
    mean = float(values[is_known].mean())
    around = np.where(is_known, values - mean, 0.0)
    if float(around[is_known].std()) < SWING_SHARE * abs(mean):
        return None
    like = _autocorrelation(around)
    trough = np.minimum.accumulate(like)
    for lag in range(2, int(MOST_S) + 2):
        near = max(1, lag // 8)
        if (like[lag] >= LIKE_ITSELF and like[lag] - trough[lag] >= RISE
                and like[lag] >= like[max(1, lag - near):lag + near + 1].max()):
            period = lag + _vertex(*like[lag - 1:lag + 2].tolist())
            is_first = _rise(like[1:lag]) <= RISE_BEFORE
            return period if LEAST_S <= period <= MOST_S and is_first else None
    return None


def _rise(like: Floats) -> float:
    """Return the largest rise from a trough, up to the trough before the peak in question."""
    until = like[:int(like.argmin()) + 1]
    after = like[int(like.argmin()):]
    before = float((until - np.minimum.accumulate(until)).max(initial=0.0))
    falls = float((np.maximum.accumulate(after) - after).max(initial=0.0))
    return max(before, falls)


def _autocorrelation(around: Floats) -> Floats:
    """Return the autocorrelation at each lag up to twice the longest, by the number of pairs that
    there are."""
    size = len(around)
    spectrum = np.fft.rfft(around, 2 * size)
    lags = int(MOST_S) * 2
    sums = np.fft.irfft(spectrum * spectrum.conj())[:lags]
    per_pair = sums / np.arange(size, size - lags, -1)
    normalised: Floats = per_pair / per_pair[0]
    return normalised


def _vertex(before: float, at: float, after: float) -> float:
    """Return the vertex of the parabola through three points, relative to the middle one."""
    bend = before - 2 * at + after
    return 0.0 if bend >= 0 else 0.5 * (before - after) / bend
