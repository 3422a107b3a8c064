"""Jobs as their nodes report them, second by second: stuck and healthy ones, ranks that lag, steps
and checkpoints. The levels are those of recorded H100 (docs/insight.md), the noise is ours."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.telemetry.write_bursts import TaskWrites

from .insight_scenes import noise

Floats = npt.NDArray[np.float64]
Random = np.random.Generator

LIMIT_W = 700.0
RANKS = 8
LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class BoardState:
    """Means of a board: percent, share of the power limit, percent, bytes per second."""

    util_pct: float
    power_share: float
    mem_util_pct: float
    link_bytes_per_s: float


SPINS = BoardState(100.0, 0.17, 0.3, 0.0)
HEALTHY = {
    "data parallel": BoardState(85.0, 0.78, 42.0, 17e9),
    "power-capped": BoardState(100.0, 0.985, 48.0, 2.9e9),
    "stage of a pipeline": BoardState(98.0, 0.60, 41.0, 100e9),
    "offload to the host": BoardState(14.0, 0.27, 5.0, 10e9),
    "decoder": BoardState(69.0, 0.29, 19.0, 0.0),
    "small kernels, back to back": BoardState(99.0, 0.40, 8.0, 0.0),
    "loading": BoardState(2.0, 0.18, 1.0, 0.0),
    "evaluation": BoardState(60.0, 0.50, 25.0, 1e9),
    "checkpoint": BoardState(0.0, 0.17, 0.0, 0.0),
    "breakpoint": BoardState(0.0, 0.16, 0.0, 0.0),
    "idle model": BoardState(0.0, 0.17, 0.0, 0.0),
}

STATES = [*HEALTHY.values(), SPINS]
TRAINS = 6  # of the first of them

Columns = tuple[Floats, Floats, Floats, Floats]  # seconds x runs: as in BoardState, power in watts


def board(random: Random, states: npt.NDArray[np.int_]) -> Columns:
    """`states`: of each second and run, by their place in STATES."""
    seconds, runs = states.shape

    def column(name: str, sd: float) -> Floats:
        means = np.array([getattr(state, name) for state in STATES])[states]
        level: Floats = means * (1 + noise(random, seconds, runs, sd, 0.8))
        return np.maximum(level, 0.0)

    return (np.minimum(column("util_pct", 0.02), 100.0), LIMIT_W * column("power_share", 0.03),
            column("mem_util_pct", 0.1), column("link_bytes_per_s", 0.1))


def hangs(random: Random, seconds: int, runs: int, begins: Floats, ends: Floats) -> Columns:
    """Jobs of each kind that hang for a while."""
    at = np.arange(seconds)[:, None]
    is_stuck = (at >= begins) & (at < ends)
    return board(random, np.where(is_stuck, len(STATES) - 1, random.integers(0, TRAINS, runs)))


def healthy_day(random: Random, seconds: int, runs: int) -> Columns:
    """Jobs that go from one healthy state to another every ten seconds to ten minutes."""
    states = np.zeros((seconds, runs), int)
    for run in range(runs):
        at = 0
        while at < seconds:
            lasts = int(random.integers(10, 600))
            states[at:at + lasts, run] = random.integers(len(HEALTHY))
            at += lasts
    return board(random, states)


# -- ranks, every LOOK_S seconds: looks x runs x ranks, W


def ranks(random: Random, looks: int, runs: int, apart: float = 0.034) -> Floats:
    """A training at 600 W whose ranks differ by as much, each in its own place for good."""
    own = 1 + random.uniform(-apart, apart, (runs, RANKS))
    return 600.0 * own * (1 + noise(random, looks, runs * RANKS, 0.02, 0.8).reshape(
        looks, runs, RANKS))


def slow_rank(random: Random, looks: int, runs: int, begins: Floats, by: float = 0.2) -> Floats:
    power = ranks(random, looks, runs)
    which = random.integers(0, RANKS, runs)
    slow = np.arange(looks)[:, None] >= begins
    at = np.arange(runs)
    power[:, at, which] *= np.where(slow, 1 - by, 1.0)
    return power


def two_stages(random: Random, looks: int, runs: int) -> Floats:
    power = ranks(random, looks, runs)
    power[:, :, : RANKS // 2] *= 0.867  # 417 of 481 W
    return power


def saving_ranks(random: Random, looks: int, runs: int) -> Floats:
    """Ranks that rest for a minute every ten to forty; the first writes for another half."""
    power, at = ranks(random, looks, runs), np.arange(looks)[:, None]
    since = at % (random.integers(10, 40, runs) * 12)
    power[since < 12] = 120.0
    power[:, :, 0] = np.where(since < 18, 120.0, power[:, :, 0])
    return power


def offloading(random: Random, looks: int, runs: int) -> Floats:
    """FSDP with offload to the host, at a quarter of the limit, where ranks differ by 8.6 %."""
    return ranks(random, looks, runs, 0.086) * 187 / 600


CLEAN_RANKS = {"ranks that differ by 3.4 %": ranks, "two stages of a pipeline": two_stages,
               "trainings that write checkpoints": saving_ranks,
               "offload to the host": offloading}


# -- checkpoints


def writer(random: Random, every_s: float, times: int, rest_share: float) -> Iterator[
        tuple[TaskWrites, float, float]]:
    """A training that saves about so often. Yields, after each checkpoint, what is known of them,
    now, and when the next one really begins. `rest_share`: of its power while it writes."""
    writes, at = TaskWrites(), 0.0
    lengths = every_s * (1 + random.normal(0, 0.03, times + 1))
    lasts = int(random.integers(2, 6))
    for length, next_length in zip(lengths[:-1].tolist(), lengths[1:].tolist(), strict=True):
        looks = max(int(length / LOOK_S), lasts + 2)
        for look in range(looks):
            at += LOOK_S
            saves = look >= looks - lasts
            writes.observe(at, LOOK_S, 2e9 if saves else float(random.uniform(0, 1e5)),
                           600.0 * (rest_share if saves else 1.0) * random.uniform(0.95, 1.05))
        at += LOOK_S
        writes.observe(at, LOOK_S, 0.0, 600.0)
        next_looks = max(int(next_length / LOOK_S), lasts + 2)
        yield writes, at, at + (next_looks - lasts) * LOOK_S
