"""Is the memory back? Tables of before and after."""

import random

import pytest

from agent.actions.verify import memory, outcome
from agent.readings import OnDemandReading, ProcessReading
from gpudeck.contract.actions import ActionVerification

GIB = 2.0**30


def a_list(used_bytes: float | None, **holdings: float | None) -> OnDemandReading:
    """Return a reading of one GPU; `p7=…` is what process 7 holds of it."""
    return OnDemandReading(tuple(ProcessReading(int(name[1:]), "G", amount, None)
                                 for name, amount in holdings.items()), {"G": used_bytes})


@pytest.mark.parametrize(("after", "returned", "rest"), [
    (a_list(5 * GIB, p8=5 * GIB), True, 0.0),
    (a_list(15 * GIB, p8=5 * GIB), False, 10 * GIB),
    (a_list(6.9 * GIB, p8=5 * GIB), True, 1.9 * GIB),
    (a_list(7.1 * GIB, p8=5 * GIB), False, 2.1 * GIB),
    (a_list(11 * GIB, p8=11 * GIB), True, 0.0),  # the neighbour grew meanwhile
    (a_list(9 * GIB, p8=5 * GIB, p9=4 * GIB), True, 0.0),  # somebody new came
    (a_list(10 * GIB), False, 10 * GIB),  # the neighbour's went, not ours
    (a_list(None, p8=5 * GIB), None, None),
    (a_list(5 * GIB, p8=None), None, None),
])
def test_what_came_back(after: OnDemandReading, returned: bool | None, rest: float | None) -> None:
    before = a_list(15 * GIB, p7=10 * GIB, p8=5 * GIB)
    memory_check = memory(before, after, frozenset((7,)))
    assert memory_check.returned is returned
    assert memory_check.before_bytes == 10 * GIB
    assert memory_check.after_bytes == (rest if rest is None else pytest.approx(rest))


def test_what_cannot_be_known_is_not_claimed() -> None:
    before = a_list(15 * GIB, p7=None)
    assert memory(before, a_list(0.0), frozenset((7,))).returned is None
    assert memory(before, None, frozenset((7,))).returned is None
    assert memory(a_list(GIB), a_list(0.0), frozenset((7,))).returned is None


def test_one_gpu_that_keeps_it_is_enough() -> None:
    used_bytes = random.uniform(1, 50) * GIB
    two = [ProcessReading(7, name, used_bytes, None) for name in ("A", "B")]
    before = OnDemandReading(tuple(two), {"A": used_bytes, "B": used_bytes})
    assert memory(before, OnDemandReading((), {"A": 0.0, "B": used_bytes}),
                  frozenset((7,))).returned is False
    assert memory(before, OnDemandReading((), {"A": 0.0, "B": None}),
                  frozenset((7,))).returned is None
    assert memory(before, OnDemandReading((), {"A": 0.0, "B": 0.0}),
                  frozenset((7,))).returned is True


@pytest.mark.parametrize(("exited", "returned", "bystanders", "state"), [
    (True, True, True, "done"), (True, None, True, "done"), (True, True, None, "done"),
    (True, False, True, "not_effective"), (True, True, False, "not_effective"),
    (False, None, True, "not_effective"), (None, None, None, "not_effective"),
])
def test_done_means_observed(
    exited: bool | None, returned: bool | None, bystanders: bool | None, state: str
) -> None:
    assert outcome(ActionVerification(exited, returned, bystanders)) == state
