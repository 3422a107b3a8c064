"""Delay until the shipped rules find a fault, and how often they are wrong, measured by the same
functions that the rules use, over the runs of `insight_scenes`. The numbers of docs/insight.md."""

from collections.abc import Iterator

import numpy as np

from dashboard.alerts.core.minute_blocks import AnomalyWindow, GrowthWindow
from dashboard.alerts.core.rule_signal import SignalTerm

from . import insight_scenes as scenes
from .insight_scenes import DAY, GIB, MIB, Floats

LEAK_PER_S, UNLIKE = 512 * MIB / 3_600, 12.0  # as the pack has them
HOTTER_C = 7.0
SEED = 22


def grown(memory: Floats) -> Floats:
    return _run_window(GrowthWindow(SignalTerm("growth", "mem_used_bytes", 2_880), 60, 0.8), memory)


def unlike(values: Floats) -> Floats:
    return _run_window(AnomalyWindow(SignalTerm("anomaly", "power_w", 7_200), 60, 0.8), values)


def hotter(power: Floats, temp: Floats) -> np.ndarray:
    """The rule `hotter-than-usual`, over closed minutes: it fires when it was met for five."""
    heat, work = _mean(temp, 3) - _mean(temp, 120), _mean(power, 3) / _mean(power, 120)
    matches = (heat >= HOTTER_C) & (work >= 0.92) & (work <= 1.08)
    return np.stack([matches[max(0, at - 5):at + 1].all(axis=0) & (at >= 5)
                     for at in range(len(matches))])


def _mean(values: Floats, minutes: int) -> Floats:
    """NaN until most of it is known."""
    sums = np.cumsum(np.nan_to_num(values, nan=90.0), axis=0)
    totals = np.vstack([np.zeros(values.shape[1]), sums])
    means = np.full(values.shape, np.nan)
    for at in range(int(0.8 * minutes), len(values)):
        first = max(0, at + 1 - minutes)
        means[at] = (totals[at + 1] - totals[first]) / (at + 1 - first)
    return means


def _run_window(window: GrowthWindow | AnomalyWindow, series: Floats) -> Floats:
    window.grow(series.shape[1])
    signals = np.empty(series.shape)
    for minute, values in enumerate(series):
        window.add((minute + 1) * 60, values)
        signals[minute] = window.values()
    return signals


def episodes(mask: np.ndarray) -> int:
    """Number of alerts that the mask would raise."""
    return int((mask[1:] & ~mask[:-1]).sum() + mask[0].sum())


def minutes_until(mask: np.ndarray, begins: Floats) -> Floats:
    """Minutes until the mask is set, counted from `begins` of each run; infinite: never."""
    after = mask & (np.arange(len(mask))[:, None] >= begins)
    return np.where(after.any(axis=0), after.argmax(axis=0) + 1.0 - begins, np.inf)


def begins_at(random: np.random.Generator, runs: int, first: int) -> Floats:
    """Draw a minute for each run, so that any minute of a block occurs."""
    return random.integers(first, first + 20, runs).astype(float)


def table(runs: int) -> Iterator[tuple[str, str, str]]:
    """Rows of the page: the kind of run, how many, and the detections."""
    random = np.random.default_rng(SEED)
    for per_h, name in ((GIB, "1 GiB/h"), (4 * GIB, "4 GiB/h")):
        begins = begins_at(random, runs, 120)
        memory = scenes.leak(random, 240, runs, begins, per_h)
        delays = minutes_until(grown(memory) >= LEAK_PER_S, begins)
        yield _detection_row(f"leak of {name}", runs, delays)
    for name, make in scenes.CLEAN_MEMORY.items():
        false = episodes(grown(make(random, DAY, runs)) >= LEAK_PER_S)
        yield f"no leak: {name}", f"{runs:,} days of a task", f"{false} suspected"
    begins = begins_at(random, runs, 180)
    delays = minutes_until(unlike(scenes.slower(random, 260, runs, begins)) >= UNLIKE, begins)
    yield _detection_row("a job 20 % slower", runs, delays)
    for name, make in scenes.CLEAN_POWER.items():
        false = episodes(unlike(make(random, DAY, runs)) >= UNLIKE)
        yield f"unchanged: {name}", f"{runs:,} days of a job", (
            f"{false} marks: {false * 1_000 / runs:.1f} a day per 1,000")
    begins, power = begins_at(random, runs, 180), scenes.training(random, 260, runs)
    delays = minutes_until(hotter(power, scenes.heat(random, power, begins)), begins)
    yield _detection_row("a board 10 °C hotter at equal power", runs, delays)
    for name, make in scenes.CLEAN_HEAT.items():
        power = make(random, DAY, runs)
        false = episodes(hotter(power, scenes.heat(random, power)))
        yield f"as cool as ever: {name}", f"{runs:,} days of a board", (
            f"{false} marks: {false * 1_000 / runs:.1f} a day per 1,000")


def _detection_row(what: str, runs: int, minutes: Floats) -> tuple[str, str, str]:
    finite = minutes[np.isfinite(minutes)]
    half, most = (int(np.quantile(finite, at, method="higher")) for at in (0.5, 0.95))
    return what, f"{runs:,} runs", (f"{len(finite) / runs:.0%} found, half of them within "
                                    f"{half} min, 95 % within {most} min")


def as_markdown(runs: int) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in table(runs))
