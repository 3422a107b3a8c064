"""Tasks, Jobs and Owners as what Rules look at: a row each for as long as it is there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpudeck.pool.link import PoolReport
from gpudeck.wire import Task

from ...fleet.filters import Filter, TaskGpuPairs
from ...fleet.fleet import Fleet, GpuStatus
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext
from .gpu_uses import TargetRowAllocator
from .numbers import NONE, joined, number_of_uses
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows

Group = Literal["task", "job", "owner"]


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
        uses = self.moment.uses
        meant = uses_in_scope(scope, self.moment.fleet, self.moment.mono, uses.slot.tolist(),
                              [uses.task[row] for row in uses.row.tolist()])
        left_out = self.cell[~meant]
        found = self.there.copy()
        found[left_out[left_out != NONE]] = False
        return found

    def standing(self) -> TargetStability | None:
        if self.of == "owner":
            return None
        of_node, at = self.moment.standing(), self.moment.fleet.node_at[self.moment.uses.slot]
        return self.moment.once(("standing", self.of), lambda: TargetStability(
            joined(self, of_node.steady_s[at], np.minimum),
            joined(self, np.abs(of_node.skew_s[at]), np.maximum)))

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
                return self.moment.fleet.node_at[uses.slot].astype(np.intp)
            case "faulty_gpu":
                recent = self.moment.xids.recent(self.moment.fleet, self.moment.now)
                return np.where(recent[uses.slot] > 0, uses.slot, NONE)
        return uses.slot

    def of_uses(self, name: str) -> Floats:
        uses = self.moment.uses
        match name:
            case "age_s":
                return self.moment.now - uses.started_at[uses.row]
            case "is_foreign":
                return uses.is_foreign[uses.row]
            case "started_at":
                return uses.started_at[uses.row]
            case "is_outside_lease":
                return self._of_leases(name, _outside)
            case "lease_overdue_s":
                return self._of_leases(name, _overdue)
        return uses.sm if name == "sm_pct" else uses.mem

    def _of_leases(self, name: str, of_tasks: Callable[[PoolReport, float], Mapping[str, float]]
                   ) -> Floats:
        """As each node said; what nobody leases is not known."""
        moment, uses = self.moment, self.moment.uses

        def found() -> Floats:
            of_rows = np.where(moment.each(lambda node: None if node.pool is None else 0.0)[
                uses.node_at] == 0.0, 0.0, np.nan)
            for node_id, node in moment.fleet.nodes.items():
                if node.pool is not None:
                    now = moment.now + (node.clock_offset_s or 0.0)
                    for task_id, value in of_tasks(node.pool, now).items():
                        if (row := uses.row_of(node_id, task_id)) is not None:
                            of_rows[row] = value
            return of_rows

        return moment.once(("leases", name), found)[uses.row]

    def of_gpus(self, name: str) -> Floats:
        """What was read before a GPU fell silent is not what it does now: of all others but an
        owner, the age of the oldest sample says so."""
        match name:
            case "jobs":
                return self.moment.shares("jobs")
            case "mem_total_bytes":
                return self.moment.fact(name)
        values = self.moment.live(name).values
        if self.of != "owner":
            return values
        works = self.moment.is_in(GpuStatus.OK)[: len(values)]
        return np.where(works, values, np.nan)

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


def _outside(pool: PoolReport, now: float) -> dict[str, float]:
    leased = {uuid for lease in pool.leases for uuid in lease.uuids}
    return {use.task_id: 1.0 for use in pool.outside if use.gpu in leased}


def _overdue(pool: PoolReport, now: float) -> dict[str, float]:
    """`now`: by the node's clock."""
    return {task_id: now - lease.until for lease in pool.leases if lease.until < now
            for task_id in lease.task_ids}


def uses_in_scope(scope: Filter, fleet: Fleet, mono: float, slots: Sequence[int | None],
                  tasks: Sequence[Task | None]) -> Mask:
    """Which uses of GPUs are meant; one of which GPU or task is not known is not."""
    known = [(at, slot, task) for at, (slot, task) in enumerate(zip(slots, tasks, strict=True))
             if slot is not None and task is not None]
    meant = np.zeros(len(slots), bool)
    if known:
        at, known_slots, known_tasks = zip(*known, strict=True)
        meant[list(at)] = scope.matches_uses(fleet, mono, TaskGpuPairs(
            np.array(known_slots, np.intp), list(known_tasks)))
    return meant
