"""Claims of higher priority before a waiting one: only those that may want the same GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.pool.core.ahead import ClaimsAhead, with_ahead
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.fragmentation import accepts
from tests.unit.gpudeck.pool.inventories import claim

MODELS = ("NVIDIA H100 80GB HBM3", "Tesla T4")


def nodes_of(one: Claim) -> frozenset[str]:
    return frozenset(one.hosts)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(),
                          st.sampled_from(((), ("h100",), ("t4",), ("h100", "t4"), ("v100",))),
                          st.sampled_from(((), ("n1",), ("n2",), ("n1", "n2"), ("n2", "n3")))),
                max_size=12))
def test_it_counts_what_one_by_one_would_count(
        rows: list[tuple[int, bool, tuple[str, ...], tuple[str, ...]]]) -> None:
    waiting = [claim(at, priority=priority, models=models, hosts=hosts)
               for at, (priority, _, models, hosts) in enumerate(rows)]
    pinned = {f"c{at}" for at, (_, is_pinned, *_) in enumerate(rows) if is_pinned}
    ahead = ClaimsAhead(waiting, pinned, MODELS, nodes_of)

    def rank(one: Claim) -> float:  # a pinned claim goes ahead of those one priority above it
        return one.priority + 1.5 * (one.id in pinned)

    for mine in waiting:
        assert ahead.of(mine) == sum(
            other.priority > mine.priority and rank(other) > rank(mine)
            and (not other.hosts or not mine.hosts or not {*other.hosts}.isdisjoint(mine.hosts))
            and any(accepts(other.models, model) and accepts(mine.models, model)
                    for model in MODELS) for other in waiting)


@pytest.mark.parametrize(("ahead", "sentence"), [
    (0, "why"), (1, "why, 1 claim of higher priority before it"),
    (3, "why, 3 claims of higher priority before it")])
def test_none_is_not_said(ahead: int, sentence: str) -> None:
    assert with_ahead("why", ahead) == sentence
