"""The simulated world over hours: what must hold whatever the seed."""

import random
from collections.abc import Iterator

import pytest

from agent.backends.simulation.control import SimulationControl
from agent.backends.simulation.jobs import SYNTHETIC_PID_FROM, jobs_at, next_change_at
from agent.backends.simulation.profiles import MIXED, PROFILES, profile_of
from agent.backends.simulation.scenes import SLOW_RANK
from agent.backends.simulation.stage import WINDOW_S, lost_gpu
from agent.backends.simulation.world import LiveJob, SimulatedNode, SimulationOptions, uuid_of
from agent.readings import GpuReading
from gpudeck.measures.metrics import COLUMN, COLUMNS, Absence

GPUS = 8
SEED = random.randrange(2**32)
NOON = 1_763_640_000.0 + random.randrange(86_400)


def uuids(seed: int, node: str) -> tuple[str, ...]:
    return tuple(uuid_of(seed, node, index) for index in range(GPUS))


def hours(
    setup: SimulationOptions, begins_at: float, seconds: int, step_s: float = 1.0
) -> Iterator[tuple[SimulatedNode, tuple[GpuReading, ...]]]:
    names = uuids(setup.seed, setup.node)
    world: SimulatedNode | None = None
    for number in range(int(seconds / step_s)):
        at = begins_at + number * step_s
        lives = [LiveJob(job) for job in jobs_at(setup.seed, setup.node, names, at)]
        world = world or SimulatedNode(setup, lives, at)
        yield world, world.advance(at + step_s, lives, {}, SimulationControl())


def value(reading: GpuReading, key: str) -> float:
    assert reading.absent[COLUMN[key]] == Absence.PRESENT
    return reading.values[COLUMN[key]]


def quiet(node: str, seconds: float) -> float:
    """A moment from NOON on with no job begun or ended for so long."""
    at = NOON
    while (until := next_change_at(SEED, node, GPUS, at)) < at + seconds:
        at = until + 60
    return at


@pytest.mark.parametrize(
    ("key", "node"),
    [("h100", "n001"), *((key, "any") for key in sorted(PROFILES) if not PROFILES[key].is_split)],
)
def test_hours_are_believable(key: str, node: str) -> None:
    if node == "any":  # drawn here: workers that run side by side must agree on the tests' names
        node = f"n{random.randrange(2, 999):03}"
    profile = PROFILES[key]
    setup = SimulationOptions(node, key, GPUS, SEED)
    last: tuple[GpuReading, ...] | None = None
    for _, readings in hours(setup, NOON, 3000):
        for index, reading in enumerate(readings):
            _check_ranges(reading, profile.unsupported)
            assert value(reading, "util_max_pct") >= value(reading, "util_pct")
            assert value(reading, "power_max_w") >= value(reading, "power_w")
            assert value(reading, "power_w") <= profile.power_limit_w
            assert value(reading, "sm_clock_mhz") <= profile.sm_clock_max_mhz
            assert value(reading, "mem_used_bytes") <= profile.mem_total_bytes
            assert value(reading, "temp_c") < profile.temp_shutdown_c
            if last is not None:
                _check_step(last[index], reading)
        last = readings


def _check_ranges(reading: GpuReading, unsupported: tuple[str, ...]) -> None:
    for column, number, absent in zip(COLUMNS, reading.values, reading.absent, strict=True):
        if column.key in unsupported:
            assert absent == Absence.UNSUPPORTED
            assert number == 0
        else:
            assert absent == Absence.PRESENT
            assert column.low <= number <= column.high


def _check_step(before: GpuReading, after: GpuReading) -> None:
    assert abs(value(after, "temp_c") - value(before, "temp_c")) <= 5
    joules = value(after, "energy_j") - value(before, "energy_j")
    assert joules == pytest.approx(value(after, "power_w"), abs=0.01)


