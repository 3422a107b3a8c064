"""Choice of the job of a shared GPU that goes first: one of each, and never one above another."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dashboard.insight.core.order import NONE, is_first_to_go

uses = st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 3), st.integers(0, 4),
                          st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=24)


@given(uses)
def test_one_of_each_gpu_at_most_and_never_one_above_another(
    uses_of_gpus: list[tuple[int, int, int, int | None]],
) -> None:
    job, gpu, priority, started = (np.array(column) for column in zip(*[
        (job, gpu, float(priority), np.nan if start is None else float(start))
        for job, gpu, priority, start in uses_of_gpus], strict=True))
    going_first = is_first_to_go(job, gpu, priority, started, 4)
    speaks = {job_id: max(priority[(job == job_id) & ~np.isnan(started)], default=-1.0)
              for job_id in {*job.tolist()}}
    for here in range(4):
        mine = gpu == here
        if not mine.any():
            continue
        if (job[mine] == NONE).any() or np.isnan(started[mine]).any():
            assert np.isnan(going_first[mine]).all(), "who is there is not known: nobody goes"
            continue
        going = {*job[mine & (going_first == 1)].tolist()}
        there = {*job[mine].tolist()}
        assert len(going) == (1 if len(there) > 1 else 0)
        for job_id in going:
            assert speaks[job_id] == min(speaks[other] for other in there)
            assert (going_first[mine & (job == job_id)] == 1).all(), "all of it"


def test_of_equals_the_latest_goes() -> None:
    old, new = random.sample(range(5), 2)
    job, gpu = np.array([old, new, old]), np.array([0, 0, 1])
    equal = np.full(3, 2.0)
    assert is_first_to_go(job, gpu, equal, np.array([1.0, 9.0, 1.0]), 2).tolist() == [0, 1, 0]
    above = np.where(job == new, 3.0, 2.0)
    assert is_first_to_go(job, gpu, above, np.array([1.0, 9.0, 1.0]), 2).tolist() == [1, 0, 0]


def test_the_most_important_task_of_a_job_speaks_for_it() -> None:
    job, gpu = np.array([0, 0, 1]), np.array([0, 1, 0])
    going_first = is_first_to_go(job, gpu, np.array([0.0, 4.0, 3.0]), np.array([5.0, 5.0, 1.0]), 2)
    assert going_first.tolist() == [0, 0, 1]
