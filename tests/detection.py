"""Delay until the shipped rules find a fault, and how often they are wrong, measured by the same
functions that the rules use, over the runs of `insight_scenes`. The numbers of docs/insight.md."""

from collections.abc import Iterator

import numpy as np

from dashboard.alerts.core.minute_blocks import AnomalyWindow, GrowthWindow
from dashboard.alerts.core.rule_signal import SignalTerm
from dashboard.insight.core.progress import no_progress
from dashboard.jobs.core import signs

from . import insight_scenes as scenes
from . import insight_signs as seconds
from .insight_scenes import DAY, GIB, MIB, Floats
from .unit.dashboard.jobs.test_step_period import measure

LEAK_PER_S, UNLIKE = 512 * MIB / 3_600, 12.0  # as the pack has them
HOTTER_C = 7.0
NO_PROGRESS_S, NO_PROGRESS_FOR_S = 30, 120
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


def no_progress_fires(columns: seconds.Columns) -> np.ndarray:
    """The rule `no-progress`, second by second: `avg(no_progress, 30s)` of 90 % for two minutes
    fires, under 50 % clears."""
    util, power, mem_util, links = columns
    limit = np.full(util.shape, seconds.LIMIT_W)
    share = _mean(no_progress(util, power, limit, limit, mem_util, links), NO_PROGRESS_S)
    is_met, fires = _lasting(share >= 0.9, NO_PROGRESS_FOR_S), np.zeros(util.shape, bool)
    for at in range(1, len(util)):
        fires[at] = is_met[at] | (fires[at - 1] & ~(share[at] < 0.5))
    return fires


def lagging(power: Floats) -> np.ndarray:
    """The rule `rank-lagging`, look by look: `avg(rank_lag_pct, 1m)` for four minutes."""
    looks, runs, _ = power.shape
    group = np.broadcast_to(np.arange(looks * runs).reshape(looks, runs, 1), power.shape)
    lag_pct = signs.rank_lag(
        np.full(power.size, 98.0), power.reshape(-1), np.full(power.size, seconds.LIMIT_W),
        group.reshape(-1).astype(np.intp)).pct.reshape(power.shape).max(axis=2)
    minute = int(60 / seconds.LOOK_S)
    return _lasting(_mean(lag_pct, minute) >= signs.LAG_PCT, int(signs.LAG_FOR_S / seconds.LOOK_S))


def _lasting(mask: np.ndarray, steps: int) -> np.ndarray:
    """Mark where the mask holds for so many steps in a row."""
    streak, lasting = np.zeros(mask.shape[1], int), np.zeros(mask.shape, bool)
    for at, row in enumerate(mask):
        streak = np.where(row, streak + 1, 0)
        lasting[at] = streak > steps
    return lasting


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


def _detection_row(what: str, runs: int, delays: Floats, unit: str = "min"
                   ) -> tuple[str, str, str]:
    finite = delays[np.isfinite(delays)]
    half, most = (int(np.quantile(finite, at, method="higher")) for at in (0.5, 0.95))
    return what, f"{runs:,} runs", (f"{len(finite) / runs:.0%} found, half of them within "
                                    f"{half} {unit}, 95 % within {most} {unit}")


def table_of_seconds(runs: int) -> Iterator[tuple[str, str, str]]:
    """Rows of what is judged by seconds: hangs, ranks, steps, checkpoints."""
    random = np.random.default_rng(SEED)
    begins = random.integers(60, 180, runs).astype(float)
    ends = begins + 400
    fires = no_progress_fires(seconds.hangs(random, 700, runs, begins, ends))
    yield _detection_row("a job that hangs", runs, minutes_until(fires, begins), "s")
    over = minutes_until(~fires, ends)
    yield ("the same job, when it continues", f"{runs:,} runs",
           f"{np.isfinite(over).mean():.0%} cleared, 95 % within {np.quantile(over, 0.95):.0f} s")
    false = episodes(no_progress_fires(seconds.healthy_day(random, 3_600, runs)))
    yield ("no hang: training, loading, evaluation, checkpoints, breakpoints, idle models",
           f"{runs:,} hours of a board", f"{false} marks")
    for by in (0.2, 0.3):
        begins = random.integers(12, 30, runs).astype(float)
        delays = minutes_until(lagging(seconds.slow_rank(random, 120, runs, begins, by)), begins)
        yield _detection_row(f"one rank of eight that draws {by:.0%} less power", runs,
                             delays * seconds.LOOK_S, "s")
    for name, make in seconds.CLEAN_RANKS.items():
        false = episodes(lagging(make(random, 720, runs)))
        yield f"no slow rank: {name}", f"{runs:,} hours of a job", f"{false} marks"
    yield _step_row(random, runs)
    yield from _checkpoint_rows(random, runs)


def _step_row(random: np.random.Generator, runs: int) -> tuple[str, str, str]:
    periods = np.exp(random.uniform(np.log(5.0), np.log(119.0), runs)).tolist()
    guesses = [measure(period, random, jitter=0.02, duty=float(random.uniform(0.3, 0.85)))
               for period in periods]
    off = [abs(guess / period - 1) for guess, period in zip(guesses, periods, strict=True)
           if guess is not None]
    right = sum(error <= 0.1 for error in off)
    return ("steps of 5 to 119 s", f"{runs:,} trainings",
            f"{right / runs:.0%} within a tenth, {(len(off) - right) / runs:.0%} wrong, "
            f"{1 - len(off) / runs:.0%} not seen")


def _checkpoint_rows(random: np.random.Generator, runs: int) -> Iterator[tuple[str, str, str]]:
    rhythms, off, times = 0, [], 5
    for every_s in np.exp(random.uniform(np.log(120), np.log(3_600), runs)).tolist():
        for number, (writes, at, next_at) in enumerate(seconds.writer(random, every_s, times, 0.2)):
            pace = writes.pace(at)
            if number == times - 1 and pace is not None:
                rhythms += 1
                off.append(abs(pace.last.began_at + pace.every_s - next_at) / pace.every_s)
    yield ("checkpoints every 2 min to 1 h", f"{runs:,} trainings",
           f"a rhythm known of {rhythms / runs:.0%}; the next one, 95 % within "
           f"{np.quantile(off, 0.95):.0%} of the interval")
    false = sum(writes.pace(at) is not None for _ in range(runs)
                for writes, at, _ in seconds.writer(random, 120.0, times, 0.95))
    yield "asynchronous checkpoints", f"{runs:,} trainings", f"{false} reported"


def as_markdown(runs: int) -> str:
    rows = (*table(runs), *table_of_seconds(runs // 2))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
