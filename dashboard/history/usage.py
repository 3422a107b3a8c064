"""Who held how much: from the minutes of Tasks and the seconds of Gpus, per owner, Gpu and hour."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import AT, Ints
from .rollup import Rollup
from .task_minutes import Floats, TaskMinuteRows, runs

HOUR_S = 3_600
# A Gpu that is held while nothing ran on it for a whole minute is held idle in that minute.
IDLE_AT_MOST_PCT = 5.0
UTIL, UTIL_MAX, POWER = AT["util_pct"], AT["util_max_pct"], AT["power_w"]
NEEDED = frozenset((UTIL, UTIL_MAX, POWER))
USAGE_SUMS = ("gpu_s", "util_pct_s", "util_s", "idle_s", "mem_byte_s", "mem_s", "energy_j",
              "energy_s")


@dataclass(slots=True)
class UsageRows:
    """Rows: one owner on one Gpu within one hour. `user` is an index into `users`."""

    slot: Ints
    t: Ints
    user: npt.NDArray[np.intp]
    users: list[str | None]
    numbers: dict[str, Floats]

    def take(self, which: npt.NDArray[np.generic]) -> "UsageRows":
        return UsageRows(self.slot[which], self.t[which], self.user[which], self.users,
                         {name: values[which] for name, values in self.numbers.items()})


def usages(held: TaskMinuteRows, rolled: Rollup, grain: int = HOUR_S) -> UsageRows:
    """`rolled`: minutes of the same Gpus. An owner holds a Gpu once, with however many Tasks."""
    user_of: dict[str | None, int] = {}
    of_lane = np.array([user_of.setdefault(None if task is None else task.user, len(user_of))
                        for task in held.tasks], np.intp)
    user = of_lane[held.lane] if len(held) else held.lane
    by = np.lexsort((user, held.t, held.slot))
    slot, t, user = held.slot[by], held.t[by], user[by]
    starts = runs(slot, t, user)
    seconds, mem_byte_s, mem_s = (
        join.reduceat(held.numbers[name][by], starts) if len(starts) else np.zeros(0)
        for name, join in (("seconds", np.maximum), ("mem_byte_s", np.add), ("mem_s", np.maximum)))
    slot, t, user = slot[starts], t[starts], user[starts]
    numbers = {"gpu_s": seconds, "mem_byte_s": mem_byte_s, "mem_s": mem_s}
    numbers |= _shares(slot, t, seconds, rolled)
    return _by_grain(UsageRows(slot, t, user, list(user_of), numbers), grain)


def _shares(slot: Ints, t: Ints, seconds: Floats, rolled: Rollup) -> dict[str, Floats]:
    """What the Gpu did in the minutes in which it was held; its energy is divided."""
    at, is_known = _found(slot, t, rolled)
    starts = runs(slot, t)
    owners = np.repeat(np.diff(np.append(starts, len(slot))), np.diff(np.append(starts, len(slot))))

    def number(column: int, values: list[Floats]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        if not len(rolled):
            return np.zeros(len(slot)), is_known
        return values[column][at], is_known & (rolled.n[column][at] > 0)

    def mean(column: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        total, there = number(column, rolled.total)
        n = rolled.n[column][at] if len(rolled) else np.ones(len(slot))
        return total / np.maximum(n, 1), there

    (util, has_util), (power, has_power) = mean(UTIL), mean(POWER)
    top, has_top = number(UTIL_MAX, rolled.high)
    is_idle = has_util & (np.where(has_top, top, util) <= IDLE_AT_MOST_PCT)
    return {"util_pct_s": np.where(has_util, util * seconds, 0.0),
            "util_s": np.where(has_util, seconds, 0.0), "idle_s": np.where(is_idle, seconds, 0.0),
            "energy_j": np.where(has_power, power * seconds / np.maximum(owners, 1), 0.0),
            "energy_s": np.where(has_power, seconds, 0.0)}


def _found(slot: Ints, t: Ints, rolled: Rollup
           ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Of each row, where its Gpu's minute is in `rolled`, if it is."""
    if not len(rolled):
        return np.zeros(len(slot), np.intp), np.zeros(len(slot), bool)
    most = int(max(rolled.slot.max(), slot.max(initial=0))) + 1
    keys, wanted = rolled.t * most + rolled.slot, t * most + slot
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return at, keys[at] == wanted


def _by_grain(usage: UsageRows, grain: int) -> UsageRows:
    hour = usage.t - usage.t % grain
    by = np.lexsort((usage.user, hour, usage.slot))
    starts = runs(usage.slot[by], hour[by], usage.user[by])
    first = by[starts]
    return UsageRows(usage.slot[first], hour[first], usage.user[first], usage.users,
                     {name: np.add.reduceat(usage.numbers[name][by], starts) if len(starts)
                      else np.zeros(0) for name in USAGE_SUMS})
