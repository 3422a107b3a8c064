"""Backtest of the tuning of MPS shares: as in life, look by look."""

import itertools
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.limits.autotune import (
    CHANGES_A_DAY,
    DAY_S,
    DEAD_BAND,
    DOWN_AFTER_S,
    UP_AFTER_S,
    UTIL,
    MpsLoadMeter,
    MpsMinute,
    rehearse_minutes,
)
from agent.readings import GpuReading, ProcessReading, Reading
from gpudeck.measures.metrics import WIDTH, Absence

BOARDS = ("GPU-1", "GPU-2")


def a_gpu(uuid: str, load_pct: float | None, state: str = "ok") -> GpuReading:
    values, absent = [0.0] * WIDTH, bytearray(WIDTH)
    values[UTIL] = load_pct or 0.0
    if load_pct is None:
        absent[UTIL] = Absence.UNSUPPORTED
    return GpuReading(uuid, state, tuple(values), bytes(absent))  # type: ignore[arg-type]


def a_reading(at: float, loads: tuple[float | None, ...], clients: int | None = 0,
              on: str = "GPU-1") -> Reading:
    """`clients` None: the list was not asked for this time."""
    mps = [ProcessReading(100, on, None, None, "mps_server")] if clients else []
    mps += [ProcessReading(101 + at_, on, None, None, "mps_client") for at_ in range(clients or 0)]
    alone = ProcessReading(7, "GPU-2", None, None)
    return Reading(at, 1.0, tuple(map(a_gpu, BOARDS, loads)), (),
                   None if clients is None else (*mps, alone))


def test_the_load_is_the_mean_since_the_last_look_of_the_boards_that_mps_is_on() -> None:
    watch = MpsLoadMeter()
    for load_pct in (10.0, 30.0):
        watch.observe(a_reading(0.0, (load_pct, 99.0), clients=2))
    assert (watch.clients, watch.take()) == (2, 20.0)
    assert watch.take() is None, "nothing was read since"
    watch.observe(a_reading(1.0, (10.0, 99.0), clients=None))
    assert watch.take() == 10.0, "the list was not asked for, and holds"
    watch.observe(a_reading(2.0, (10.0, 99.0), clients=0))
    assert (watch.clients, watch.take()) == (0, 99.0)
    watch.observe(a_reading(3.0, (None, None), clients=1))
    assert watch.take() is None, "not known is not idle"
    watch.observe(Reading(4.0, 1.0, (a_gpu("GPU-1", 50.0, "lost"), a_gpu("GPU-2", 40.0)), (), None))
    assert watch.take() == 40.0


def day(load_pct: list[float], clients: list[int]) -> Iterator[MpsMinute]:
    for at in range(1_440):
        yield MpsMinute(60.0 * (at + 1), clients[at % len(clients)],
                        {"GPU-1": load_pct[at % len(load_pct)]}, frozenset(("GPU-1",)))


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 100), st.lists(st.floats(-4.9, 4.9), min_size=1, max_size=30),
       st.integers(1, 48), st.integers(1, 100))
@example(70.0, [4.0, -4.0], 2, 50)
@example(90.0, [4.0, -4.0], 2, 50)
def test_on_a_day_of_steady_load_it_changes_six_times_at_most_and_never_back(
    load_pct: float, noise: list[float], clients: int, begin: int,
) -> None:
    """The load may be at the edge of a band."""
    loads = [min(100.0, max(0.0, load_pct + offset)) for offset in noise]
    looks = list(rehearse_minutes(day(loads, [clients]), 60.0, begin))
    moves = [look.tune.pct - look.observed.now_pct for look in looks
             if look.tune.pct is not None and look.observed.now_pct is not None]
    assert len(moves) <= CHANGES_A_DAY
    turns = sum((one > 0) != (other > 0) for one, other in itertools.pairwise(moves))
    assert turns <= 1, "into the band of the load, and then it stays"
    goals = [look.tune.goal for look in looks if look.tune.goal is not None]
    assert abs((looks[-1].tune.pct or looks[-1].observed.now_pct or 0.0) - goals[-1]) < DEAD_BAND


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=50),
       st.lists(st.integers(0, 60), min_size=1, max_size=50), st.integers(1, 100))
@example([50.0], [48], 100)
@example([10.0, 99.0], [2], 50)
def test_whatever_the_load_does_changes_are_few_and_apart(
    loads: list[float], clients: list[int], begin: int,
) -> None:
    looks = list(rehearse_minutes(day(loads, clients), 60.0, begin))
    changes = [(look.at, look.tune.pct > (look.observed.now_pct or 0.0)) for look in looks
               if look.tune.pct is not None]
    for at, _ in changes:
        assert sum(at <= other < at + DAY_S for other, _ in changes) <= CHANGES_A_DAY
    for (before, _), (at, is_up) in itertools.pairwise(changes):
        assert at - before >= (UP_AFTER_S if is_up else DOWN_AFTER_S)
