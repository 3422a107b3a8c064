"""The period of steps: right from five seconds on, and silent where samples of a second lie."""

import numpy as np
import pytest

from dashboard.jobs.core.step_period import WINDOW_S, Floats, step_period_s
from tests.dice import generator

SECONDS = 2 * WINDOW_S
FINE = 100  # samples within a second


def sampled(period_s: float, dice: np.random.Generator, duty: float = 0.7, noise: float = 0.15,
            jitter: float = 0.0) -> Floats:
    """1 while it computes, 0 while it waits, averaged over each second; noise by the swing."""
    lengths = period_s * (1 + jitter * dice.standard_normal(int(SECONDS / period_s) + 3))
    at = np.cumsum(np.maximum(lengths, 0.1 * period_s)) - dice.uniform(0, period_s)
    fine = np.arange(SECONDS * FINE) / FINE
    step = np.searchsorted(at, fine)
    begin = np.where(step > 0, at[step - 1], at[0] - period_s)
    busy = (fine - begin) < duty * period_s
    wave: Floats = busy.reshape(-1, FINE).mean(axis=1) + noise * dice.standard_normal(SECONDS)
    return wave


def measure(period_s: float, dice: np.random.Generator, **how: float) -> float | None:
    """A board of 700 W whose memory is at work when it is."""
    share = sampled(period_s, dice, **how)
    other = share + 0.05 * dice.standard_normal(SECONDS)
    return step_period_s(250 + 400 * share, np.full(SECONDS, 95.0), [10 + 40 * other])


def test_within_a_tenth_in_95_of_100() -> None:
    dice = generator()
    periods = np.exp(dice.uniform(np.log(5.0), np.log(119.0), 300))
    right = [(guess := measure(period, dice, jitter=0.02, duty=dice.uniform(0.3, 0.85))) is not None
             and abs(guess - period) <= 0.1 * period for period in periods.tolist()]
    assert np.mean(right) >= 0.95


def test_under_four_seconds_nothing_is_said() -> None:
    dice = generator()
    for period in dice.uniform(0.03, 3.6, 200).tolist():
        assert measure(period, dice, duty=dice.uniform(0.3, 0.85)) is None, period


def test_two_witnesses_or_none() -> None:
    dice = generator()
    share = sampled(12.0, dice)
    watts, busy = 250 + 400 * share, np.full(SECONDS, 95.0)
    assert step_period_s(watts, busy, [10 + 40 * share]) == pytest.approx(12.0, rel=0.1)
    assert step_period_s(watts, busy, [10 + 40 * sampled(31.0, dice)]) is None
    assert step_period_s(watts, busy, [np.full(SECONDS, np.nan)]) is None
    assert step_period_s(watts, busy, []) is None
    assert step_period_s(watts, np.full(SECONDS, 3.0), [10 + 40 * share]) is None, "it rests"
    assert step_period_s(watts[10:], busy[10:], [10 + 40 * share[10:]]) is None, "too short"
    half = np.concatenate((sampled(12.0, dice)[:WINDOW_S], sampled(31.0, dice)[:WINDOW_S]))
    assert step_period_s(250 + 400 * half, busy, [10 + 40 * half]) is None


def test_noise_has_no_period() -> None:
    dice = generator()
    for _ in range(100):
        walk = np.zeros(SECONDS)
        for at in range(1, SECONDS):
            walk[at] = 0.9 * walk[at - 1] + dice.standard_normal()
        values = 400 + 40 * walk
        assert step_period_s(values, np.full(SECONDS, 95.0), [values / 10]) is None
