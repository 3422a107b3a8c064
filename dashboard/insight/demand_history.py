"""Hourly numbers of a fleet (GPUs held, power), out of history, a day at a time. Runs in native
threads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..history.reads.protocol import History
from .core.demand import DAY, FOLDS_MOST, LEARNS_FROM, Floats

HOUR_S = 3_600
HOURS_KEPT = LEARNS_FROM + FOLDS_MOST * DAY


@dataclass(slots=True)
class HourlyNumber(ABC):
    """A number by the hour. `by_hour`: its known values, by hour since the epoch."""

    by_hour: dict[int, float] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def step(self, now: float) -> bool:
        """Read more; return whether more is known than before."""

    def hours(self, now: float) -> Floats:
        """Return the values until the last hour that is over, oldest first."""
        by_hour = self.by_hour
        if not by_hour:
            return np.empty(0)
        last = int(now // HOUR_S) - 1
        return np.array([by_hour.get(hour, np.nan) for hour in range(min(by_hour), last + 1)])


@dataclass(slots=True)
class FleetHours(HourlyNumber):
    history: History
    # By day that was read: how many of its hours were over.
    _hours_read: dict[int, int] = field(default_factory=dict, kw_only=True)

    def step(self, now: float) -> bool:
        """Read one day that is missing or grew, the newest first; return whether one was read."""
        over = int(now // HOUR_S)  # the first hour that is not
        for day in range((over - 1) // DAY, (over - HOURS_KEPT) // DAY, -1):
            hours = min(DAY, over - day * DAY)
            if self._hours_read.get(day) != hours:
                self.by_hour |= {day * DAY + hour: value for hour, value in self._read_hours(
                    day * DAY * HOUR_S, hours).items()}
                self._hours_read[day] = hours
                self._forget(over - HOURS_KEPT)
                return True
        return False

    @abstractmethod
    def _read_hours(self, start: int, hours: int) -> dict[int, float]:
        """Return the known values of so many hours from `start` on."""

    def _forget(self, before: int) -> None:
        self.by_hour = {hour: value for hour, value in self.by_hour.items() if hour >= before}


class HeldGpuHours(FleetHours):
    """GPUs held. Owners who share a GPU add up, to the whole of it at most. An hour without a
    holder is not known: the hub may have been away."""

    def _read_hours(self, start: int, hours: int) -> dict[int, float]:
        frame = self.history.usage("gpu", HOUR_S, start, start + hours * HOUR_S)
        at = (frame["t"].to_numpy(np.int64) - start) // HOUR_S
        shares = np.minimum(frame["gpu_s"].to_numpy(float), HOUR_S) / HOUR_S
        return _summed(at, shares, hours)


@dataclass(slots=True)
class PowerHours(FleetHours):
    """Watts of all boards together; each counts with its mean of the hour, as far as it is known.
    `boards`: those of the fleet now."""

    boards: Callable[[], Sequence[str]]

    def _read_hours(self, start: int, hours: int) -> dict[int, float]:
        boards = self.boards()
        if not boards:
            return {}
        frame = self.history.series(boards, ("power_w",), start, start + hours * HOUR_S, HOUR_S,
                                    ("mean",))
        watts = frame["power_w_mean"].to_numpy(float)
        is_known = ~np.isnan(watts)
        at = (frame["t"].to_numpy(np.int64)[is_known] - start) // HOUR_S
        return _summed(at, watts[is_known], hours)


def _summed(at: npt.NDArray[np.int64], values: Floats, hours: int) -> dict[int, float]:
    sums = np.bincount(at, values, hours)
    return {hour: float(sums[hour]) for hour in np.unique(at).tolist()}
