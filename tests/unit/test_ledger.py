"""Exactly once: the ledger against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dashboard.core.ledger import MAX_RANGES, Ledger

seqs = st.lists(st.integers(1, 60), max_size=120)


@given(seqs)
def test_takes_each_seq_once_in_any_order(arrivals: list[int]) -> None:
    ledger, model = Ledger(), set[int]()
    for seq in arrivals:
        assert ledger.note(seq, in_order=False) == (seq not in model)
        model.add(seq)
    assert ledger.count == len(model)
    assert ledger.duplicates == len(arrivals) - len(model)
    assert {seq for seq in range(70) if ledger.seen(seq)} == model
    if model:
        assert (ledger.first, ledger.last) == (min(model), max(model))
        assert ledger.missing == max(model) - min(model) + 1 - len(model)


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(-40, -1)), max_size=120))
def test_forgets_exactly_what_it_is_told_to(steps: list[int]) -> None:
    """Positive: note it; negative: forget it."""
    ledger, model = Ledger(), set[int]()
    for step in steps:
        if step > 0:
            assert ledger.note(step) == (step not in model)
            model.add(step)
        else:
            ledger.forget(-step)
            model.discard(-step)
        assert {seq for seq in range(50) if ledger.seen(seq)} == model
        ranges = ledger.ranges
        assert all(start <= end for start, end in ranges)
        assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60, unique=True))
def test_settled_is_the_contiguous_floor_where_order_is_not_promised(arrivals: list[int]) -> None:
    ledger = Ledger([(1, 5)], settled=5)
    model = {1, 2, 3, 4, 5}
    for seq in arrivals:
        ledger.note(seq, in_order=False)
        model.add(seq)
    floor = 5
    while floor + 1 in model:
        floor += 1
    assert ledger.settled == floor


def test_what_an_ordered_sender_skipped_is_not_awaited() -> None:
    ledger = Ledger([(1, 10)], settled=10)
    assert ledger.note(15)
    assert ledger.settled == 15
    assert ledger.missing == 4
    assert ledger.note(12)  # it comes after all: taken, once
    assert not ledger.note(12)
    assert ledger.missing == 3


def test_what_could_not_be_kept_lowers_the_floor() -> None:
    ledger = Ledger([(1, 10)], settled=10)
    ledger.forget(7)
    assert ledger.settled == 6
    assert ledger.note(7)


def test_gaps_do_not_grow_it_without_bound() -> None:
    ledger = Ledger()
    for seq in range(1, 8 * MAX_RANGES, 2):
        ledger.note(seq)
    assert len(ledger.ranges) == MAX_RANGES
    assert ledger.count == 4 * MAX_RANGES
