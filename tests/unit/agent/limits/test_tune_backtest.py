"""What the tuning of MPS shares would have done in the past: as in life, look by look."""

import random
from collections.abc import Iterator

from agent.limits.autotune import UTIL, MpsLoadMeter, TuneInput, rehearse, tune
from agent.readings import GpuReading, ProcessReading, Reading
from gpudeck.metrics import WIDTH, Absence

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


def night(seconds: int, clients: int, load_pct: float, start: float = 0.0) -> Iterator[Reading]:
    for at in range(seconds):
        yield a_reading(start + at, (load_pct, 3.0), None if at % 2 else clients)


def test_it_is_the_same_as_in_life() -> None:
    """Each look is tune() on what was seen, and its outcome is what the next begins with."""
    clients, load_pct, begin = random.randint(1, 20), random.uniform(0, 100), random.randint(1, 100)
    now_pct = float(begin)
    looks = list(rehearse(night(400, clients, load_pct), 30.0, begin))
    assert len(looks) == 13  # every 30 s, the first after 30 s
    for look in looks:
        assert look.seen.now_pct == now_pct
        assert look.seen.clients == clients
        assert abs((look.seen.load_pct or 0.0) - load_pct) < 1e-6
        assert look.tune == tune(TuneInput(clients, look.seen.load_pct, now_pct))
        now_pct = now_pct if look.tune.pct is None else float(look.tune.pct)


def test_the_load_is_the_mean_since_the_last_look_of_the_boards_that_mps_is_on() -> None:
    watch = MpsLoadMeter()
    for load_pct in (10.0, 30.0):
        watch.see(a_reading(0.0, (load_pct, 99.0), clients=2))
    assert (watch.clients, watch.take()) == (2, 20.0)
    assert watch.take() is None, "nothing was read since"
    watch.see(a_reading(1.0, (10.0, 99.0), clients=None))
    assert watch.take() == 10.0, "the list was not asked for, and holds"
    watch.see(a_reading(2.0, (10.0, 99.0), clients=0))
    assert (watch.clients, watch.take()) == (0, 99.0)
    watch.see(a_reading(3.0, (None, None), clients=1))
    assert watch.take() is None, "not known is not idle"
    watch.see(Reading(4.0, 1.0, (a_gpu("GPU-1", 50.0, "lost"), a_gpu("GPU-2", 40.0)), (), None))
    assert watch.take() == 40.0


def test_nothing_is_known_of_a_hole() -> None:
    """Nor is what was before it taken for what is behind it."""
    before = [*night(35, 4, 50.0)]
    after = [*night(29, 0, 99.0, start=5_000.0)]
    looks = list(rehearse([*before, *after], 30.0, 50))
    assert [look.at for look in looks] == [30.0]
    back = [*night(35, 4, 50.0, start=5_000.0), *night(35, 4, 50.0, start=100.0)]
    assert [look.at for look in rehearse(back, 30.0, 50)] == [5_030.0, 130.0]


def test_without_a_list_of_processes_nothing_is_said() -> None:
    readings = [a_reading(float(at), (50.0, 50.0), clients=None) for at in range(100)]
    assert list(rehearse(readings, 30.0, 50)) == []
