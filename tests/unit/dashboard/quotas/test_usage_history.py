"""Use of a quota over time: what is known of it, and what it gave then."""

import random

import pytest

from dashboard.quotas.store import QuotaVersion
from dashboard.quotas.usage_history import (
    HOUR_S,
    line,
    narrower,
    step_of,
    why_not,
)
from gpudeck.contract.quota import Quota

START = 1_000_000 * HOUR_S
FLEET = Quota("fleet", "*", gpus=4)


def test_means_of_each_step_and_a_hole_where_nothing_is_known() -> None:
    gpus = random.uniform(0.1, 9.0)
    usage = line(FLEET, "gpus", (START, START + 240), 60,
                 {START: gpus * 60, START + 120: 30.0}, frozenset((START, START + 60, START + 120)),
                 [])
    assert usage.usage == [pytest.approx(gpus), 0.0, 0.5, None]
    assert usage.most == [None] * 4


def test_it_says_what_was_given_then_and_not_what_is_given_now() -> None:
    gave = [QuotaVersion(quota, "", number, "ada", START + at, is_there)
            for number, quota, at, is_there in ((3, FLEET, 190, False),
                                                (2, Quota("fleet", "*", gpus=8), 130, True),
                                                (1, FLEET, 70, True))]
    usage = line(Quota("fleet", "*", gpus=1), "gpus", (START, START + 240), 60, {}, frozenset(),
                 gave)
    assert usage.most == [None, 4, 8, None]
    assert usage.usage == [None] * 4


def test_hours_are_those_of_the_day_until_then() -> None:
    daily = Quota("q", "*", gpu_hours=9.0)
    hours = {START + at * HOUR_S: random.randrange(HOUR_S) * 1.0 for at in range(60)}
    span = (START + 30 * HOUR_S, START + 60 * HOUR_S)
    usage = line(daily, "gpu_hours", span, HOUR_S, hours, frozenset(hours), [])
    for t, gpu_hours in zip(usage.t, usage.usage, strict=True):
        # As dashboard/quotas/service.py counts: whole hours from a day ago on, and the present one.
        assert gpu_hours == pytest.approx(sum(seconds for at, seconds in hours.items()
                                              if t - 86_400 <= at <= t) / HOUR_S)


def test_steps_are_fine_where_the_span_is_short() -> None:
    assert [step_of("gpus", span_s) for span_s in (10_800, 86_400, 604_800)] == [60, 300, HOUR_S]
    assert step_of("gpu_hours", 10_800) == HOUR_S


def test_what_a_narrower_quota_counts_is_not_counted_here() -> None:
    own, other = Quota("own", "user:alice", "node:n1", gpus=1), Quota("b", "user:bob", gpus=1)
    memory, group = Quota("m", "user:alice", mem_bytes=1), Quota("g", "group:ml", gpus=1)
    every = [FLEET, own, other, memory, group]
    assert narrower(FLEET, "gpus", "alice", (), every) == [own]
    assert narrower(FLEET, "gpus", "alice", ("ml",), every) == [own, group]
    assert narrower(own, "gpus", "alice", ("ml",), every) == []


@pytest.mark.parametrize(("quota", "why"), [
    (FLEET, ""), (Quota("q", "user:a", "node:n", gpus=1, count="together"), ""),
    (Quota("q", "slurm:12", gpus=1), "its container, job or sum"),
    (Quota("q", "*", gpus=1, count="together"), "its container, job or sum"),
    (Quota("q", "*", "gpu:G", gpus=0), "single GPU")])
def test_where_there_is_no_past_it_says_why(quota: Quota, why: str) -> None:
    assert why in why_not(quota, "gpus")
    assert bool(why_not(quota, "gpus")) == bool(why)
    assert "an age" in why_not(FLEET, "max_age_s")
