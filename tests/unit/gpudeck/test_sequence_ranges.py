"""Ranges against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpudeck.contract.sequence_ranges import SequenceRanges

seq = st.integers(1, 40)
steps = st.lists(st.tuples(st.sampled_from(("add", "add_all", "discard_all")), seq, seq),
                 max_size=60)


@given(steps, seq, seq)
def test_does_what_a_set_does(steps: list[tuple[str, int, int]], first: int, last: int) -> None:
    ranges, model = SequenceRanges(), set[int]()
    for what, one, other in steps:
        span = set(range(one, other + 1))
        if what == "add":
            assert ranges.add(one) == (one not in model)
            model.add(one)
        elif what == "add_all":
            ranges.add_all(one, other)
            model |= span
        else:
            assert ranges.discard_all(one, other) == len(model & span)
            model -= span
    assert {at for at in range(50) if at in ranges} == model
    assert ranges.count == len(model)
    assert (ranges.first, ranges.last) == (min(model, default=None), max(model, default=None))
    assert all(lower[1] + 1 < upper[0] for lower, upper in pairwise(ranges))
    assert all(start <= end for start, end in ranges)
    inside = {at for start, end in ranges.within(first, last) for at in range(start, end + 1)}
    assert inside == model & set(range(first, last + 1))
    assert ranges.count_in(first, last) == len(inside)
    assert ranges.is_next_to(first) == bool({first - 1, first, first + 1} & model)
    assert list(SequenceRanges(ranges)) == list(ranges)
