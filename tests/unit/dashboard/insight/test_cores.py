"""Numbers in, numbers out: growth, progress and what is unlike its past."""

import random

import numpy as np
import pytest

from dashboard.insight.core.growth import MOST_S, MemoryGrowth, growth, seconds_until
from dashboard.insight.core.progress import no_progress
from dashboard.insight.core.unlike import BLOCKS, LEAST_BLOCKS, own_past
from tests.dice import generator

GIB = 2.0**30
STUCK = {"util_pct": 99.0, "power_w": 70.0, "limit_w": 700.0, "most_w": 700.0, "mem_util_pct": 0.0,
         "link": 0.0}


def grown(*gib: float, moves_gib: float = 0.0) -> MemoryGrowth:
    mean = np.array(gib)[:, None] * GIB
    return growth(mean, mean - moves_gib * GIB / 2, mean + moves_gib * GIB / 2, 480)


def per_h(*gib: float, moves_gib: float = 0.0) -> float:
    return float(grown(*gib, moves_gib=moves_gib).per_s[0] * 3_600 / GIB)


def test_what_grows_in_all_parts_alike_grows_that_fast() -> None:
    step, begin = random.uniform(0.05, 5), random.uniform(1, 50)
    assert per_h(*(begin + step * part for part in range(6))) == pytest.approx(step * 7.5)


@pytest.mark.parametrize("gib", [
    (1, 2, 3, 4, 5, 5),  # rests in one part
    (1, 2, 3, 4, 5, 4.9),
    (1, 1.01, 1.02, 1.03, 1.04, 1.05),  # less than an allocator rounds by
    (1, 9, 13, 15, 16, 16.5),  # less and less
])
def test_what_does_not_is_no_leak(gib: tuple[float, ...]) -> None:
    assert per_h(*gib) == 0.0
    assert gib[-1] > gib[0], "the control: its ends alone say that it grows"


def test_what_moves_as_much_within_a_part_is_no_leak() -> None:
    steady = (1, 1.1, 1.2, 1.3, 1.4, 1.5)
    assert per_h(*steady, moves_gib=0.1) > 0
    assert per_h(*steady, moves_gib=0.5) == 0.0


def test_what_is_not_known_is_not_0() -> None:
    assert np.isnan(per_h(1, 2, float("nan"), 4, 5, 6))
    assert np.isnan(seconds_until(np.array([1.0]), np.array([np.nan]))[0])
    assert np.isnan(seconds_until(np.array([np.nan]), np.array([1.0]))[0])


def test_the_interval_holds_the_slope() -> None:
    noisy = np.cumsum([random.uniform(0.5, 1.0) for _ in range(6)])
    interval = grown(*noisy)
    assert interval.low_per_s[0] <= interval.per_s[0] <= interval.high_per_s[0]
    assert interval.low_per_s[0] < interval.high_per_s[0]


@pytest.mark.parametrize("noise_share", [0.02, 0.1, 0.2, 0.3])
def test_the_interval_holds_the_slope_in_nine_of_ten(noise_share: float) -> None:
    """Noise nearly hides the growth."""
    step, runs = 0.1 * GIB, 4_000
    mean = 40 * GIB + step * np.arange(6)[:, None] + generator().normal(
        0, noise_share * step, (6, runs))
    slope = growth(mean, mean - step / 2, mean + step / 2, 480)
    grows = slope.per_s > 0
    holds = (slope.low_per_s <= step / 480) & (step / 480 <= slope.high_per_s)
    assert grows.sum() > 1_000
    assert 0.88 <= holds[grows].mean() <= 0.97


def test_time_until_ends() -> None:
    times_s = seconds_until(np.array([900.0, 100.0, -5.0, 1e12]), np.array([2.0, 0.0, 1.0, 1e-3]))
    assert times_s.tolist() == [420.0, MOST_S, 0.0, MOST_S]


def progress_of(**change: float) -> float:
    values = STUCK | change
    return float(no_progress(*(np.array([value]) for value in values.values()))[0])


def test_a_gpu_that_spins_makes_no_progress() -> None:
    assert progress_of() == 1.0


@pytest.mark.parametrize("change", [
    {"util_pct": 90.0}, {"power_w": 300.0}, {"mem_util_pct": 10.0}, {"link": 5e9},
    {"util_pct": 14.0, "power_w": 187.0, "mem_util_pct": 5.0, "link": 1e10},  # FSDP with offload
    {"util_pct": 0.0, "power_w": 120.0},  # a model that is loaded
])
def test_one_sign_of_work_is_enough(change: dict[str, float]) -> None:
    assert progress_of(**change) == 0.0


def test_what_the_board_does_not_report() -> None:
    nan = float("nan")
    assert progress_of(mem_util_pct=nan, link=nan) == 1.0
    assert progress_of(limit_w=nan) == 1.0
    for lacks in ({"util_pct": nan}, {"power_w": nan}, {"limit_w": nan, "most_w": nan}):
        assert np.isnan(progress_of(**lacks))


def test_a_past_that_is_too_short_or_too_lively_is_not_judged_by() -> None:
    level = np.full((BLOCKS, 3), 500.0)
    level[: BLOCKS - LEAST_BLOCKS + 1, 1] = np.nan
    high = level + 10
    high[3, 2] = 700.0
    past = own_past(level, level - 10, high, 10)
    assert past.is_steady.tolist() == [True, False, False]
    assert np.isnan(past.low[1])
    assert not np.isnan(past.low[2])
