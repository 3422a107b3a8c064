"""Measurements of the fleet over some days, by the hour. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
WEEK_H = 168.0  # so that a working week is among them
KNOWN_LEAST = 0.9  # of the hours in which a GPU was held, how many must be measured


@dataclass(frozen=True, slots=True)
class WeekGpu:
    """A GPU of the fleet. `owner` None: several, or none known. `is_mig`: an instance. Watts None:
    not known."""

    uuid: str
    node: str
    host: str
    place: str
    model: str
    mem_bytes: float | None
    owner: str | None
    is_mig: bool = False
    power_default_w: float | None = None  # its limit, where nobody has set another
    power_least_w: float | None = None  # the lowest that it takes


@dataclass(frozen=True, slots=True)
class MeasuredWeek:
    """Measurements: rows are hours; columns are GPUs, or owners. `held` and `used` are shares of
    the hour, of owners the sum over their GPUs; `used` is held and not idle. The others are means
    of the hour but `memory`, which is its peak. NaN: not measured."""

    gpus: tuple[WeekGpu, ...]
    owners: tuple[str, ...]
    held: Floats
    used: Floats
    util: Floats
    sm: Floats
    bandwidth: Floats
    memory: Floats
    power: Floats
    clock: Floats
    owner_held: Floats
    owner_used: Floats
    _measured: dict[str, Bools] = field(default_factory=dict, repr=False)  # by metric, of each GPU
    _high: dict[str, Floats] = field(default_factory=dict, repr=False)

    @property
    def hours(self) -> int:
        return len(self.held)

    @property
    def weeks(self) -> float:
        return self.hours / WEEK_H

    def is_measured(self, gpu: int, *metrics: str) -> bool:
        """Return whether nearly all hours in which it was held were measured, and there were
        some."""
        return all(self._are_measured(name)[gpu] for name in metrics)

    def _are_measured(self, metric: str) -> Bools:
        if metric not in self._measured:
            hours = (self.held > 0).sum(axis=0)
            measured = (~np.isnan(self._while_held(metric))).sum(axis=0)
            self._measured[metric] = (hours >= max(1, min(24, self.hours / 2))) & (
                measured >= KNOWN_LEAST * hours)
        return self._measured[metric]

    def _while_held(self, metric: str) -> Floats:
        return np.where(self.held > 0, getattr(self, metric), np.nan)

    def high(self, metric: str, gpu: int) -> float:
        """Return the 95th percentile of the hours in which it was held."""
        if metric not in self._high:
            self._high[metric] = percentiles(self._while_held(metric), 0.95)
        return float(self._high[metric][gpu])

    def joint(self, metric: str, one: int, other: int) -> Floats:
        """Add up, by the hour, what two GPUs did: as if their work ran on one."""
        sums: Floats = np.nansum(getattr(self, metric)[:, [one, other]], axis=1)
        return sums

    def is_seen(self, gpus: Sequence[int]) -> Bools:
        """Return the hours in which each of these was measured: a GPU that nobody held then was
        free."""
        return np.asarray(~np.isnan(self.memory[:, gpus]).any(axis=1), bool)


def percentiles(values: Floats, share: float) -> Floats:
    """Return the percentile of each column, of its known values. np.nanpercentile takes a hundred
    times as long."""
    in_order = np.sort(values, axis=0)  # NaN comes last
    place = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0) * share
    low = place.astype(np.intp)
    high = np.minimum(low + 1, np.ceil(place).astype(np.intp))
    below, above = (np.take_along_axis(in_order, at[None], axis=0)[0] for at in (low, high))
    return np.asarray(below + (above - below) * (place - low))
