"""GPUs whose power is at its limit and whose work is bound by memory, so that a lower limit would
probably cost it little, from their own past. Pure.

How much a lower clock costs is read from hours in which the clock was lower: if the work's memory
traffic went down with it, the work is bound by the clock. Heavier work draws more power and lowers
the clock by itself, so that traffic which rises as the clock falls proves nothing either: only
where it went neither way is a cap proposed, as a trial that is measured and taken back."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .week import Bools, Floats, MeasuredWeek, WeekGpu

CAP_SHARE = 0.8  # of the board's own limit
BOUND_SHARE, BOUND_HOURS = 0.9, 0.5  # of the limit, in so many of its hours at work
BUSY_PCT, MEMORY_PCT = 80.0, 50.0
HOURS_LEAST = 24
CLOCK_SPREAD = 0.01  # standard deviation of the clock: less tells nothing
SURE_Z = 1.645  # one-sided 95 %
LOSS_MOST = 0.05


@dataclass(frozen=True, slots=True)
class PowerCapChance:
    """GPUs of one owner and model that a cap would cost little. `gpus`: indices, the one that would
    save most first. `loss`: of speed, at most, of any of them. `saved_wh`: in the measured time,
    of each; `capped_hours`: of them together, in which it would have drawn more than the cap."""

    gpus: tuple[int, ...]
    watts: int
    loss: float
    saved_wh: tuple[float, ...]
    capped_hours: int


@dataclass(frozen=True, slots=True)
class _CapEffect:
    gpu: int
    watts: int
    loss: float
    saved_wh: float
    hours: int


def power_cap_chances(week: MeasuredWeek) -> Iterator[PowerCapChance]:
    """Yield the chances by owner and model. MIG instances share a board's power, and so do several
    owners of one GPU: neither is proposed."""
    groups: dict[tuple[str, str], list[_CapEffect]] = {}
    for at, gpu in enumerate(week.gpus):
        if gpu.owner is not None and not gpu.is_mig and (effect := _effect(week, at)) is not None:
            groups.setdefault((gpu.owner, gpu.model), []).append(effect)
    for effects in groups.values():
        effects.sort(key=lambda effect: (-effect.saved_wh, effect.gpu))
        yield PowerCapChance(
            tuple(effect.gpu for effect in effects), effects[0].watts,
            max(effect.loss for effect in effects),
            tuple(effect.saved_wh for effect in effects), sum(effect.hours for effect in effects))


def cap_of(gpu: WeekGpu) -> int | None:
    """Return the watts to try; None: the board's limits are not known, or leave no room."""
    if gpu.power_default_w is None or gpu.power_least_w is None:
        return None
    watts = math.ceil(max(CAP_SHARE * gpu.power_default_w, gpu.power_least_w))
    return watts if watts <= BOUND_SHARE * gpu.power_default_w else None


def _effect(week: MeasuredWeek, at: int) -> _CapEffect | None:
    gpu, watts = week.gpus[at], cap_of(week.gpus[at])
    if watts is None or gpu.power_default_w is None:
        return None
    power = week.power[:, at]
    hours = _hours_at_work(week, at)
    if hours.sum() < HOURS_LEAST:
        return None
    is_bound = power[hours] >= BOUND_SHARE * gpu.power_default_w
    traffic = week.bandwidth[hours, at]
    if is_bound.mean() < BOUND_HOURS or np.median(traffic) < MEMORY_PCT:
        return None
    elasticity = elasticity_most(week.clock[hours, at], traffic)
    # A board whose power falls by a share loses no more than that share of its clock.
    loss = math.inf if elasticity is None else elasticity * (1 - watts / gpu.power_default_w)
    above = hours & (power > watts)
    saved_wh = float((power[above] - watts).sum()) - loss * watts * float(above.sum())
    if loss > LOSS_MOST or saved_wh <= 0:
        return None
    return _CapEffect(at, watts, loss, saved_wh, int(above.sum()))


def _hours_at_work(week: MeasuredWeek, at: int) -> Bools:
    """Return the hours in which it worked all the time, and all of it was measured."""
    is_known = ~np.isnan(week.power[:, at]) & (week.clock[:, at] > 0) & (week.bandwidth[:, at] > 0)
    return np.asarray(is_known & (week.util[:, at] >= BUSY_PCT), bool)


def elasticity_most(clock: Floats, traffic: Floats) -> float | None:
    """Return by how much traffic changes with the clock at most, up or down, both as shares; None:
    the clock did not change enough to tell."""
    x, y = np.log(clock), np.log(traffic)
    x, y = x - x.mean(), y - y.mean()
    spread = float((x * x).sum())
    if len(x) < HOURS_LEAST or math.sqrt(spread / len(x)) < CLOCK_SPREAD:
        return None
    slope = float((x * y).sum()) / spread
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / (len(x) - 2) / spread)
    return abs(slope) + SURE_Z * error


def kilowatt_hours(watt_hours: Sequence[float]) -> float:
    return sum(watt_hours) / 1_000
