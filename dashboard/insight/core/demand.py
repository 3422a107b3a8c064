"""Forecast of the next day of an hourly number of a fleet, with the error that the same method
would have made on the fleet's own past, beside the best naive guess. Pure.

`hours`: one value an hour, oldest first; NaN is not known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Method = Callable[[Floats], Floats]  # hours until now -> the next day

DAY, WEEK = 24, 168
LEAST_FOLDS = 28  # days that are forecast as if they were not known
FOLDS_MOST = 84
LEARNS_FROM = 2 * WEEK
BETTER_BY = 0.9  # of the error of the best naive guess
LOW, HIGH = 0.1, 0.9
COVERS_LEAST, COVERS_MOST = 0.7, 0.9
LEAST_KNOWN = 0.8  # of the hours from which it learns


@dataclass(frozen=True, slots=True)
class Backtest:
    """Test on the past. `errors`: mean absolute error of each method. `covered`: the share of hours
    that lay within p10 and p90."""

    folds: int
    errors: Mapping[str, float]
    best_naive: str
    covered: float | None

    @property
    def ratio(self) -> float:
        """Ratio of our error to that of the best naive guess."""
        return self.errors[OURS] / max(self.errors[self.best_naive], 1e-12)


@dataclass(frozen=True, slots=True)
class DayForecast:
    """Forecast for each of the next 24 hours. `why`: in words, where nothing is shown; `test` None:
    there is too little to have tested it on."""

    p10: Floats
    p50: Floats
    p90: Floats
    test: Backtest | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class DemandOutlook:
    """A number's recent hours and its forecast. `first`: the hour of `recent[0]`; the forecast
    begins after the last of them."""

    first: int
    recent: Floats
    forecast: DayForecast


NOTHING = np.empty(0)


def last_value(hours: Floats) -> Floats:
    return np.full(DAY, hours[-1])


def yesterday(hours: Floats) -> Floats:
    return hours[-DAY:]


def last_week(hours: Floats) -> Floats:
    return hours[-WEEK:][:DAY]


def usual_day(hours: Floats) -> Floats:
    """Return the median of the last seven days at the same hour."""
    median: Floats = np.median(hours[-WEEK:].reshape(-1, DAY), axis=0)
    return median


NAIVE: dict[str, Method] = {"last value": last_value, "yesterday": yesterday,
                            "last week": last_week, "median of 7 days": usual_day}
OURS = "usual day from today's level"
PROFILE_DAYS, LASTS = 14, 0.98  # share of the distance from a usual day that is left after an hour


def usual_from_now(hours: Floats) -> Floats:
    """Return the median of two weeks at each hour, plus the newest hour's distance from it, which
    fades.

    On the traces it was tested on, additive Holt-Winters was worse than the last value.
    """
    days = min(PROFILE_DAYS, len(hours) // DAY)
    usual = np.median(hours[-DAY * days :].reshape(-1, DAY), axis=0)
    level: Floats = usual + LASTS ** np.arange(1, DAY + 1) * (hours[-1] - usual[-1])
    return level


def by_hour_of_day(hours: Floats, first: int) -> Floats:
    """Return the median of the last two weeks at each hour of a day of UTC; `first`: the hour of
    `hours[0]`. Empty where one of them was seen on less than seven days: this is what was, not a
    forecast."""
    recent = hours[-DAY * PROFILE_DAYS :]
    at = (np.arange(len(recent)) + first + len(hours) - len(recent)) % DAY
    of_day = [recent[(at == hour) & ~np.isnan(recent)] for hour in range(DAY)]
    if min(map(len, of_day)) < WEEK // DAY:
        return NOTHING
    return np.array([np.median(values) for values in of_day])


METHODS: dict[str, Method] = {OURS: usual_from_now, **NAIVE}


def filled(hours: Floats) -> Floats | None:
    """Fill holes with the same hour of the day before; None: there are too many."""
    if len(hours) == 0 or np.isnan(hours).mean() > 1 - LEAST_KNOWN:
        return None
    whole = hours.astype(float).copy()
    for at in np.flatnonzero(np.isnan(whole)).tolist():
        whole[at] = whole[at - DAY] if at >= DAY else np.nan
    places = np.flatnonzero(~np.isnan(whole))
    whole[: places[0]] = whole[places[0]]
    return np.where(np.isnan(whole), np.nanmedian(whole), whole)


def forecast(hours: Floats, least: float = 0.0, most: float = np.inf) -> DayForecast:
    """Forecast the next day. `least`, `most`: bounds of the number."""
    whole = filled(hours)
    folds = 0 if whole is None else min(FOLDS_MOST, (len(whole) - LEARNS_FROM) // DAY)
    if whole is None or folds < LEAST_FOLDS:
        days = LEARNS_FROM // DAY + LEAST_FOLDS
        there = len(hours) if whole is not None else int((~np.isnan(hours)).sum())
        return _nothing(f"testing a forecast on this fleet's past takes {days} days of history; "
                        f"{there // DAY} {'is' if there // DAY == 1 else 'are'} recorded")
    missed = _missed(whole, folds)
    test = _tested(missed)
    if not test.errors[test.best_naive]:
        return _nothing(f"on this fleet's past the best naive guess ({test.best_naive}) was never "
                        "wrong", test)
    if test.ratio > BETTER_BY:
        return _nothing(f"on this fleet's past its error is {test.ratio:.0%} of that of the best "
                        f"naive guess ({test.best_naive}); {BETTER_BY:.0%} or less is needed", test)
    if test.covered is None or not COVERS_LEAST <= test.covered <= COVERS_MOST:
        return _nothing("the interval did not hold on this fleet's past", test)
    guess, off = usual_from_now(whole), missed[OURS][-LEAST_FOLDS:]
    low, middle, high = (np.clip(guess + np.quantile(off, at, axis=0), least, most)
                         for at in (LOW, 0.5, HIGH))
    return DayForecast(low, middle, high, test)


def _nothing(why: str, test: Backtest | None = None) -> DayForecast:
    return DayForecast(NOTHING, NOTHING, NOTHING, test, why)


def _missed(hours: Floats, folds: int) -> dict[str, Floats]:
    """Return the errors that each method would have made: folds x hours ahead."""
    ends = [len(hours) - DAY * (folds - fold) for fold in range(folds)]
    return {name: np.array([hours[end : end + DAY] - method(hours[:end]) for end in ends])
            for name, method in METHODS.items()}


def _tested(missed: Mapping[str, Floats]) -> Backtest:
    errors = {name: float(np.abs(off).mean()) for name, off in missed.items()}
    best = min(NAIVE, key=lambda name: errors[name])
    own, inside = missed[OURS], []
    for fold in range(LEAST_FOLDS // 2, len(own)):
        before = own[max(0, fold - LEAST_FOLDS) : fold]
        low, high = np.quantile(before, LOW, axis=0), np.quantile(before, HIGH, axis=0)
        inside.append((own[fold] >= low) & (own[fold] <= high))
    return Backtest(len(own), errors, best, float(np.mean(inside)) if inside else None)