def test_the_showcase_shows_one_of_everything() -> None:
    setup = SimulationOptions("n001", "h100", GPUS, SEED)
    steps = [readings for _, readings in hours(setup, quiet("n001", 1800), 1800, 5.0)]
    late = steps[len(steps) // 2 :]
    hog = [readings[5] for readings in late]
    assert {value(reading, "util_pct") for reading in hog} == {0}
    assert all(value(r, "mem_used_bytes") > 0.5 * PROFILES["h100"].mem_total_bytes for r in hog)
    free = [value(readings[7], "mem_used_bytes") for readings in late]
    assert set(free) == {0}
    assert max(value(readings[0], "util_pct") for readings in late) > 90


def test_the_badly_cooled_board_throttles_and_no_other() -> None:
    setup = SimulationOptions("n003", "h100", GPUS, SEED)
    steps = [readings for _, readings in hours(setup, quiet("n003", 1800), 1800, 5.0)]
    throttled = {index for readings in steps[len(steps) // 2 :] for index, reading in
                 enumerate(readings) if int(value(reading, "throttle_bits")) & 0x20}
    assert throttled == {SLOW_RANK}


def test_training_saws_its_memory_and_stops_to_save() -> None:
    setup = SimulationOptions("n001", "h100", GPUS, SEED)
    train = [readings[1] for _, readings in hours(setup, NOON, 3 * 3600, 2.0)]
    assert min(value(reading, "util_pct") for reading in train) < 10
    assert len({value(reading, "mem_used_bytes") for reading in train}) > 50
    assert max(value(r, "pcie_tx_bytes_per_s") for r in train) > 20e9


def test_gpus_of_one_job_go_in_step() -> None:
    setup = SimulationOptions("n001", "h100", GPUS, SEED)
    for _, readings in hours(setup, quiet("n001", 1200), 1200, 3.0):
        loads = [value(reading, "util_pct") for reading in readings[:4]]
        assert max(loads) - min(loads) <= 4


def test_same_seed_same_numbers_other_seed_others() -> None:
    def values(seed: int) -> list[tuple[float, ...]]:
        setup = SimulationOptions("n003", "a100", GPUS, seed)
        return [r.values for _, readings in hours(setup, NOON, 60) for r in readings]

    assert values(SEED) == values(SEED)
    assert values(SEED) != values(SEED + 1)


def test_a_restart_at_the_same_time_goes_on() -> None:
    setup = SimulationOptions("n001", "h100", GPUS, SEED)
    # A board that cools after a job is the one thing that a restart does not know of.
    steps = list(hours(setup, quiet("n001", 300), 300))
    before, readings = steps[-1]
    names = uuids(SEED, "n001")
    lives = [LiveJob(job) for job in jobs_at(SEED, "n001", names, before.at)]
    restarted = SimulatedNode(setup, lives, before.at, (before.at - 3, before.energy_j))
    next_readings = restarted.advance(before.at + 1, lives, {}, SimulationControl())
    for old, new in zip(readings, next_readings, strict=True):
        assert abs(value(old, "temp_c") - value(new, "temp_c")) <= 6
        assert value(old, "energy_j") < value(new, "energy_j")
        assert value(new, "energy_j") - value(old, "energy_j") < 6 * setup.board.power_limit_w


def test_uuids_are_stable_and_shaped_like_real_ones() -> None:
    names = uuids(SEED, "n001") + uuids(SEED, "n002") + uuids(SEED + 1, "n001")
    assert len(set(names)) == 3 * GPUS
    assert names[:GPUS] == uuids(SEED, "n001")
    assert [len(part) for part in names[0].split("-")] == [3, 8, 4, 4, 4, 12]


def test_synthetic_pids_cannot_be_a_strangers() -> None:
    for number in range(1, 60):
        node = f"n{number:03}"
        for job in jobs_at(SEED, node, uuids(SEED, node), NOON):
            assert SYNTHETIC_PID_FROM <= job.pid < 2**31


def test_jobs_do_not_change_before_they_are_said_to() -> None:
    names = uuids(SEED, "n007")
    at = NOON
    for _ in range(30):
        until = next_change_at(SEED, "n007", GPUS, at)
        assert until > at
        middle = random.uniform(at, until - 1e-3)
        assert jobs_at(SEED, "n007", names, middle) == jobs_at(SEED, "n007", names, at)
        at = until


def test_faults_come_and_go_by_the_clock() -> None:
    windows = range(int(NOON // WINDOW_S), int(NOON // WINDOW_S) + 400)
    hits = [[lost_gpu(SEED, "n002", GPUS, window * WINDOW_S + second, 0.25)
             for second in (0, 420, 899)] for window in windows]
    indices = [middle for _, middle, _ in hits if middle is not None]
    assert 40 < len(indices) < 160
    assert len(set(indices)) == GPUS
    assert not any(first is not None or last is not None for first, _, last in hits)
    assert lost_gpu(SEED, "n002", GPUS, NOON, 0.0) is None


def test_mixed_deals_out_all_boards() -> None:
    dealt = {profile_of("mixed", number).key for number in range(len(MIXED))}
    assert dealt == {key for key in PROFILES if not PROFILES[key].is_split}
