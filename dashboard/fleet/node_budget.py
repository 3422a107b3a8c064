"""Budgets of what the hub keeps because of one node: a stolen key must not be able to fill its
memory or its disk. Pure."""

import math
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from gpudeck.contract.wire import MAX_GPUS, MAX_TASKS

HOUR_S, DAY_S = 3_600.0, 86_400.0
# (within, how many). GPUs, models and owners that were not known are kept for as long as the hub
# runs; boards that are split again come with new instances, some dozens at once.
NEW_NAMES = ((HOUR_S, 4 * MAX_GPUS), (DAY_S, 16 * MAX_GPUS))
# A use is a task on a GPU. Each costs history some hundred bytes until its five minutes are over,
# and stands in files for long.
NEW_USES = ((HOUR_S, 4 * MAX_TASKS), (DAY_S, 16 * MAX_TASKS))
# An agent keeps a day: a Frame a second, and its events.
PAST = ((DAY_S, 200_000),)
HELLOS = ((HOUR_S, 3_600),)  # each is on disk, and three lines of the log
# What its pool says costs the hub's time, its memory and its database: a node of 1,024 waiting
# claims that change each second is within all three.
POOL_BYTES = ((HOUR_S, 512_000_000), (DAY_S, 4_000_000_000))
POOL_ENTRIES = ((HOUR_S, 8_192), (DAY_S, 32_768))
POOL_MICROS = ((HOUR_S, 240_000_000), (DAY_S, 2_400_000_000))
MINUTE_S = 60.0

Excess = tuple[str, str]  # what was more than allowed, and the bound in words
Spent = list[tuple[float, int]]  # when, and how many within the minute from then on
Use = tuple[str, int]  # task and GPU


def _words(what: str, bounds: Sequence[tuple[float, int]]) -> str:
    first, *more = (f"{most:,}{{}} {'an hour' if within_s == HOUR_S else 'a day'}"
                    for within_s, most in bounds)
    return ", or ".join([first.format(f" {what}"), *(bound.format("") for bound in more)])


class NodeBudget:
    def __init__(self, bounds: Sequence[tuple[float, int]]) -> None:
        self._bounds = bounds
        self._longest_s = max(within_s for within_s, _ in bounds)
        self._entries: dict[str, deque[tuple[float, int]]] = {}  # by node

    def take(self, node_id: str, count: int, at: float) -> bool:
        """Spend so many if they fit; return whether they do."""
        if count == 0:
            return True
        entries = self._entries.setdefault(node_id, deque())
        while entries and at - entries[0][0] > self._longest_s:
            entries.popleft()
        for within_s, most in self._bounds:
            if count + sum(many for when, many in entries if at - when <= within_s) > most:
                return False
        self.spend(node_id, count, at)
        return True

    def spend(self, node_id: str, count: int, at: float) -> None:
        """Spend so many, even if that is more than fits."""
        entries = self._entries.setdefault(node_id, deque())
        began, before = entries[-1] if entries else (at, 0)
        if before and at - began < MINUTE_S:
            entries[-1] = began, before + count
        else:
            entries.append((at, count))

    def entries(self, node_id: str, ahead_s: float) -> Spent:
        """Return what was spent, by a clock that is so far ahead of ours."""
        return [(at + ahead_s, count) for at, count in self._entries.get(node_id, ())]

    def charge(self, node_id: str, entries: Spent) -> None:
        """Add what was spent before, even if that is more than fits."""
        self._entries.setdefault(node_id, deque()).extend(entries)

    def shift(self, by_s: float, latest: float) -> None:
        """Move to another clock. What seems to come from its future was spent just now: setting a
        clock must give nobody more."""
        for node_id, entries in self._entries.items():
            self._entries[node_id] = deque(
                sorted((min(at + by_s, latest), count) for at, count in entries))


@dataclass(slots=True)
class _RecentUses:
    since: float
    newer: set[Use] = field(default_factory=set)
    older: set[Use] = field(default_factory=set)


class NodeAllowances:
    """Budgets of all that nodes report; each method returns None within them."""

    def __init__(self) -> None:
        self._names = NodeBudget(NEW_NAMES)
        self._uses = NodeBudget(NEW_USES)
        self._past = NodeBudget(PAST)
        self._hellos = NodeBudget(HELLOS)
        self._pool = {"pool bytes": NodeBudget(POOL_BYTES),
                      "pool entries": NodeBudget(POOL_ENTRIES)}
        self._pool_time = NodeBudget(POOL_MICROS)
        self._recent: dict[str, _RecentUses] = {}
        self.known_until = -math.inf  # by the wall clock: what a checkpoint holds of all this
        self._of: dict[str, NodeBudget] = {"names": self._names, "uses": self._uses,
                                           "past": self._past, "hellos": self._hellos,
                                           "pool time": self._pool_time, **self._pool}

    def entries(self, node_id: str, ahead_s: float) -> dict[str, Spent]:
        return {what: budget.entries(node_id, ahead_s) for what, budget in self._of.items()}

    def charge(self, node_id: str, entries: Mapping[str, Spent]) -> None:
        for what in entries.keys() & self._of.keys():
            self._of[what].charge(node_id, entries[what])

    def shift(self, by_s: float, latest: float) -> None:
        for budget in self._of.values():
            budget.shift(by_s, latest)

    def hellos(self, node_id: str, at: float) -> Excess | None:
        if self._hellos.take(node_id, 1, at):
            return None
        return "connections", _words("connections", HELLOS)

    def names(self, node_id: str, what: str, new: int, at: float) -> Excess | None:
        if self._names.take(node_id, new, at):
            return None
        return f"new {what}", _words("new GPUs, models and owners", NEW_NAMES)

    def uses(self, node_id: str, uses: Set[Use], at: float) -> Excess | None:
        """Charge new uses. What comes and goes is not new again within the hour."""
        if not uses:
            return None
        recent = self._recent.setdefault(node_id, _RecentUses(at))
        if at - recent.since > HOUR_S:
            recent.since, recent.newer, recent.older = at, set(), recent.newer
        new = uses - recent.newer - recent.older
        if not self._uses.take(node_id, len(new), at):
            return "new tasks", _words("new tasks on GPUs", NEW_USES)
        recent.newer |= new
        return None

    def pool(self, node_id: str, size: int, new: int, at: float) -> Excess | None:
        """`new`: claims and leases, also ended ones, that were not in its report just before."""
        if not self._pool_time.take(node_id, 1, at):
            return ("claims and leases",
                    "claims and leases for 240 s of the hub's time an hour, or 2,400 a day")
        if not self._pool["pool entries"].take(node_id, new, at):
            return "new claims and leases", _words("new claims and leases", POOL_ENTRIES)
        if not self._pool["pool bytes"].take(node_id, size, at):
            return "bytes about its pool", _words("bytes about its pool", POOL_BYTES)
        return None

    def spend_pool(self, node_id: str, seconds: float, at: float) -> None:
        self._pool_time.spend(node_id, int(1e6 * seconds), at)

    def forget(self, node_id: str) -> None:
        """Forget a node that comes no more."""
        self._recent.pop(node_id, None)

    def past(self, node_id: str, messages: int, at: float) -> Excess | None:
        if self._past.take(node_id, messages, at):
            return None
        return "messages about the past", _words("messages about the past", PAST)
