"""Runs as a rule sees them, minute by minute: healthy ones, and ones with a fault that begins in a
known minute. Minutes x runs. The noise is ours, first-order autoregressive, because one minute
of a run resembles the next: real power at 1 Hz has a correlation of up to 0.8."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Random = np.random.Generator

GIB, MIB = 2.0**30, 2.0**20
DAY = 1_440  # minutes


def noise(random: Random, minutes: int, runs: int, sd: float, correlation: float) -> Floats:
    fresh = random.normal(0, sd * np.sqrt(1 - correlation**2), (minutes, runs))
    series = np.empty((minutes, runs))
    series[0] = random.normal(0, sd, runs)
    for minute in range(1, minutes):
        series[minute] = correlation * series[minute - 1] + fresh[minute]
    return series


# -- memory, bytes


def allocated(needed: Floats, segment: float) -> Floats:
    """Memory held by an allocator that gives nothing back: whole segments, the most ever needed."""
    return np.maximum.accumulate(np.ceil(needed / segment) * segment, axis=0)


def warm_up(random: Random, minutes: int, runs: int) -> Floats:
    """A training that just began: the most that any of its batches has needed, of 60 a minute."""
    batches = random.normal(0, 1, (minutes, runs, 8)).max(axis=2) + 1.0  # the most of so many
    needed = 30 * GIB * (1 + random.uniform(0.005, 0.06, runs) * batches)
    return allocated(needed, 20 * MIB)


def server_start(random: Random, minutes: int, runs: int) -> Floats:
    """A server that loads its weights for some minutes, then takes what it was given."""
    at, loads = np.arange(minutes)[:, None], random.uniform(2, 25, runs)
    weights = np.minimum(at / loads, 1.0) * random.uniform(10, 60, runs) * GIB
    return np.where(at > loads + 2, 72 * GIB, weights)


def steady_memory(random: Random, minutes: int, runs: int) -> Floats:
    return 40 * GIB + noise(random, minutes, runs, 0.3 * GIB, 0.9)


def cycles(random: Random, minutes: int, runs: int) -> Floats:
    """An evaluation that needs more, every 20 to 90 minutes, and gives it back."""
    at, every = np.arange(minutes)[:, None], random.uniform(20, 90, runs)
    return 40 * GIB + np.where(at % every < 6, 6 * GIB, 0.0) + noise(
        random, minutes, runs, 0.02 * GIB, 0.5)


def leak(random: Random, minutes: int, runs: int, begins: Floats, per_h: float = GIB) -> Floats:
    """`begins`: the minute in which the leak of each run begins."""
    at = np.arange(minutes)[:, None]
    grown = np.maximum(0, at - begins) / 60 * per_h
    offset = random.uniform(0, 1, runs) * GIB
    return allocated(40 * GIB + offset + grown, 20 * MIB)


CLEAN_MEMORY: dict[str, Callable[[Random, int, int], Floats]] = {
    "warm-up of an allocator": warm_up, "start of a server": server_start,
    "memory that comes and goes": steady_memory, "evaluations": cycles}


# -- power, W


def training(random: Random, minutes: int, runs: int, correlation: float = 0.8) -> Floats:
    return 500 * (1 + noise(random, minutes, runs, 0.03, correlation))


def with_pauses(random: Random, minutes: int, runs: int) -> Floats:
    """Checkpoints of a minute, and evaluations of three."""
    at = np.arange(minutes)[:, None]
    power = training(random, minutes, runs)
    power = np.where(at % random.integers(12, 40, runs) == 0, 0.4 * power, power)
    return np.where(at % random.integers(50, 200, runs) < 3, 0.7 * power, power)


def serving(random: Random, minutes: int, runs: int) -> Floats:
    """Load that follows demand: by the hour of the day, and in bursts."""
    day = 1 + 0.5 * np.sin(2 * np.pi * np.arange(minutes)[:, None] / DAY)
    return 120 + 180 * day * np.exp(noise(random, minutes, runs, 0.3, 0.9))


def ends(random: Random, minutes: int, runs: int) -> Floats:
    """Trainings that clear up for one to three minutes and then are gone."""
    power, at = training(random, minutes, runs), np.arange(minutes)[:, None]
    over = random.integers(120, minutes, runs)
    clears = random.integers(1, 4, runs)
    power = np.where(at >= over, 90.0, power)
    return np.where(at >= over + clears, np.nan, power)


def slower(random: Random, minutes: int, runs: int, begins: Floats, by: float = 0.2) -> Floats:
    at = np.arange(minutes)[:, None]
    return training(random, minutes, runs, 0.5) * np.where(at >= begins, 1 - by, 1.0)


CLEAN_POWER: dict[str, Callable[[Random, int, int], Floats]] = {
    "training": training, "training with checkpoints and evaluations": with_pauses,
    "serving": serving, "trainings that end": ends}


# -- heat, °C


def jobs_come_and_go(random: Random, minutes: int, boards: int) -> Floats:
    """Jobs of ten minutes to three hours, with rests between."""
    power = np.empty((minutes, boards))
    for board in range(boards):
        at = 0
        while at < minutes:
            lasts = int(random.integers(10, 180))
            power[at:at + lasts, board] = random.choice((90.0, random.uniform(250, 650)))
            at += lasts
    return power * (1 + noise(random, minutes, boards, 0.03, 0.8))


def heat(random: Random, power: Floats, hotter_from: Floats | None = None, by: float = 10.0
         ) -> Floats:
    """Temperature that follows power with a lag of a minute and a half, in a room that warms by
    2 °C by day."""
    minutes, boards = power.shape
    at = np.arange(minutes)[:, None]
    room = 25 + 2 * np.sin(2 * np.pi * (at / DAY + random.uniform(0, 1, boards)))
    target = room + random.uniform(0.05, 0.08, boards) * np.nan_to_num(power, nan=90.0)
    if hotter_from is not None:
        target = target + np.where(at >= hotter_from, by, 0.0)
    temps = np.empty_like(target)
    temps[0] = target[0]
    for minute in range(1, minutes):
        temps[minute] = target[minute] + (temps[minute - 1] - target[minute]) * np.exp(-1 / 1.5)
    return temps + noise(random, minutes, boards, 0.6, 0.5)


CLEAN_HEAT: dict[str, Callable[[Random, int, int], Floats]] = {
    **CLEAN_POWER, "jobs that come and go": jobs_come_and_go}
