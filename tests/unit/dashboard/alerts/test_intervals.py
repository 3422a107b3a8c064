"""Unbroken times, against a count of every second."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.alerts.core.minute_aggregates import closed_minutes
from dashboard.alerts.rehearsal.intervals import (
    TargetIntervals,
    TargetPresence,
    count_by_second,
    covers,
    intersect,
    mean_by_second,
    merge,
)
from dashboard.alerts.rehearsal.task_runs import BEFORE, TaskMinuteRuns, chain_runs, merge_runs

SIZE, MINUTES = 3, 4
SECONDS = MINUTES * 60
Row = tuple[int, int, int]
ROWS = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SECONDS + 50),
                          st.integers(0, 120)), max_size=12)


def spells(rows: list[Row]) -> TargetIntervals:
    table = np.array([(of, start, start + long) for of, start, long in rows], np.intp)
    return TargetIntervals(*table.reshape(-1, 3).T)


def by_second(intervals: TargetIntervals, seconds: int = SECONDS) -> np.ndarray:
    counts = np.zeros((SIZE, seconds), int)
    for of, start, end in zip(intervals.of, intervals.start, intervals.end, strict=True):
        counts[of, start:end] += 1
    return counts


@given(ROWS)
def test_joined_is_what_any_of_them_covers(rows: list[Row]) -> None:
    counts = by_second(spells(rows), SECONDS + 200)
    for touching in (True, False):
        assert (by_second(merge(spells(rows), touching), SECONDS + 200) == (counts > 0)).all()
    apart = merge(spells(rows))
    assert (apart.end > apart.start).all()
    assert all(apart.start[at + 1] > apart.end[at] for at in range(len(apart) - 1)
               if apart.of[at] == apart.of[at + 1])


def test_who_begins_as_the_other_ends_did_not_carry_it_over() -> None:
    rows = spells([(0, 0, 30), (0, 30, 20), (1, 0, 30), (1, 29, 21)])
    assert merge(rows).start.tolist() == [0, 0]
    apart = merge(rows, touching=False)
    assert list(zip(apart.of.tolist(), apart.start.tolist(), apart.end.tolist(), strict=True)) == [
        (0, 0, 30), (0, 30, 50), (1, 0, 50)]


@given(ROWS, ROWS)
def test_common_is_what_both_cover(one: list[Row], other: list[Row]) -> None:
    mine, its = merge(spells(one)), merge(spells(other))
    counts = by_second(intersect(mine, mine.of, its))
    assert (counts == by_second(mine) * by_second(its)).all()


@given(ROWS, st.integers(-30, 120))
def test_counted_is_what_is_there_in_each_second(rows: list[Row], later_s: int) -> None:
    whole = by_second(spells(rows), 2 * SECONDS)
    counts = count_by_second(spells(rows).later(later_s), SIZE, SECONDS)
    shifted_counts = np.zeros((SIZE, SECONDS), int)
    shifted_counts[:, max(0, -later_s):] = whole[:, max(0, later_s): SECONDS + later_s]
    assert (counts == shifted_counts).all()


@given(ROWS, st.integers(0, 59))
def test_a_minute_is_closed_as_if_each_second_was_looked_at(rows: list[Row], from_s: int) -> None:
    intervals, whole = spells(rows), by_second(spells(rows)).reshape(SIZE, MINUTES, 60)
    begins = np.zeros((SIZE, MINUTES), np.intp)
    changes = (np.diff(whole, axis=2) != 0).any(axis=2)
    begins[changes] = from_s  # who comes, changes something
    closed = closed_minutes(count_by_second(intervals, SIZE, SECONDS), begins)
    for of in range(SIZE):
        for minute in range(MINUTES):
            seconds = whole[of, minute, begins[of, minute]:]
            assert (closed.low[of, minute], closed.high[of, minute]) == (seconds.min(),
                                                                         seconds.max())
            assert closed.mean[of, minute] == pytest.approx(seconds.mean())
            assert closed.n[of, minute] == len(seconds)


@given(ROWS, st.randoms(use_true_random=False))
def test_a_mean_of_those_that_are_there(rows: list[Row], random: Random) -> None:
    intervals = spells(rows).take(spells(rows).end > spells(rows).start)
    values = np.array([[random.choice([1.0, 5.0, np.nan]) for _ in range(MINUTES)]
                       for _ in range(len(intervals))]).reshape(-1, MINUTES)
    means = np.full((SIZE, SECONDS), np.nan)
    for of in range(SIZE):
        for second in range(SECONDS):
            here = [values[at, second // 60] for at in range(len(intervals))
                    if intervals.of[at] == of
                    and intervals.start[at] <= second < intervals.end[at]]
            means[of, second] = np.mean(here) if here else np.nan
    each_second = mean_by_second(intervals, np.arange(len(intervals)), values, SIZE)
    assert each_second == pytest.approx(means, nan_ok=True)
    closed = closed_minutes(each_second, np.zeros((SIZE, MINUTES), np.intp))
    for of in range(SIZE):
        for minute in range(MINUTES):
            seconds = means[of, minute * 60 : minute * 60 + 60]
            numbers = seconds[~np.isnan(seconds)]
            assert closed.n[of, minute] == len(numbers)
            if len(numbers):
                assert closed.mean[of, minute] == pytest.approx(numbers.mean())


def test_what_is_not_known_of_one_is_not_known_of_all_while_it_is_there() -> None:
    intervals = spells([(0, 0, 240), (0, 70, 20)])
    values = np.array([[30.0] * 4, [np.nan] * 4])
    closed = closed_minutes(mean_by_second(intervals, np.arange(2), values, SIZE),
                            np.zeros((SIZE, MINUTES), np.intp))
    assert (closed.mean[0].tolist(), closed.n[0].tolist()) == ([30.0] * 4, [60.0, 40.0, 60.0, 60.0])


def test_who_came_since_the_last_look_is_new() -> None:
    """Looks are five seconds after each minute: at 65, 125, 185."""
    runs = merge(spells([(0, 0, 300), (1, 62, 100), (2, 0, 70), (2, 70, 200)]), touching=False)
    presence = TargetPresence(runs, SIZE, 3, 5)
    assert presence.there.tolist() == [[True] * 3, [True, True, False], [True] * 3]
    assert presence.came.tolist() == [[False] * 3, [True, False, False], [False, True, False]]
    assert presence.from_s.tolist() == [[0, 0, 0], [60, 2, 0], [0, 10, 0]]
    assert covers(runs, SIZE, np.array([62, 161, 162]))[1].tolist() == [True, True, False]


# -- out of how many seconds somebody was listed in each minute


def run(first: int, last: int, first_s: int, last_s: int) -> TaskMinuteRuns:
    zero = np.zeros(1, np.intp)
    return TaskMinuteRuns(zero, zero, zero, zero, zero, *(np.array([value]) for value in (
        first, last, first_s, last_s, 1.0, 1.0)))


def held_by(runs: list[TaskMinuteRuns], seen_s: list[int]) -> list[tuple[int, int]]:
    intervals = chain_runs(merge_runs(runs), np.array([seen_s], np.int32)).spells
    return list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


def spans_held(listed: dict[int, int], seen_s: list[int]) -> list[tuple[int, int]]:
    """Spans of one Task on one GPU; minute BEFORE: it held it when the previous piece ended."""
    return held_by([run(minute, minute, listed_s, listed_s)
                    for minute, listed_s in listed.items()], seen_s)


@pytest.mark.parametrize(("listed", "seen_s", "spans"), [
    ({0: 60, 1: 60}, [60, 60, 60], [(0, 120)]),
    ({0: 60, 1: 25}, [60, 60, 60], [(0, 85)]),
    ({0: 25, 1: 60}, [60, 60, 60], [(35, 120)]),
    ({0: 25, 2: 60}, [60, 60, 60], [(35, 60), (120, 180)]),
    ({BEFORE: 60, 0: 25}, [60, 60, 60], [(0, 25)]),
    ({BEFORE: 60}, [60, 60, 60], [(0, 0)]),
    ({BEFORE: 60}, [0, 40, 60], [(0, 80)]),  # heard of again after 20 s of that minute
    ({BEFORE: 60}, [0, 0, 0], [(0, 180)]),  # who is silent holds what they held
    ({0: 60, 2: 60}, [60, 0, 60], [(0, 180)]),
    ({0: 60}, [60, 0, 45], [(0, 135)]),
    ({0: 60, 1: 50}, [60, 50, 0], [(0, 180)]),  # silent from the 50th second on
    ({0: 60, 1: 30}, [60, 50, 0], [(0, 90)]),  # had ended before
    ({1: 30}, [60, 50, 60], [(90, 120)]),
    ({0: 60, 1: 58}, [60, 58, 60], [(0, 120)]),  # two Frames were lost, and nobody left
    ({0: 60, 1: 3}, [60, 20], [(0, 63)]),  # the last minute is under way
    ({0: 60}, [60, 20], [(0, 60)]),
], ids=str)
def test_when_a_task_held_its_gpu(listed: dict[int, int], seen_s: list[int],
                                  spans: list[tuple[int, int]]) -> None:
    assert spans_held(listed, seen_s) == spans


@pytest.mark.parametrize(("runs", "spans"), [
    ([run(0, 2, 60, 20), run(2, 2, 40, 40)], [(0, 180)]),
    ([run(0, 4, 60, 30), run(2, 2, 20, 20)], [(0, 270)]),  # of a minute in the middle
    ([run(1, 3, 10, 60), run(1, 1, 15, 15)], [(95, 240)]),
    ([run(0, 1, 60, 60), run(1, 3, 60, 60)], [(0, 240)]),  # never more than a minute
], ids=["the last", "the middle", "the first", "twice"])
def test_seconds_that_came_late_are_more_of_the_same(runs: list[TaskMinuteRuns],
                                                    spans: list[tuple[int, int]]) -> None:
    assert held_by(runs, [60] * 5) == spans
