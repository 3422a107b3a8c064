"""The busiest hour of a fleet: by the GPU time that was used in it."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.fleet.past_views import busiest_hour

START = 1_800_000_000
STEPS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 100), st.integers(1, 500))),
                 min_size=1, max_size=40)


def hour(steps: list[tuple[int, int] | None], step: int) -> tuple[int, int, float] | None:
    mean = np.array([np.nan if one is None else one[0] for one in steps], float)
    samples = np.array([np.nan if one is None else one[1] for one in steps], float)
    view = busiest_hour(mean, samples, START, step)
    return None if view is None else (view.start, view.end, view.util_mean_pct)


@settings(max_examples=60)
@given(STEPS, st.sampled_from([600, 1_800, 3_600, 14_400]))
def test_no_other_hour_of_the_span_used_more(steps: list[tuple[int, int] | None], step: int
                                             ) -> None:
    busiest = hour(steps, step)
    width = min(max(1, 3_600 // step), len(steps))
    gpu_time = [sum(one[0] * one[1] for one in steps[at:at + width] if one is not None)
                for at in range(len(steps) - width + 1)]
    if all(one is None for one in steps):
        assert busiest is None
        return
    assert busiest is not None
    at = (busiest[0] - START) // step
    assert gpu_time[at] == max(gpu_time)
    if max(gpu_time) > 0:
        assert at == gpu_time.index(max(gpu_time))
    assert busiest[1] - busiest[0] == width * step
    measured = [one for one in steps[at:at + width] if one is not None]
    assert measured, "of that hour something is known"
    share = sum(one[0] * one[1] for one in measured) / sum(one[1] for one in measured)
    assert abs(busiest[2] - share) < 0.001


def test_one_busy_gpu_while_all_others_are_silent_is_not_the_busiest_hour() -> None:
    many, one = (random.randrange(30, 60), 500), (100, 1)
    steps: list[tuple[int, int] | None] = [one, many, None]
    random.shuffle(steps)
    busiest = hour(steps, 3_600)
    assert busiest is not None
    assert busiest[0] == START + 3_600 * steps.index(many)
