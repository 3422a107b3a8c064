"""Exactly once: the ledger against a plain set."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.fleet.sequence_ledger import MAX_RANGES, SequenceLedger

seqs = st.lists(st.integers(1, 60), max_size=120)


@given(seqs)
def test_takes_each_seq_once_in_any_order(arrivals: list[int]) -> None:
    ledger, model = SequenceLedger(), set[int]()
    for seq in arrivals:
        assert ledger.note(seq) == (seq not in model)
        model.add(seq)
    assert ledger.count == len(model)
    assert ledger.duplicates == len(arrivals) - len(model)
    assert {seq for seq in range(1, 70) if ledger.seen(seq)} == model
    if model:
        assert (ledger.first, ledger.last) == (min(model), max(model))
        assert ledger.missing == max(model) - len(model), "a stream begins with 1"


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(-40, -1)), max_size=120))
def test_forgets_exactly_what_it_is_told_to(steps: list[int]) -> None:
    """Positive: note it; negative: forget it."""
    ledger, model = SequenceLedger(), set[int]()
    for step in steps:
        if step > 0:
            assert ledger.note(step) == (step not in model)
            model.add(step)
        else:
            ledger.forget(-step)
            model.discard(-step)
        assert {seq for seq in range(1, 50) if ledger.seen(seq)} == model
        assert ledger.count == len(model)
        ranges = ledger.ranges
        assert all(start <= end for start, end in ranges)
        assert all(lower[1] + 1 < upper[0] for lower, upper in pairwise(ranges))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60, unique=True))
def test_settled_is_the_contiguous_floor(arrivals: list[int]) -> None:
    ledger = SequenceLedger([(1, 5)], settled=5)
    model = {1, 2, 3, 4, 5}
    for seq in arrivals:
        ledger.note(seq)
        model.add(seq)
    floor = 5
    while floor + 1 in model:
        floor += 1
    assert ledger.settled == floor


@given(seqs, st.lists(st.integers(0, 60), max_size=5), seqs)
def test_what_the_agent_has_no_more_is_not_waited_for(
    before: list[int], settles: list[int], after: list[int]
) -> None:
    ledger, model = SequenceLedger([(1, 1)], settled=1), {1}
    for seq in before:
        ledger.note(seq)
        model.add(seq)
    for upto in settles:
        ledger.settle(upto)
    floor = max([*settles, 1])
    lost_seqs = set(range(1, floor + 1)) - model
    for seq in after:  # what is below the floor does not come any more
        assert ledger.note(seq) == (seq > floor and seq not in model)
        model |= {seq} - lost_seqs
    assert ledger.settled >= floor
    assert ledger.lost == len(lost_seqs)
    assert ledger.count == len(model)
    assert ledger.missing == max(model | lost_seqs) - len(model)
    copy = SequenceLedger(ledger.ranges, ledger.settled, ledger.lost)
    assert [(one.ranges, one.settled, one.lost, one.count, one.missing)
            for one in (copy,)] == [(ledger.ranges, ledger.settled, ledger.lost, ledger.count,
                                     ledger.missing)]


def test_what_another_hub_had_is_not_lost() -> None:
    ledger = SequenceLedger()
    ledger.settle(400)
    assert (ledger.missing, ledger.first, ledger.note(400)) == (0, None, False)
    assert ledger.note(403)
    assert (ledger.missing, ledger.settled, ledger.first) == (2, 400, 403)
    ledger.settle(402)
    assert (ledger.missing, ledger.lost, ledger.settled) == (2, 2, 403)


def test_what_could_not_be_kept_lowers_the_floor() -> None:
    ledger = SequenceLedger([(1, 10)], settled=10)
    ledger.forget(7)
    assert ledger.settled == 6
    assert ledger.spans(64) == [(8, 10)]
    assert ledger.note(7)
    assert ledger.settled == 10


def test_the_gaps_of_an_older_checkpoint_are_lost_ones() -> None:
    ledger = SequenceLedger([(3, 5), (9, 10), (12, 12)], settled=10)
    assert (ledger.lost, ledger.missing, ledger.count, ledger.first) == (3, 4, 6, 3)


@pytest.mark.parametrize("most", [1, 64])
def test_the_newest_spans_are_told(most: int) -> None:
    ledger = SequenceLedger()
    for seq in range(2, 400, 2):
        ledger.note(seq)
    assert ledger.spans(most)[-1] == (398, 398)
    assert len(ledger.spans(most)) == most


def test_gaps_do_not_grow_it_without_bound_and_nothing_is_lost_by_that() -> None:
    """A seq that makes one gap too many is not taken, so never acked: it recurs."""
    ledger = SequenceLedger()
    for seq in range(2, 8 * MAX_RANGES, 2):
        assert ledger.note(seq) == (seq <= 2 * MAX_RANGES)
    assert len(ledger.ranges) == MAX_RANGES
    for seq in range(1, 2 * MAX_RANGES, 2):
        assert ledger.note(seq), "what fills a gap always fits"
    for seq in range(2 * MAX_RANGES + 2, 4 * MAX_RANGES, 2):
        assert ledger.note(seq)
