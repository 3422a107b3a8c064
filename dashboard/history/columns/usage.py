"""Use of GPUs per owner, GPU and hour, from the minutes of Tasks and the seconds of GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from gpudeck.contract.wire import Task
from gpudeck.measures.waste import LOADS, is_unused

from .arrays import Bools, Floats, Ints, Slots, lengths, runs, take_rows
from .rollup import Rollup
from .task_minutes import TaskMinuteRows

HOUR_S = 3_600
NEEDED = (*LOADS, "power_w")
# Of a part of what an owner did: `mem_own_s` is how long memory of that part was known, `mem_s` its
# share of how long memory of the owner was. `load_s`: how long it was known whether it was idle.
USAGE_SUMS = ("gpu_s", "util_pct_s", "util_s", "load_s", "idle_s", "mem_byte_s", "mem_s",
              "energy_j", "energy_s", "mem_own_s", "sm_pct_s", "sm_s")
USAGE_TOPS = ("mem_max_bytes",)
# What stands for a sum that came later, in files that do not have it.
OF_OLDER = {"load_s": "util_s"}
# What tells parts of an owner's work apart. "": it is known to have none; null: nothing is known.
PARTS = ("job", "launch", "slurm_job", "container", "pod", "namespace", "unit")

UsagePart = tuple[str | None, ...]  # the user, then PARTS


@dataclass(slots=True)
class UsageRows:
    """Rows: one part of one owner's work on one GPU within one hour. `part` is an index into
    `parts`."""

    slot: Ints
    t: Ints
    part: Slots
    parts: list[UsagePart]
    numbers: dict[str, Floats]


_PARTS_OF = attrgetter("user", *("job_id" if name == "job" else name for name in PARTS))


def part_of(task: Task | None) -> UsagePart:
    if task is None:
        return (None,) * (1 + len(PARTS))
    user, *parts = _PARTS_OF(task)
    return user, *[part or "" for part in parts]


def usages(task_rows: TaskMinuteRows, rolled: Rollup, grain: int = HOUR_S) -> UsageRows:
    """`rolled`: minutes of the same GPUs. An owner holds a GPU once, with however many Tasks: in
    each minute that is divided between the parts by their seconds, so that the parts of whatever
    kind add up to the owner's."""
    number: dict[UsagePart, int] = {}
    of_lane = np.array([number.setdefault(part_of(task), len(number)) for task in task_rows.tasks],
                       np.intp)
    rows = _summed(UsageRows(task_rows.slot, task_rows.t, of_lane[task_rows.lane], list(number),
                             task_rows.numbers),
                   {"seconds": np.maximum, "mem_byte_s": np.add, "mem_s": np.maximum,
                    "mem_max_bytes": np.add})  # where a peak is not known, that of the part is not
    user, rows = _by_owner(rows)
    owned = runs(rows.slot, rows.t, user)
    seconds = _divided(rows.numbers.pop("seconds"), owned)
    own_s = rows.numbers["mem_s"]
    rows.numbers |= {"gpu_s": seconds, "mem_own_s": own_s, "mem_s": _divided(own_s, owned)}
    rows.numbers |= _shares(rows.slot, rows.t, seconds, owned, rolled)
    rows.t = rows.t - rows.t % grain
    return _summed(rows, dict.fromkeys(USAGE_SUMS, np.add) | dict.fromkeys(USAGE_TOPS, np.fmax))


def _by_owner(rows: UsageRows) -> tuple[Slots, UsageRows]:
    """Return the owner of each row as a number, with rows of one owner next to each other."""
    number: dict[str | None, int] = {}
    of_part = np.array([number.setdefault(part[0], len(number)) for part in rows.parts], np.intp)
    user = of_part[rows.part]
    order = np.lexsort((rows.part, user, rows.t, rows.slot))
    return user[order], take_rows(rows, order)


def _divided(values: Floats, owned: Slots) -> Floats:
    """Return the largest value of each owner's rows, divided between them in proportion."""
    if not len(values):
        return values
    many = lengths(owned, len(values))
    whole = np.repeat(np.add.reduceat(values, owned), many)
    most = np.repeat(np.maximum.reduceat(values, owned), many)
    return np.where(whole > 0, values * (most / np.where(whole > 0, whole, 1.0)), 0.0)


def _summed(usage: UsageRows, how: Mapping[str, np.ufunc]) -> UsageRows:
    """Add up rows of one part on one GPU at one time."""
    usage = take_rows(usage, np.lexsort((usage.part, usage.t, usage.slot)))
    starts = runs(usage.slot, usage.t, usage.part)
    return replace(take_rows(replace(usage, numbers={}), starts), numbers={
        name: join.reduceat(usage.numbers[name], starts) for name, join in how.items()})


def _shares(slot: Ints, t: Ints, seconds: Floats, owned: Slots, rolled: Rollup
            ) -> dict[str, Floats]:
    """Return what the GPU did in the minutes in which it was held; its energy is divided between
    its owners, whose rows begin at `owned`."""
    at, is_known = _places_in(slot, t, rolled)
    minutes = runs(slot, t)
    of_gpu = lengths(np.searchsorted(owned, minutes), len(owned))  # owners of each GPU and minute
    owners = np.repeat(of_gpu, lengths(minutes, len(slot)))

    def number(key: str, values: Floats) -> tuple[Floats, Bools]:
        there = is_known & (np.append(rolled.n[key], 0)[at] > 0)
        return np.where(there, np.append(values, 0.0)[at], 0.0), there

    util, has_util = number("util_pct", rolled.mean("util_pct"))
    sm, has_sm = number("sm_active_pct", rolled.mean("sm_active_pct"))
    power, has_power = number("power_w", rolled.mean("power_w"))
    peak = np.full(len(seconds), np.nan)
    for load in LOADS:
        high, is_there = number(load, rolled.high[load])
        peak = np.where(np.isnan(peak) & is_there, high, peak)
    return {"util_pct_s": util * seconds,
            "util_s": np.where(has_util, seconds, 0.0),
            "sm_pct_s": sm * seconds,
            "sm_s": np.where(has_sm, seconds, 0.0),
            "load_s": np.where(np.isnan(peak), 0.0, seconds),
            "idle_s": np.where(is_unused(peak), seconds, 0.0),
            "energy_j": power * seconds / owners,
            "energy_s": np.where(has_power, seconds, 0.0)}


def _places_in(slot: Ints, t: Ints, rolled: Rollup) -> tuple[Slots, Bools]:
    """Return each row's place in `rolled`, behind the last if it has none, and if it has one."""
    most = int(max(rolled.slot.max(initial=0), slot.max(initial=0))) + 1
    keys, row_keys = rolled.t * most + rolled.slot, t * most + slot
    order = np.append(np.argsort(keys), len(keys))
    at = order[np.searchsorted(keys, row_keys, sorter=order[:-1])]
    return at, np.append(keys, -1)[at] == row_keys
