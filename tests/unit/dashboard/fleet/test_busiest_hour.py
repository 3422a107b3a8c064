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
    found = busiest_hour(mean, samples, START, step)
    return None if found is None else (found.start, found.end, found.util_mean_pct)


@settings(max_examples=60)
@given(STEPS, st.sampled_from([600, 1_800, 3_600, 14_400]))
def test_no_other_hour_of_the_span_used_more(steps: list[tuple[int, int] | None], step: int
                                             ) -> None:
    found = hour(steps, step)
    width = min(max(1, 3_600 // step), len(steps))
    used = [sum(one[0] * one[1] for one in steps[at:at + width] if one is not None)
            for at in range(len(steps) - width + 1)]
    if all(one is None for one in steps):
        assert found is None
        return
    assert found is not None
    at = (found[0] - START) // step
    assert used[at] == max(used)
    if max(used) > 0:
        assert at == used.index(max(used))
    assert found[1] - found[0] == width * step
    known = [one for one in steps[at:at + width] if one is not None]
    assert known, "of that hour something is known"
    share = sum(one[0] * one[1] for one in known) / sum(one[1] for one in known)
    assert abs(found[2] - share) < 0.001


def test_one_busy_gpu_while_all_others_are_silent_is_not_the_busiest_hour() -> None:
    many, one = (random.randrange(30, 60), 500), (100, 1)
    steps: list[tuple[int, int] | None] = [one, many, None]
    random.shuffle(steps)
    found = hour(steps, 3_600)
    assert found is not None
    assert found[0] == START + 3_600 * steps.index(many)
