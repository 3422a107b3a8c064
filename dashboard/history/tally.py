"""Who held what: Tasks of Frames, added up per minute, and from that per owner and hour.

A Frame says what changed, so each Node has a thread of what its Tasks are: one of the live Frames,
and one of those that are brought later, which goes on where the live one broke off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from gpudeck.wire import Task, Tasks, Use

from .columns import Ints
from .rollup import Rollup

MINUTE_S, HOUR_S = 60, 3_600
# A Gpu that is held while nothing ran on it for a whole minute is held idle in that minute.
IDLE_AT_MOST_PCT = 5.0


@dataclass(slots=True)
class Held:
    """One Task on one Gpu within one minute, so far."""

    task: Task | None
    seconds: int = 0
    mem_byte_s: float = 0.0
    mem_s: int = 0
    mem_max_bytes: float | None = None
    sm_pct_s: float = 0.0
    sm_s: int = 0
    sm_max_pct: float | None = None

    def add(self, use: Use, seconds: int) -> None:
        self.seconds += seconds
        mem, sm = use.mem_used_bytes, use.sm_pct
        if mem is not None:
            self.mem_byte_s += mem * seconds
            self.mem_s += seconds
            if self.mem_max_bytes is None or mem > self.mem_max_bytes:
                self.mem_max_bytes = mem
        if sm is not None:
            self.sm_pct_s += sm * seconds
            self.sm_s += seconds
            if self.sm_max_pct is None or sm > self.sm_max_pct:
                self.sm_max_pct = sm


Key = tuple[int, int, str]  # minute, slot, task id
Minutes = dict[Key, Held]


OF_TASK = ("job_id", "user", "launch", "manager", "container", "pod", "namespace", "slurm_job",
           "unit")
OF_HELD = ("seconds", "mem_byte_s", "mem_s", "sm_pct_s", "sm_s", "mem_max_bytes", "sm_max_pct")
UNKNOWN = Task("", 1, 0, None, None, None)  # used a Gpu before it was described


@dataclass(slots=True)
class Thread:
    tasks: dict[str, Task] = field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    pairs: list[tuple[str, int]] = field(default_factory=list)  # task id and Gpu of each use
    slots: list[int] = field(default_factory=list)
    minute: int = 0
    seconds: int = 0  # of this minute, not added up yet
    held: list["Held"] | None = None  # of each use, within this minute
    held_of: int = 0  # the tally's generation then

    def take(self, tasks: Tasks) -> None:
        self.uses = tasks.uses
        pairs = [(use.task_id, use.gpu) for use in tasks.uses]
        former, self.pairs = self.pairs, pairs
        if pairs == former and not tasks.snapshot and not tasks.began:
            return
        self.held = None
        began = {task.id: task for task in tasks.began}
        known = began if tasks.snapshot else self.tasks | began
        used = {use.task_id for use in tasks.uses}
        self.tasks = {task_id: task for task_id, task in known.items() if task_id in used}


class Tally:
    def __init__(self, block_s: int) -> None:
        self._block_s = block_s
        self._live: dict[str, Thread] = {}
        self._back: dict[str, Thread] = {}
        self.blocks: dict[int, Minutes] = {}  # by the start of the block
        self._generation = 0

    def hello(self, node_id: str) -> None:
        """A new connection: what was not acked comes later, and begins where it broke off."""
        former = self._live.pop(node_id, None)
        if former is not None:
            self._add_up(former)
            self._back[node_id] = former

    def frame(self, node_id: str, slots: list[int], second: int, tasks: Tasks | None,
              is_backfill: bool, is_new: bool) -> None:
        threads = self._back if is_backfill else self._live
        thread = threads.get(node_id)
        if thread is None:
            thread = threads[node_id] = Thread()
        minute = second - second % MINUTE_S
        if tasks is not None or minute != thread.minute or thread.slots is not slots:
            self._add_up(thread)
            if minute != thread.minute or thread.slots is not slots:
                thread.minute, thread.slots, thread.held = minute, slots, None
            if tasks is not None:
                thread.take(tasks)
        thread.seconds += is_new

    def add_up(self) -> None:
        """Before the blocks are read."""
        for threads in (self._live, self._back):
            for thread in threads.values():
                self._add_up(thread)

    def pop(self, start: int) -> Minutes:
        """A block leaves; what is added from now on is apart from it."""
        self.add_up()
        self._generation += 1
        return self.blocks.pop(start, {})

    def _add_up(self, thread: Thread) -> None:
        seconds, thread.seconds = thread.seconds, 0
        if not seconds or not thread.uses:
            return
        start = thread.minute - thread.minute % self._block_s
        if thread.held is None or thread.held_of != self._generation:
            thread.held = self._held(thread, self.blocks.setdefault(start, {}))
            thread.held_of = self._generation
        for held, use in zip(thread.held, thread.uses, strict=True):
            held.add(use, seconds)

    def _held(self, thread: Thread, minutes: Minutes) -> list[Held]:
        slots, tasks, found = thread.slots, thread.tasks, []
        for use in thread.uses:
            held = Held(tasks.get(use.task_id))
            if use.gpu < len(slots):  # of a Frame that had fewer Gpus than its Tasks knew
                held = minutes.setdefault((thread.minute, slots[use.gpu], use.task_id), held)
            found.append(held)
        return found


def task_columns(minutes: Minutes, gpus: list[str], nodes: list[str], rank: Ints
                 ) -> dict[str, list[Any]]:
    """By gpu, node and time; `rank` says where a slot comes. Numbers are sorted and not words: a
    sort of many words would hold up every other thread."""
    order = _order([(slot, minute) for minute, slot, _ in minutes], rank)
    items = list(minutes.items())
    items = [items[at] for at in order]
    keys = [(gpus[slot], nodes[slot], minute, task_id) for (minute, slot, task_id), _ in items]
    all_held = [held for _, held in items]
    tasks = [held.task or UNKNOWN for held in all_held]
    found: dict[str, list[Any]] = {
        "gpu": [key[0] for key in keys], "node": [key[1] for key in keys],
        "t": [key[2] for key in keys], "task": [key[3] for key in keys]}
    found |= _fields(OF_TASK, tasks) | _fields(OF_HELD, all_held)
    found["job"] = found.pop("job_id")
    return found


def _fields(names: tuple[str, ...], things: Sequence[object]) -> dict[str, list[Any]]:
    """Of many things, by name."""
    columns = zip(*map(attrgetter(*names), things), strict=True) if things else ((),) * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _order(pairs: list[tuple[int, int]], rank: Ints) -> list[int]:
    """Of pairs of slot and time."""
    numbers = np.array(pairs, np.int64).reshape(-1, 2)
    found: list[int] = np.lexsort((numbers[:, 1], rank[numbers[:, 0]])).tolist()
    return found


@dataclass(slots=True)
class Usage:
    """One owner on one Gpu within one hour."""

    gpu_s: float = 0.0
    util_pct_s: float = 0.0
    util_s: float = 0.0
    idle_s: float = 0.0
    mem_byte_s: float = 0.0
    mem_s: float = 0.0
    energy_j: float = 0.0
    energy_s: float = 0.0


@dataclass(slots=True)
class _Minute:
    """What the Gpu did."""

    seconds: int
    util: float | None
    util_max: float | None
    power_w: float | None


def usages(minutes: Minutes, rolled: Rollup, util: int, util_max: int, power: int,
           grain: int = HOUR_S) -> dict[tuple[int, int, str | None], Usage]:
    """By hour, slot and owner. An owner holds a Gpu for as long as the longest of their Tasks was
    on it; energy is shared evenly among those who hold it. `util` to `power`: columns."""
    found: dict[tuple[int, int, str | None], Usage] = {}
    gpu_minutes = _gpu_minutes(rolled, util, util_max, power)
    for (minute, slot), owners in _owners(minutes).items():
        did = gpu_minutes.get((slot, minute))
        for user, (seconds, mem_byte_s, mem_s) in owners.items():
            one = found.setdefault((minute - minute % grain, slot, user), Usage())
            one.gpu_s += seconds
            one.mem_byte_s += mem_byte_s
            one.mem_s += mem_s
            if did is not None:
                _share(one, did, seconds, len(owners))
    return found


def _share(one: Usage, did: _Minute, seconds: float, owners: int) -> None:
    if did.util is not None:
        one.util_pct_s += did.util * seconds
        one.util_s += seconds
        if (did.util if did.util_max is None else did.util_max) <= IDLE_AT_MOST_PCT:
            one.idle_s += seconds
    if did.power_w is not None:
        one.energy_j += did.power_w * seconds / owners
        one.energy_s += seconds


def _owners(minutes: Minutes
            ) -> dict[tuple[int, int], dict[str | None, tuple[float, float, float]]]:
    found: dict[tuple[int, int], dict[str | None, tuple[float, float, float]]] = {}
    for (minute, slot, _), held in minutes.items():
        user = None if held.task is None else held.task.user
        owners = found.setdefault((minute, slot), {})
        seconds, mem_byte_s, mem_s = owners.get(user, (0.0, 0.0, 0.0))
        owners[user] = (max(seconds, float(held.seconds)), mem_byte_s + held.mem_byte_s,
                        max(mem_s, float(held.mem_s)))
    return found


def _gpu_minutes(rolled: Rollup, util: int, util_max: int, power: int
                 ) -> dict[tuple[int, int], _Minute]:
    def mean(column: int) -> Iterable[float | None]:
        return (None if n == 0 else total / n for total, n in zip(
            rolled.total[column].tolist(), rolled.n[column].tolist(), strict=True))

    tops = (None if n == 0 else high for high, n in zip(
        rolled.high[util_max].tolist(), rolled.n[util_max].tolist(), strict=True))
    rows = zip(rolled.slot.tolist(), rolled.t.tolist(), rolled.seconds.tolist(), mean(util), tops,
               mean(power), strict=True)
    return {(slot, t): _Minute(seconds, mean_util, top, watts)
            for slot, t, seconds, mean_util, top, watts in rows}


def usage_columns(found: dict[tuple[int, int, str | None], Usage], gpus: list[str],
                  nodes: list[str], rank: Ints) -> dict[str, list[Any]]:
    order = _order([(slot, hour) for hour, slot, _ in found], rank)
    items = list(found.items())
    rows = [items[at] for at in order]
    columns: dict[str, list[Any]] = {
        "gpu": [gpus[slot] for (_, slot, _), _ in rows],
        "node": [nodes[slot] for (_, slot, _), _ in rows],
        "t": [hour for (hour, _, _), _ in rows], "user": [user for (_, _, user), _ in rows]}
    return columns | _fields(tuple(Usage.__slots__), [one for _, one in rows])
