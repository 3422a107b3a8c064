"""Shown where it is better than what needs no method, on the past of that very fleet; else not."""

from pathlib import Path

import numpy as np
import pytest

from dashboard.insight.core import demand
from dashboard.insight.core.demand import (
    BETTER_BY,
    DAY,
    LEARNS_FROM,
    LEAST_FOLDS,
    NAIVE,
    by_hour_of_day,
    forecast,
)
from tests import dice
from tests.demand_traces import openb, row

PAGE = Path(__file__).parents[4] / "docs" / "insight.md"
WEEKS_5 = 5 * 7 * DAY


def weeks(random: np.random.Generator, days: int, reverts: float) -> demand.Floats:
    """A usual day, and what comes and goes beside it: at `reverts` 1 it stays."""
    usual = 200 + 60 * np.sin(2 * np.pi * np.arange(DAY) / DAY)
    beside, hours = 0.0, np.empty(days * DAY)
    for hour in range(len(hours)):
        beside = reverts * beside + random.normal(0, 8)
        hours[hour] = usual[hour % DAY] + beside
    return np.asarray(np.maximum(hours, 0.0))


def test_too_little_of_the_past_is_told_in_one_way() -> None:
    """A past with holes, and one that is whole but short."""
    days = LEARNS_FROM // DAY + LEAST_FOLDS
    holes = np.full(days * DAY, np.nan)
    holes[:30] = 5.0
    whys = [forecast(hours).why for hours in (holes, np.full(3 * DAY, 5.0))]
    assert whys == [f"testing a forecast on this fleet's past takes {days} days of history; "
                    f"{there} recorded" for there in ("1 is", "3 are")]


def test_it_is_shown_where_it_is_better_with_an_interval_that_holds() -> None:
    # One past in forty is such that its own interval does not hold on it.
    forecasts = [forecast(weeks(dice.generator(), 90, 0.97)[:-DAY], 0.0) for _ in range(3)]
    first, *_ = useful = [result for result in forecasts if result.why == ""]
    assert len(useful) >= 2
    assert first.test is not None
    assert first.test.ratio <= BETTER_BY
    assert first.test.covered is not None
    assert 0.7 <= first.test.covered <= 0.9
    assert (first.p10 <= first.p50).all()
    assert (first.p50 <= first.p90).all()
    assert len(first.p50) == DAY


def test_a_walk_that_nobody_can_foresee_is_not_shown() -> None:
    walk = np.cumsum(dice.generator().normal(0, 5, 90 * DAY)) + 5_000
    result = forecast(walk)
    assert result.test is not None
    assert result.test.best_naive == "last value"
    assert "best naive guess" in result.why
    assert len(result.p50) == 0


def test_where_the_naive_guess_was_never_wrong_there_is_nothing_to_beat() -> None:
    """A queue that has always been empty."""
    result = forecast(np.zeros(90 * DAY))
    assert len(result.p50) == 0
    assert "never wrong" in result.why


def test_a_public_trace_on_which_it_is_not_better_shows_nothing() -> None:
    """Alibaba's openb, 21 weeks: pods that stay, so that the last value is hard to beat."""
    hours = openb()
    assert row("openb", hours) in PAGE.read_text()
    assert len(hours) >= WEEKS_5
    result = forecast(hours, 0.0)
    assert result.test is not None
    assert result.test.ratio > BETTER_BY
    assert len(result.p50) == 0


@pytest.mark.parametrize("hours", [
    np.empty(0), np.full(50 * DAY, np.nan), np.full(LEARNS_FROM + (LEAST_FOLDS - 1) * DAY, 5.0)])
def test_too_little_is_said(hours: demand.Floats) -> None:
    result = forecast(hours)
    assert result.test is None
    assert result.why
    assert len(result.p50) == 0


def test_holes_are_the_day_before_and_not_0() -> None:
    hours = weeks(dice.generator(), 60, 0.9)
    holed = hours.copy()
    holed[[100, 101, 700]] = np.nan
    whole = demand.filled(holed)
    assert whole is not None
    assert whole[100] == hours[76]
    assert whole[700] == hours[676]


def test_what_is_forecast_is_what_can_be() -> None:
    drawn = (forecast(weeks(dice.generator(), 90, 0.97), 150.0, 210.0) for _ in range(5))
    result = next(result for result in drawn if not result.why)  # few are no better than last week
    assert 150 <= result.p10.min() <= result.p90.max() <= 210


def test_the_hours_of_a_usual_day_of_utc() -> None:
    first = 480_000 * DAY + 5
    usual = dice.generator().permutation(DAY).astype(float)
    hours = np.array([usual[(first + at) % DAY] for at in range(20 * DAY)])
    hours[-3 * DAY] += 1_000  # one odd day
    hours[:7 * DAY] = np.nan
    assert by_hour_of_day(hours, first).tolist() == usual.tolist()
    hours[: 14 * DAY] = np.nan
    assert by_hour_of_day(hours, first).tolist() == []
    assert by_hour_of_day(np.empty(0), first).tolist() == []


def test_the_naive_guesses_are_what_they_say() -> None:
    hours = np.arange(14 * DAY, dtype=float)
    assert NAIVE["last value"](hours).tolist() == [hours[-1]] * DAY
    assert NAIVE["yesterday"](hours)[0] == hours[-DAY]
    assert NAIVE["last week"](hours)[0] == hours[-7 * DAY]
    assert NAIVE["median of 7 days"](hours)[0] == hours[-4 * DAY]
