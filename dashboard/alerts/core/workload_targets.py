"""Tasks, Jobs and Owners as what Rules look at: a row each for as long as it is there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...fleet.filters import Filter, TaskGpuPairs
from ...fleet.fleet import GpuStatus
from .firing_alerts import AlertTarget
from .gpu_targets import EvaluationContext
from .gpu_uses import NONE, TargetRowAllocator
from .rule_signal import Floats, SignalTerm
from .rule_tracker import TargetStability, TargetValues
from .state_machine import Mask, Rows

Group = Literal["task", "job", "owner"]


@dataclass(slots=True)
class WorkloadTargets:
    """`of_use`: the row of each use, NONE where that is not known. What is not known of a part is
    not known of the whole."""

    moment: EvaluationContext
    of: Group
    roster: TargetRowAllocator
    of_use: Rows

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
        """As its Gpu whose sample is oldest. What an Owner holds is known now: who is silent holds
        what they held."""
        if self.of == "owner":
            return np.full(self.size, self.moment.now)
        sampled = self.moment.fleet.sampled_at[self.moment.uses.slot]
        return self._joined(np.minimum, sampled)

    def numbers(self, term: SignalTerm) -> TargetValues:
        key = f"{self.of} {term.name}"
        if key not in self.moment.kept:
            self.moment.kept[key] = NUMBERS[term.name](self)
        return TargetValues(self.moment.kept[key], np.zeros(self.size, bool))

    def in_scope(self, scope: Filter) -> Mask:
        """Who is meant with all it uses: an act on it would reach the rest too."""
        key, scopes = (self.of, scope.text), self.moment.scopes
        if key not in scopes:
            uses = self.moment.uses
            known = [(at, task) for at, row in enumerate(uses.row.tolist())
                     if (task := uses.task[row]) is not None]
            at = np.array([at for at, _ in known], np.intp)
            meant = np.zeros(len(uses.row), bool)
            meant[at] = scope.matches_uses(self.moment.fleet, self.moment.mono,
                                           TaskGpuPairs(uses.slot[at], [task for _, task in known]))
            left_out = self.of_use[~meant]
            found = self.there.copy()
            found[left_out[left_out != NONE]] = False
            scopes[key] = found
        return scopes[key]

    def standing(self) -> TargetStability | None:
        if self.of == "owner":
            return None
        stand = self.moment.stand
        if self.of not in stand:
            of_node = self.moment.standing()
            at = self.moment.fleet.node_at[self.moment.uses.slot]
            stand[self.of] = TargetStability(self._joined(np.minimum, of_node.steady_s[at]),
                                             self._joined(np.maximum, np.abs(of_node.skew_s[at])))
        return stand[self.of]

    # -- from uses to rows

    def total(self, values: Floats) -> Floats:
        known = self.of_use != NONE
        found = np.bincount(self.of_use[known], values[known], self.size)
        return np.where(self._is_used(), found, np.nan)

    def most(self, values: Floats) -> Floats:
        return self._joined(np.maximum, values)

    def _joined(self, join: np.ufunc, values: Floats) -> Floats:
        found = np.full(self.size, np.inf if join is np.minimum else -np.inf)
        known = self.of_use != NONE
        with np.errstate(invalid="ignore"):
            join.at(found, self.of_use[known], values[known])
        return np.where(np.isinf(found), np.nan, found)

    def _is_used(self) -> Mask:
        used = np.zeros(self.size, bool)
        used[self.of_use[self.of_use != NONE]] = True
        return used

    def distinct(self, what: Rows) -> Floats:
        """How many of these there are in each."""
        known = self.of_use != NONE
        base = int(what.max(initial=0)) + 2
        pairs = np.unique(self.of_use[known] * base + what[known] + 1)
        return np.bincount(pairs // base, minlength=self.size).astype(float)

    def mean_of_gpus(self, of_slot: Floats) -> Floats:
        """Each Gpu once."""
        known = self.of_use != NONE
        base = len(of_slot) + 1
        pairs = np.unique(self.of_use[known] * base + self.moment.uses.slot[known])
        rows, slots = pairs // base, pairs % base
        count = np.bincount(rows, minlength=self.size)
        total = np.bincount(rows, of_slot[slots], self.size)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def of_gpus(self, name: str) -> Floats:
        """A metric of each slot. What was read before a Gpu fell silent is not what it does now: of
        all others but an Owner, the age of the oldest sample says so."""
        values = self.moment.live(name).values
        if self.of != "owner":
            return values
        works = self.moment.fleet.shown(self.moment.mono)[: len(values)] == GpuStatus.OK
        return np.where(works, values, np.nan)

    def on_slot(self, name: str) -> Floats:
        """A metric of the Gpu of each use."""
        return self.moment.live(name).values[self.moment.uses.slot]

    # -- who

    def name(self, row: int) -> AlertTarget:
        moment, fleet = self.moment, self.moment.fleet
        slots = np.unique(moment.uses.slot[self.of_use == row])
        gpus = tuple(fleet.uuids[slot] for slot in slots)
        if self.of == "owner":
            name = str(self.roster.keys[row])
            return AlertTarget(name, "", "", "", (name,), gpus)
        node_ids = list(dict.fromkeys(fleet.node_ids[at] for at in fleet.node_at[slots]))
        tasks = [moment.uses.task[each] for each in np.unique(moment.uses.row[self.of_use == row])]
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


def _age_s(scene: WorkloadTargets) -> Floats:
    """Of a Job, since its first Task began."""
    uses = scene.moment.uses
    return np.asarray(scene.moment.now - scene._joined(np.minimum, uses.started_at[uses.row]))


def _busy_pct(scene: WorkloadTargets) -> Floats:
    """The most that any witness of work says: its own share of the multiprocessors, and the peak of
    its Gpus where no other Job is on them. Not known where the only witness is silent."""
    uses = scene.moment.uses
    is_alone = scene.moment.shares("jobs")[uses.slot] == 1
    peak = np.where(is_alone, scene.on_slot("util_max_pct"), np.nan)
    peak = np.where(is_alone & np.isnan(peak), scene.on_slot("util_pct"), peak)
    return scene.most(np.fmax(uses.sm, peak))


def _is_youngest(scene: WorkloadTargets) -> Floats:
    """Of the Jobs that share one of its Gpus, it began last."""
    uses, fleet = scene.moment.uses, scene.moment.fleet
    begun = np.full(len(uses.jobs), np.inf)
    of_use = uses.job[uses.row]
    known = of_use != NONE
    last = np.full(len(fleet), -np.inf)
    with np.errstate(invalid="ignore"):
        np.minimum.at(begun, of_use[known], uses.started_at[uses.row][known])
        mine = np.where(known, begun[of_use], np.nan)
        np.maximum.at(last, uses.slot, mine)
    is_shared = scene.moment.shares("jobs")[uses.slot] > 1
    return scene.most(np.where(np.isnan(mine) | np.isnan(last[uses.slot]), np.nan,
                               ((mine == last[uses.slot]) & is_shared).astype(float)))


def _gpu_mem_share(scene: WorkloadTargets) -> Floats:
    slot = scene.moment.uses.slot
    return scene.most(scene.on_slot("mem_used_bytes") / scene.moment.memory_total()[slot])


def _mem_share(scene: WorkloadTargets) -> Floats:
    uses = scene.moment.uses
    return scene.most(uses.mem / scene.moment.memory_total()[uses.slot])


def _gpus_faulty(scene: WorkloadTargets) -> Floats:
    recent = scene.moment.xids.recent(scene.moment.fleet, scene.moment.now)
    faulty = recent[scene.moment.uses.slot] > 0
    slots = np.where(faulty, scene.moment.uses.slot, NONE)
    return scene.distinct(slots) - scene.most((~faulty).astype(float))


NUMBERS: dict[str, Callable[[WorkloadTargets], Floats]] = {
    "mem_used_bytes": lambda scene: scene.total(scene.moment.uses.mem),
    "sm_pct": lambda scene: scene.total(scene.moment.uses.sm),
    "util_pct": lambda scene: scene.mean_of_gpus(scene.of_gpus("util_pct")),
    "util_max_pct": lambda scene: scene.most(scene.on_slot("util_max_pct")),
    "busy_pct": _busy_pct,
    "mem_share": _mem_share,
    "gpus": lambda scene: scene.distinct(scene.moment.uses.slot),
    "age_s": _age_s,
    "gpu_mem_share": _gpu_mem_share,
    "gpu_jobs": lambda scene: scene.most(scene.moment.shares("jobs")[scene.moment.uses.slot]),
    "is_youngest": _is_youngest,
    "is_foreign": lambda scene: scene.most(
        scene.moment.uses.is_foreign[scene.moment.uses.row]),
    "tasks": lambda scene: scene.distinct(scene.moment.uses.row),
    "jobs": lambda scene: scene.distinct(scene.moment.uses.job[scene.moment.uses.row]),
    "nodes": lambda scene: scene.distinct(
        scene.moment.fleet.node_at[scene.moment.uses.slot].astype(np.intp)),
    "gpus_faulty": _gpus_faulty,
}
