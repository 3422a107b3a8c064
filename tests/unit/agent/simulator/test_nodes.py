"""Many nodes in one process come to the hub in turn, and a machine that is too slow for them reads
less often instead of starving what was read."""

import random

import pytest

from agent.link.admission import ConnectLimiter
from agent.simulator.nodes import LATE_MAX_S, _next


def test_so_many_are_inside_and_who_leaves_makes_room() -> None:
    most = random.randint(1, 9)
    turnstile = ConnectLimiter(most)
    names = [f"n{at}" for at in range(2 * most)]
    assert [turnstile.admits(name) for name in names] == [True] * most + [False] * most
    assert turnstile.admits(names[0])  # it is inside already, and takes no second place
    assert not turnstile.admits(names[most])
    turnstile.leave(names[most])  # who is not inside leaves no room behind
    assert not turnstile.admits(names[most])
    turnstile.leave(names[0])
    assert turnstile.admits(names[most])
    assert not turnstile.admits(names[0])


SECOND = 1_763_640_000


@pytest.mark.parametrize(("after_s", "next_second"), [
    (0.6, 1),  # in time
    (1.0, 1),
    (1.3, 2),  # late: at peace for as long as it was late
    (2.5, 5),
    (1e6, int(1e6 + LATE_MAX_S) + 1),  # the machine slept: not for as long as it did
    (-1e6, -int(1e6) + 1),  # the clock was put back
])
def test_when_the_next_readings_are_due(after_s: float, next_second: int) -> None:
    assert _next(SECOND, SECOND + after_s) == SECOND + next_second
