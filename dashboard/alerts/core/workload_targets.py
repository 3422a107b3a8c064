"""Tasks, jobs and owners as targets of rules: a row each for as long as it is present."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from gpudeck.contract.wire import Task

from ...fleet.filters import Filter, TaskGpuPairs
from ...fleet.fleet import Fleet, GpuStatus
from ...fleet.sampled_tasks import HOST_NUMBERS, LEASE_NUMBERS
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext
from .gpu_uses import TargetRowAllocator
from .numbers import NONE, number_of_uses, reduce_uses
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows
from .use_columns import number_of_each_use

Group = Literal["task", "job", "owner"]
T = TypeVar("T")


# Values that several numbers share: key, numbers, and how they are made.
SHARED: tuple[tuple[str, frozenset[str], Callable[[EvaluationContext], object]], ...] = (
    ("host numbers of tasks", frozenset(("works_on_host", *HOST_NUMBERS)),
     lambda moment: number_of_each_use(moment, "host_cpu_pct")),
    ("leases of tasks", frozenset(("first_to_go_mem_share", *LEASE_NUMBERS, "lease_overdue_s")),
     lambda moment: number_of_each_use(moment, "priority")),
    ("jobs", frozenset(("rank_lag_pct", "busy_pct", "gpu_jobs", "is_youngest",
                        "first_to_go_mem_share")),
     lambda moment: moment.shares("jobs")),
)


@dataclass(slots=True)
class WorkloadTargets:
    """Targets that use GPUs. `cell`: the row of each use, NONE where that is not known. A number
    that is unknown for a part is unknown for the whole."""

    moment: EvaluationContext
    of: Group
    roster: TargetRowAllocator
    cell: Rows

    @property
    def size(self) -> int:
        return len(self.roster)

    @property
    def there(self) -> Mask:
        return self.roster.there()

    @property
    def fresh(self) -> Rows:
        return self.roster.fresh()

    def sampled_at(self, names: frozenset[str]) -> Floats:
        """Return the time of its GPU with the oldest sample. What an owner holds is known now: a
        silent node's owners still hold what they held."""
        if self.of == "owner":
            return np.full(self.size, self.moment.now)
        return self.moment.cached(("sampled at", self.of), lambda: reduce_uses(
            self, self.moment.fleet.sampled_at[self.gpu], np.minimum))

    def numbers(self, term: SignalTerm) -> TargetValues:
        return TargetValues(self.moment.cached(("number", self.of, term.name),
                                               lambda: number_of_uses(term.name, self)))

    def in_scope(self, scope: Filter) -> Mask:
        """Return the targets all of whose uses are in scope: an action on a target reaches all of
        them."""
        return self.moment.cached(("scope", self.of, scope.text), lambda: self._in_scope(scope))

    def _in_scope(self, scope: Filter) -> Mask:
        is_in_scope = self._known_uses().in_scope(scope, self.moment.fleet, self.moment.mono)
        excluded = self.cell[~is_in_scope]
        mask = self.there.copy()
        mask[excluded[excluded != NONE]] = False
        return mask

    def _known_uses(self) -> "KnownUses":
        uses = self.moment.uses
        return self.moment.cached("known uses", lambda: KnownUses.of(
            uses.slot, [uses.task[row] for row in uses.row.tolist()]))

    def standing(self) -> TargetStability | None:
        if self.of == "owner":
            return None
        return self.moment.cached(("standing", self.of), self._standing)

    def _standing(self) -> TargetStability:
        of_node, at = self.moment.standing(), self.moment.node_at[self.gpu]
        return TargetStability(reduce_uses(self, of_node.steady_s[at], np.minimum),
                               reduce_uses(self, np.abs(of_node.skew_s[at]), np.maximum))

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        for key, users, make in SHARED:
            if names & users and key not in self.moment.cache:
                make(self.moment)
                yield
        for name in names:
            if ("number", self.of, name) not in self.moment.cache:
                self.numbers(SignalTerm("last", name))
                yield
        if scope is not None and "known uses" not in self.moment.cache:
            self._known_uses()
            yield
        if scope is not None and ("scope", self.of, scope.text) not in self.moment.cache:
            self.in_scope(scope)
            yield
        if "standing" not in self.moment.cache:
            self.moment.standing()
            yield
        if ("standing", self.of) not in self.moment.cache:
            self.standing()
            yield

    # -- the columns of its numbers

    @property
    def gpu(self) -> Rows:
        return self.moment.uses.slot

    def keys(self, what: str) -> Rows:
        uses = self.moment.uses
        match what:
            case "task":
                return uses.row
            case "job":
                return uses.job[uses.row]
            case "node":
                return self.moment.node_at[uses.slot]
            case "faulty_gpu":
                recent = self.moment.xids.recent(self.moment.fleet, self.moment.now)
                return np.where(recent[uses.slot] > 0, uses.slot, NONE)
        return uses.slot

    def reuse(self, key: Hashable, make: Callable[[], T]) -> T:
        return self.moment.uses.reuse((self.of, key), make)

    def of_uses(self, name: str) -> Floats:
        return number_of_each_use(self.moment, name)

    def of_gpus(self, name: str) -> Floats:
        """Return a metric by GPU. A reading from before a GPU fell silent is not what it does now:
        for owners it is dropped; for others the age of the oldest sample shows it."""
        match name:
            case "jobs":
                return self.moment.shares("jobs")
            case "mem_total_bytes" | "power_limit_max_w":
                return self.moment.fleet.fact(name)[: self.moment.gpu_count]
        values = self.moment.live(name).values
        if self.of != "owner":
            return values
        return np.where(self.moment.is_in(GpuStatus.OK), values, np.nan)

    # -- who

    def name(self, row: int) -> AlertTarget:
        moment, fleet = self.moment, self.moment.fleet
        slots = np.unique(moment.uses.slot[self.cell == row])
        gpus = tuple(fleet.uuids[slot] for slot in slots)
        if self.of == "owner":
            name = str(self.roster.keys[row])
            return AlertTarget(name, "", "", "", (name,), gpus)
        node_ids = list(dict.fromkeys(fleet.node_ids[at] for at in fleet.node_at[slots]))
        tasks = [moment.uses.task[row_] for row_ in np.unique(moment.uses.row[self.cell == row])]
        users = sorted({task.user for task in tasks if task is not None and task.user is not None})
        places = ", ".join(fleet.facts[slot].place for slot in slots[:8])
        node_id = node_ids[0] if node_ids else ""
        host = fleet.nodes[node_id].hello.host if node_id else ""
        more = f" and {len(node_ids) - 1} more" if len(node_ids) > 1 else ""
        return AlertTarget(self.key(row), node_id, host + more, places, tuple(users), gpus)

    def identity(self, row: int) -> str:
        return self.key(row)

    def key(self, row: int) -> str:
        if self.of == "task":
            return self.moment.uses.of_task(row)[1]
        key = self.roster.keys[row]
        if not isinstance(key, tuple):
            return str(key)
        # A launch is named with its first task too: its address may be of another one some day.
        tasks = [] if len(key) > 2 else self.matters_to(row)
        return f"{key[1]} of {key[0]} with {min(tasks)[1]}" if tasks else f"{key[0]}/{key[1]}"

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        """Return the node and id of the tasks that a row is about."""
        match self.of:
            case "task":
                return [self.moment.uses.of_task(row)]
            case "job":
                return self.moment.uses.in_job(row)
            case "owner":
                return []


@dataclass(frozen=True, slots=True)
class KnownUses:
    """Uses whose GPU and task are known (not NONE, not None)."""

    is_known: Mask
    pairs: TaskGpuPairs

    @classmethod
    def of(cls, slots: Rows, tasks: Sequence[Task | None]) -> "KnownUses":
        is_known: Mask = (slots != NONE) & np.array([task is not None for task in tasks], bool)
        return cls(is_known, TaskGpuPairs(slots[is_known], [
            task for task, has_both in zip(tasks, is_known.tolist(), strict=True)
            if task is not None and has_both]))

    def in_scope(self, scope: Filter, fleet: Fleet, mono: float) -> Mask:
        """Return which of all uses are in scope. A target without the value is not."""
        in_scope = np.zeros(len(self.is_known), bool)
        if len(self.pairs.slots):
            in_scope[self.is_known] = scope.matches_uses(fleet, mono, self.pairs)
        return in_scope


def slot_rows(slots: Iterable[int | None]) -> Rows:
    return np.array([NONE if slot is None else slot for slot in slots], np.intp)
