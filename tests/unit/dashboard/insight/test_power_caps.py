"""A power cap is proposed only where the past says that it costs little; else nothing is said."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dashboard.insight.core.advice import advise
from dashboard.insight.core.power_caps import (
    CAP_SHARE,
    LOSS_MOST,
    cap_of,
    elasticity_most,
    power_cap_chances,
)
from dashboard.insight.core.week import Floats, MeasuredWeek, WeekGpu

HOURS, LIMIT_W = 192, 700.0
GPU = WeekGpu("GPU-0", "n1", "host", "0", "H100", 80e9, "ana", power_default_w=LIMIT_W,
              power_least_w=200.0)


def lot() -> np.random.Generator:
    return np.random.default_rng(random.randrange(10**6))


def week(gpu: WeekGpu = GPU, **changes: Any) -> MeasuredWeek:
    """Return a week of work that is bound by memory, on a board at its limit."""
    draw = lot()
    clock = 1_500.0 * (1 + 0.04 * draw.standard_normal(HOURS))
    columns: dict[str, Floats] = {
        "held": np.ones(HOURS), "used": np.ones(HOURS), "util": np.full(HOURS, 99.0),
        "sm": np.full(HOURS, 60.0), "memory": np.full(HOURS, 6e10), "clock": clock,
        "bandwidth": 75.0 * (1 + 0.003 * draw.standard_normal(HOURS)),
        "power": 690.0 + draw.uniform(-5, 5, HOURS)}
    for name, change in changes.items():
        columns[name] = change(columns)
    held_h, used_h, *rest = (columns[name][:, None] for name in (
        "held", "used", "util", "sm", "bandwidth", "memory", "power", "clock"))
    util, sm, bandwidth, memory, power, clock = rest
    return MeasuredWeek((gpu,), ("ana",), held_h, used_h, util, sm, bandwidth, memory, power, clock,
                        held_h, used_h)


def test_what_it_would_have_saved_hour_by_hour() -> None:
    past = week()
    [chance] = power_cap_chances(past)
    assert (chance.gpus, chance.watts) == ((0,), CAP_SHARE * LIMIT_W)
    assert 0 <= chance.loss < 0.01
    slower_wh = chance.loss * chance.watts * HOURS
    drawn_wh = sum(float(power) - chance.watts for power in past.power[:, 0])
    assert chance.saved_wh[0] == pytest.approx(drawn_wh - slower_wh)
    assert chance.capped_hours == HOURS
    [advice] = [item for item in advise(past, (), {}, "pack") if item.kind == "power"]
    assert advice.gpu_hours == pytest.approx(chance.saved_wh[0] / LIMIT_W / past.weeks)
    assert "gpudeck gpu cap GPU-0 560 --for 1d" in advice.command
    assert advice.undo.startswith("gpudeck gpu release GPU-0 power")


SILENT: dict[str, dict[str, Any]] = {
    "bound by the clock": {"bandwidth": lambda of: 75.0 * of["clock"] / 1_500.0},
    "a half of it is": {"bandwidth": lambda of: 75.0 * np.sqrt(of["clock"] / 1_500.0)},
    "heavier work has lowered the clock": {"bandwidth": lambda of: 75.0 * 1_500.0 / of["clock"]},
    "it tells nothing": {"bandwidth": lambda of: 75.0 * lot().uniform(0.7, 1.3, HOURS)},
    "the clock did not change": {"clock": lambda of: np.full(HOURS, 1_500.0)},
    "not bound by memory": {"bandwidth": lambda of: of["bandwidth"] * 0.5},
    "not at its limit": {"power": lambda of: of["power"] * 0.8},
    "at its limit now and then": {"power": lambda of: np.where(
        np.arange(HOURS) % 3 == 0, of["power"], 300.0)},
    "seldom at work": {"util": lambda of: np.where(np.arange(HOURS) < 20, 99.0, 10.0)},
    "power is not measured": {"power": lambda of: np.full(HOURS, np.nan)},
    "clocks are not measured": {"clock": lambda of: np.full(HOURS, np.nan)},
}


@pytest.mark.parametrize("why", SILENT)
def test_nothing_is_said_where_one_thing_is_missing(why: str) -> None:
    assert not [*power_cap_chances(week(**SILENT[why]))]


@pytest.mark.parametrize("gpu", [
    replace(GPU, owner=None), replace(GPU, is_mig=True), replace(GPU, power_default_w=None),
    replace(GPU, power_least_w=None), replace(GPU, power_least_w=650.0)])
def test_nor_of_a_board_that_cannot_be_capped_for_one(gpu: WeekGpu) -> None:
    assert not [*power_cap_chances(week(gpu))]


def test_a_cap_is_never_below_what_the_board_takes() -> None:
    assert cap_of(replace(GPU, power_least_w=600.0)) == 600
    assert cap_of(GPU) == 560


def test_its_loss_is_that_of_work_whose_speed_depends_on_the_clock() -> None:
    """Played: work of which a share follows the clock. What is proposed really costs no more than
    is said, in all but one of twenty times."""
    wrong = proposed = 0
    for _ in range(60):
        share = random.uniform(0.0, 0.3)
        [*chances] = power_cap_chances(week(bandwidth=lambda of, share=share: 75.0 * (
            1 + share * (of["clock"] / 1_500.0 - 1) + 0.004 * lot().standard_normal(HOURS))))
        if chances:
            proposed += 1
            assert chances[0].loss <= LOSS_MOST
            wrong += share * (1 - CAP_SHARE) > chances[0].loss + 0.002
    assert proposed >= 20
    assert wrong <= 6


def test_elasticity_is_what_was_put_in() -> None:
    clock = 1_500.0 * (1 + 0.04 * lot().standard_normal(500))
    for share in (0.2, 0.7, -0.5):
        most = elasticity_most(clock, 50.0 * (clock / 1_500.0) ** share)
        assert most == pytest.approx(abs(share), abs=1e-6)
