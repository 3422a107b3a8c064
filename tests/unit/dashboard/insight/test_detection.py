"""The table of docs/insight.md is what the code comes to, and within what was promised."""

from pathlib import Path

import numpy as np
import pytest

from dashboard.alerts.core.minute_blocks import GrowthWindow
from dashboard.alerts.core.rule_signal import SignalTerm
from tests import dice
from tests import insight_scenes as scenes
from tests.detection import (
    LEAK_PER_S,
    UNLIKE,
    begins_at,
    episodes,
    grown,
    minutes_until,
    table,
    table_of_seconds,
    unlike,
)

PAGE = Path(__file__).parents[4] / "docs" / "insight.md"
RUNS, RUNS_OF_SECONDS = 1_000, 500


def test_the_table_of_the_page_is_measured() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for row in (*table(RUNS), *table_of_seconds(RUNS_OF_SECONDS)):
        assert f"| {' | '.join(row)} |" in rows


def test_a_leak_is_found_within_the_hour_and_a_healthy_run_is_not_one() -> None:
    random = dice.generator()
    begins = begins_at(random, 200, 120)
    minutes = minutes_until(grown(scenes.leak(random, 210, 200, begins)) >= LEAK_PER_S, begins)
    assert minutes.max() <= 60
    for make in scenes.CLEAN_MEMORY.values():
        assert episodes(grown(make(random, 600, 200)) >= LEAK_PER_S) <= 1


def test_a_slope_alone_would_be_wrong() -> None:
    """The control: by its ends, each warm-up and each server's start is a leak."""
    random = dice.generator()
    for make in (scenes.warm_up, scenes.server_start):
        memory = make(random, 60, 200)
        assert ((memory[-1] - memory[0]) / 3_600 >= LEAK_PER_S).mean() > 0.5


def test_a_slower_job_is_marked_and_an_unchanged_one_hardly_ever() -> None:
    random = dice.generator()
    begins = begins_at(random, 200, 180)
    minutes = minutes_until(unlike(scenes.slower(random, 260, 200, begins)) >= UNLIKE, begins)
    assert np.quantile(minutes, 0.5) <= 6
    assert np.isfinite(minutes).mean() > 0.95
    for make in scenes.CLEAN_POWER.values():
        assert episodes(unlike(make(random, 600, 200)) >= UNLIKE) <= 4


@pytest.mark.parametrize("by_s", [86_400, -86_400])
def test_a_clock_that_is_set_does_not_make_a_past(by_s: int) -> None:
    window = GrowthWindow(SignalTerm("growth", "mem_used_bytes", 2_880), 60, 0.8)
    window.grow(1)
    begin = 10 * 86_400
    for minute in range(70):
        window.add(begin + 60 * minute, np.array([1e10 + 1e8 * minute]))
    assert window.values()[0] > 0
    for minute in range(10):
        window.add(begin + by_s + 60 * minute, np.array([1e10]))
    assert np.isnan(window.values()[0])
