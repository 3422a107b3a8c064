"""Tasks, Jobs and Owners as what Rules look at: a row each for as long as it is there."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpudeck.wire import Task

from ...fleet.filters import Filter, TaskGpuPairs
from ...fleet.fleet import Fleet, GpuStatus
from ...fleet.sampled_tasks import HOST_NUMBERS, LEASE_NUMBERS
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext
from .gpu_uses import TargetRowAllocator
from .numbers import NONE, joined, number_of_uses
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows
from .use_columns import number_of_each_use

Group = Literal["task", "job", "owner"]


# What several numbers take, by its key: for which, and how it is made.
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
    """`cell`: the row of each use, NONE where that is not known. What is not known of a part is
    not known of the whole."""

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
        """As its GPU whose sample is oldest. What an Owner holds is known now: who is silent holds
        what they held."""
        if self.of == "owner":
            return np.full(self.size, self.moment.now)
        sampled = self.moment.fleet.sampled_at[self.moment.uses.slot]
        return joined(self, sampled, np.minimum)

    def numbers(self, term: SignalTerm) -> TargetValues:
        return TargetValues(self.moment.once(("number", self.of, term.name),
                                             lambda: number_of_uses(term.name, self)))

    def in_scope(self, scope: Filter) -> Mask:
        """Who is meant with all it uses: an act on it would reach the rest too."""
        return self.moment.once(("scope", self.of, scope.text), lambda: self._in_scope(scope))

    def _in_scope(self, scope: Filter) -> Mask:
        meant = self._known_uses().in_scope(scope, self.moment.fleet, self.moment.mono)
        left_out = self.cell[~meant]
        found = self.there.copy()
        found[left_out[left_out != NONE]] = False
        return found

    def _known_uses(self) -> "KnownUses":
        uses = self.moment.uses
        return self.moment.once("known uses", lambda: KnownUses.of(
            uses.slot, [uses.task[row] for row in uses.row.tolist()]))

    def standing(self) -> TargetStability | None:
        if self.of == "owner":
            return None
        of_node, at = self.moment.standing(), self.moment.node_at[self.moment.uses.slot]
        return self.moment.once(("standing", self.of), lambda: TargetStability(
            joined(self, of_node.steady_s[at], np.minimum),
            joined(self, np.abs(of_node.skew_s[at]), np.maximum)))

    def prepare(self, names: frozenset[str], scope: Filter | None) -> Iterator[None]:
        for key, wanted, make in SHARED:
            if names & wanted and key not in self.moment.made:
                make(self.moment)
                yield
        for name in names:
            if ("number", self.of, name) not in self.moment.made:
                self.numbers(SignalTerm("last", name))
                yield
        if scope is not None and "known uses" not in self.moment.made:
            self._known_uses()
            yield
        if scope is not None and ("scope", self.of, scope.text) not in self.moment.made:
            self.in_scope(scope)
            yield
        if "standing" not in self.moment.made:
            self.moment.standing()
            yield
        if ("standing", self.of) not in self.moment.made:
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

    def of_uses(self, name: str) -> Floats:
        return number_of_each_use(self.moment, name)

    def of_gpus(self, name: str) -> Floats:
        """What was read before a GPU fell silent is not what it does now: of all others but an
        owner, the age of the oldest sample says so."""
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
        tasks = [moment.uses.task[each] for each in np.unique(moment.uses.row[self.cell == row])]
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
        # Of a launch the first Task too: the same address is another launch another day.
        tasks = [] if len(key) > 2 else self.matters_to(row)
        return f"{key[1]} of {key[0]} with {min(tasks)[1]}" if tasks else f"{key[0]}/{key[1]}"

    def matters_to(self, row: int) -> list[tuple[str, str]]:
        """Node and id of the Tasks that it is about."""
        match self.of:
            case "task":
                return [self.moment.uses.of_task(row)]
            case "job":
                return self.moment.uses.in_job(row)
            case "owner":
                return []


@dataclass(frozen=True, slots=True)
class KnownUses:
    """Of uses of GPUs, those of which GPU and task are known (not NONE, not None)."""

    known: Mask
    pairs: TaskGpuPairs

    @classmethod
    def of(cls, slots: Rows, tasks: Sequence[Task | None]) -> "KnownUses":
        known: Mask = (slots != NONE) & np.array([task is not None for task in tasks], bool)
        return cls(known, TaskGpuPairs(slots[known], [
            task for task, is_known in zip(tasks, known.tolist(), strict=True)
            if task is not None and is_known]))

    def in_scope(self, scope: Filter, fleet: Fleet, mono: float) -> Mask:
        """Which of all are meant. A target without the value is not."""
        meant = np.zeros(len(self.known), bool)
        if len(self.pairs.slots):
            meant[self.known] = scope.matches_uses(fleet, mono, self.pairs)
        return meant


def slot_rows(slots: Iterable[int | None]) -> Rows:
    return np.array([NONE if slot is None else slot for slot in slots], np.intp)
