"""Buckets of rolling windows: as narrow as their numbers are, and never another number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.alerts.core.bucket_ring import BucketRing
from dashboard.alerts.core.flap_cooldown import CooldownTracker
from dashboard.alerts.core.rolling_windows import RollingWindow
from dashboard.alerts.core.rule_signal import SignalTerm

BUCKETS = 3
NUMBERS = st.sampled_from([0.0, 1.0, 255.0, 256.0, 0.5, 0.1, -3.0, 2.0**24 + 1, 1e300, np.inf,
                           -np.inf, np.nan])
ROWS = st.integers(0, 59)
STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, BUCKETS - 1), st.dictionaries(ROWS, NUMBERS)),
    st.tuples(st.just("fill"), st.integers(0, BUCKETS - 1), NUMBERS),
    st.tuples(st.just("forget"), st.lists(ROWS, max_size=4), st.none()),
    st.tuples(st.just("row"), ROWS, st.lists(NUMBERS, min_size=BUCKETS, max_size=BUCKETS)),
    st.tuples(st.just("clear"), st.integers(0, BUCKETS - 1), st.none()),
    st.tuples(st.just("grow"), st.just(0), st.integers(20, 60)))


@settings(max_examples=60, deadline=None)
@given(nothing=st.sampled_from([0.0, np.inf, -np.inf]), steps=st.lists(STEPS, max_size=12))
def test_it_is_what_whole_columns_are(nothing: float, steps: list[tuple[str, object, object]]
                                      ) -> None:
    room = 20
    ring, plain = BucketRing(BUCKETS, nothing, room), np.full((BUCKETS, room), nothing)
    for name, place, what in steps:
        if name == "put":
            values = np.full(room, nothing)
            for row, number in what.items():  # type: ignore[attr-defined]
                values[row % room] = number
            ring[place] = plain[place] = values  # type: ignore[index, call-overload]
        elif name == "fill":
            ring[place] = plain[place] = np.full(room, what)  # type: ignore[index, call-overload]
        elif name == "forget":
            rows = np.array([row % room for row in place], np.intp)  # type: ignore[attr-defined]
            ring.forget(rows)
            plain[:, rows] = nothing
        elif name == "row":
            ring.put_row(place % room, np.array(what))  # type: ignore[operator]
            plain[:, place % room] = what  # type: ignore[operator]
        elif name == "clear":
            ring.clear(place)  # type: ignore[arg-type]
            plain[place] = nothing  # type: ignore[call-overload]
        else:
            ring.grow(what)  # type: ignore[arg-type]
            more = max(0, what - room)  # type: ignore[operator]
            plain = np.concatenate([plain, np.full((BUCKETS, more), nothing)], axis=1)
            room += more
        np.testing.assert_array_equal([*ring], plain)
        np.testing.assert_array_equal(
            np.array([ring.row(row) for row in range(room)]).T, plain)
    if nothing == 0:
        with np.errstate(invalid="ignore", over="ignore"):
            np.testing.assert_array_equal(ring.add_to(np.zeros(room)), plain.sum(axis=0))


@pytest.mark.parametrize(("number", "most_bytes"), [(0.0, 0), (7.0, 1), (0.5, 4), (0.1, 8)])
def test_a_bucket_takes_no_more_than_its_numbers_need(number: float, most_bytes: int) -> None:
    """Windows of counts that are 0 nearly everywhere took 100 MB of a hub with 10,000 GPUs."""
    ring = BucketRing(BUCKETS, 0.0, 10_000)
    ring[0] = np.full(10_000, number)
    assert ring.nbytes == most_bytes * 10_000
    few = np.zeros(10_000)
    few[17] = 0.1
    ring[0] = few
    assert ring.nbytes <= 16


def test_a_window_of_what_does_not_happen_takes_little() -> None:
    window = RollingWindow(SignalTerm("increase", "xids_of_boards", 600), 1, 0.1)
    window.grow(1_000)
    for second in range(700):
        window.add(second, np.zeros(1_000))
    assert sum(ring.nbytes for ring in window._rings.values()) <= 60 * 1_000


def test_a_rule_without_episodes_has_no_rows_of_cooldowns() -> None:
    cool, other = CooldownTracker(600.0), CooldownTracker(600.0)
    for tracker in (cool, other):
        tracker.grow(100)
        tracker.forget(np.array([7]))
    assert (cool.until.size, cool.left_s(99, 0.0), cool.saved(99)) == (0, -np.inf, (None, None, 0))
    cool.end_episode(np.array([99]), 1_000.0)
    assert (cool.left_s(99, 1_000.0), cool.left_s(0, 1_000.0)) == (600.0, -np.inf)
    assert cool.rows(1_000.0).tolist() == [99]
    other.copy_rows(cool, np.array([3]), np.array([99]))
    assert (other.left_s(3, 1_000.0), other.saved(3)) == (600.0, (1_600.0, 1_000.0, 1))
    cool.forget(np.array([99]))
    assert cool.left_s(99, 1_000.0) == -np.inf
    cool.grow(200)
    cool.end_episode(np.array([199]), 1_000.0)
    assert cool.left_s(199, 1_000.0) == 600.0
