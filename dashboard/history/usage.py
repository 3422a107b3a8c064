"""Who held how much: from the minutes of Tasks and the seconds of GPUs, per owner, GPU and hour."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpudeck.metrics import IDLE_AT_MOST_PCT

from .arrays import Bools, Floats, Ints, Slots, lengths, runs, taken
from .rollup import Rollup
from .task_minutes import TaskMinuteRows

HOUR_S = 3_600
NEEDED = ("util_pct", "util_max_pct", "power_w")
USAGE_SUMS = ("gpu_s", "util_pct_s", "util_s", "idle_s", "mem_byte_s", "mem_s", "energy_j",
              "energy_s")


@dataclass(slots=True)
class UsageRows:
    """Rows: one owner on one GPU within one hour. `user` is an index into `users`."""

    slot: Ints
    t: Ints
    user: Slots
    users: list[str | None]
    numbers: dict[str, Floats]


def usages(held: TaskMinuteRows, rolled: Rollup, grain: int = HOUR_S) -> UsageRows:
    """`rolled`: minutes of the same GPUs. An owner holds a GPU once, with however many Tasks."""
    user_of: dict[str | None, int] = {}
    of_lane = np.array([user_of.setdefault(None if task is None else task.user, len(user_of))
                        for task in held.tasks], np.intp)
    owned = _summed(UsageRows(held.slot, held.t, of_lane[held.lane], list(user_of), held.numbers),
                    {"seconds": np.maximum, "mem_byte_s": np.add, "mem_s": np.maximum})
    seconds = owned.numbers.pop("seconds")
    owned.numbers |= {"gpu_s": seconds} | _shares(owned.slot, owned.t, seconds, rolled)
    owned.t = owned.t - owned.t % grain
    return _summed(owned, dict.fromkeys(USAGE_SUMS, np.add))


def _summed(usage: UsageRows, how: Mapping[str, np.ufunc]) -> UsageRows:
    """Rows of one owner on one GPU at one time as one."""
    usage = taken(usage, np.lexsort((usage.user, usage.t, usage.slot)))
    starts = runs(usage.slot, usage.t, usage.user)
    return replace(taken(replace(usage, numbers={}), starts), numbers={
        name: join.reduceat(usage.numbers[name], starts) for name, join in how.items()})


def _shares(slot: Ints, t: Ints, seconds: Floats, rolled: Rollup) -> dict[str, Floats]:
    """What the GPU did in the minutes in which it was held; its energy is divided."""
    at, is_known = _found(slot, t, rolled)
    owners = lengths(runs(slot, t), len(slot))

    def number(key: str, values: Floats) -> tuple[Floats, Bools]:
        there = is_known & (np.append(rolled.n[key], 0)[at] > 0)
        return np.where(there, np.append(values, 0.0)[at], 0.0), there

    util, has_util = number("util_pct", rolled.mean("util_pct"))
    power, has_power = number("power_w", rolled.mean("power_w"))
    top, has_top = number("util_max_pct", rolled.high["util_max_pct"])
    is_idle = has_util & (np.where(has_top, top, util) <= IDLE_AT_MOST_PCT)
    return {"util_pct_s": util * seconds,
            "util_s": np.where(has_util, seconds, 0.0), "idle_s": np.where(is_idle, seconds, 0.0),
            "energy_j": power * seconds / np.repeat(owners, owners),
            "energy_s": np.where(has_power, seconds, 0.0)}


def _found(slot: Ints, t: Ints, rolled: Rollup) -> tuple[Slots, Bools]:
    """Of each row, where its GPU's minute is in `rolled`, if it is; else behind the last one."""
    most = int(max(rolled.slot.max(initial=0), slot.max(initial=0))) + 1
    keys, wanted = rolled.t * most + rolled.slot, t * most + slot
    order = np.append(np.argsort(keys), len(keys))
    at = order[np.searchsorted(keys, wanted, sorter=order[:-1])]
    return at, np.append(keys, -1)[at] == wanted
