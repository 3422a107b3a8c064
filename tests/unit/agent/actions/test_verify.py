"""Is the memory back? Tables of before and after."""

import random

import pytest

from agent.actions.verify import memory, outcome
from agent.readings import OnDemandReading, ProcessReading
from gpudeck.actions import ActionVerification

GIB = 2.0**30


def a_list(used: float | None, **held: float | None) -> OnDemandReading:
    """`p7=…`: what process 7 holds of the one GPU."""
    return OnDemandReading(tuple(ProcessReading(int(name[1:]), "G", amount, None)
                                 for name, amount in held.items()), {"G": used})


@pytest.mark.parametrize(("after", "returned", "left"), [
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
def test_what_came_back(after: OnDemandReading, returned: bool | None, left: float | None) -> None:
    before = a_list(15 * GIB, p7=10 * GIB, p8=5 * GIB)
    found = memory(before, after, frozenset((7,)))
    assert found.returned is returned
    assert found.before_bytes == 10 * GIB
    assert found.after_bytes == (left if left is None else pytest.approx(left))


def test_what_cannot_be_known_is_not_claimed() -> None:
    before = a_list(15 * GIB, p7=None)
    assert memory(before, a_list(0.0), frozenset((7,))).returned is None
    assert memory(before, None, frozenset((7,))).returned is None
    assert memory(a_list(GIB), a_list(0.0), frozenset((7,))).returned is None


def test_one_gpu_that_keeps_it_is_enough() -> None:
    held = random.uniform(1, 50) * GIB
    two = [ProcessReading(7, name, held, None) for name in ("A", "B")]
    before = OnDemandReading(tuple(two), {"A": held, "B": held})
    assert memory(before, OnDemandReading((), {"A": 0.0, "B": held}),
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
