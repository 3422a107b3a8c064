"""Who uses which GPUs, as flat arrays, with a row per Task, Job and Owner that is there.

A Task's row is its whole identity: a new process of the same number is another row, and inherits
nothing. A row whose Task is gone is nobody's for one look at least.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from gpudeck.jobs import job_key
from gpudeck.wire import Task, Use

from ...fleet.fleet import Fleet, InventorySlots, Node
from .numbers import NONE
from .rule_signal import Floats
from .state_machine import Mask, Rows

# How a Task stands to who gives out GPUs. FREE: somebody started it by hand.
SCHEDULED, SERVICE, FREE, NOBODYS = 0.0, 1.0, 2.0, 3.0
_PAIR = attrgetter("task_id", "gpu")


class TargetRowAllocator:
    """Rows for who comes and goes."""

    def __init__(self) -> None:
        self.keys: list[Hashable | None] = []
        self._row_of: dict[Hashable, int] = {}
        self._members: list[int] = []
        self._free: list[int] = []
        self._left: list[int] = []
        self._fresh: list[int] = []
        self._there = np.empty(0, bool)
        self._is_known = True

    def turn(self) -> None:
        """A new look begins: who left before it has been seen to be gone."""
        self._free += self._left
        self._left, self._fresh = [], []

    def join(self, key: Hashable) -> int:
        """One more of it; the first makes it be there."""
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = self._take()
            self.keys[row] = key
            self._is_known = False
        self._members[row] += 1
        return row

    def _take(self) -> int:
        if self._free:
            row = self._free.pop()
            self._fresh.append(row)
            return row
        self.keys.append(None)
        self._members.append(0)
        return len(self.keys) - 1

    def leave(self, row: int) -> None:
        self._members[row] -= 1
        if self._members[row] == 0:
            key = self.keys[row]
            if self._row_of.get(key) == row:
                del self._row_of[key]
            self.keys[row] = None
            self._left.append(row)
            self._is_known = False

    def there(self) -> Mask:
        if not self._is_known or len(self._there) != len(self.keys):
            self._there = np.array([count > 0 for count in self._members], bool)
            self._is_known = True
        return self._there

    def fresh(self) -> Rows:
        return np.array(self._fresh, np.intp)

    def __len__(self) -> int:
        return len(self.keys)


class _TaskRow(NamedTuple):
    """What is told of a Task, as numbers."""

    node_at: int = 0
    job: int = NONE
    owner: int = NONE
    started_at: float = np.nan  # by our clock
    standing: float = np.nan


@dataclass(slots=True)
class _NodeGpuUses:
    """What was taken of one Node."""

    uses: tuple[Use, ...]
    tasks: dict[str, Task]
    listing: InventorySlots | None
    pairs: list[tuple[str, int]] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    mem: list[float | None] = field(default_factory=list)
    sm: list[float | None] = field(default_factory=list)
    is_described: bool = True


class GpuUseTable:
    """`row`, `slot`: of each use; `job`, `owner`, `node_at`, `started_at`: of each Task's row."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kept: dict[str, _NodeGpuUses] = {}
        self.tasks = TargetRowAllocator()
        self.jobs = TargetRowAllocator()
        self.owners = TargetRowAllocator()
        self.task: list[Task | None] = []
        self.id: list[str] = []
        self._told: list[_TaskRow] = []
        self._scheduled: set[int] = set()  # nodes; for good: between two jobs they are so too
        self.row: Rows = np.empty(0, np.intp)
        self.slot: Rows = np.empty(0, np.intp)
        self.mem: Floats = np.empty(0)
        self.sm: Floats = np.empty(0)
        self.job: Rows = np.empty(0, np.intp)
        self.owner: Rows = np.empty(0, np.intp)
        self.node_at: Rows = np.empty(0, np.intp)
        self.started_at: Floats = np.empty(0)
        self.is_foreign: Floats = np.empty(0)

    def look(self) -> None:
        for roster in (self.tasks, self.jobs, self.owners):
            roster.turn()
        fleet = self._fleet
        changed = [(node_id, node) for node_id, node in fleet.nodes.items()
                   if _is_other(self._kept.get(node_id), node)]
        moved = [(node_id, node) for node_id, node in changed if self._take(node_id, node)]
        # Who left makes room first: a Job that begins again under its name is another one.
        known = [(node_id, node, self._leave(node_id, node)) for node_id, node in moved]
        for node_id, node, row_of in known:
            self._join(node_id, node, row_of)
        if moved:
            self._lay_out()
        if changed:
            kept = self._kept.values()
            self.mem = np.array([value for each in kept for value in each.mem], float)
            self.sm = np.array([value for each in kept for value in each.sm], float)

    def _take(self, node_id: str, node: Node) -> bool:
        """The numbers; whether anybody came, went or moved."""
        former = self._kept.get(node_id)
        uses = node.uses if node.listing is not None else ()
        pairs = list(map(_PAIR, uses))
        stays = (former is not None and pairs == former.pairs and former.listing is node.listing
                 and former.is_described)
        kept = self._kept.setdefault(node_id, _NodeGpuUses(node.uses, node.tasks, node.listing))
        kept.uses, kept.tasks, kept.listing = node.uses, node.tasks, node.listing
        kept.pairs = pairs
        kept.mem, kept.sm = [use.mem_used_bytes for use in uses], [use.sm_pct for use in uses]
        return not stays

    def _leave(self, node_id: str, node: Node) -> dict[str, int]:
        """Those who stay, with their rows."""
        kept = self._kept[node_id]
        there = {task_id for task_id, _ in kept.pairs}
        stay: dict[str, int] = {}
        for task_id, row in kept.row_of.items():
            if task_id in there and (self.task[row] is not None or task_id not in node.tasks):
                stay[task_id] = row
            else:
                self._end(row)
        return stay

    def _end(self, row: int) -> None:
        for roster, of in ((self.jobs, self._told[row].job), (self.owners, self._told[row].owner)):
            if of != NONE:
                roster.leave(of)
        self.tasks.leave(row)

    def _join(self, node_id: str, node: Node, row_of: dict[str, int]) -> None:
        kept = self._kept[node_id]
        for task_id, _ in kept.pairs:
            if task_id not in row_of:
                row_of[task_id] = self._begin(node_id, node, task_id)
        kept.row_of = row_of
        kept.rows = [row_of[task_id] for task_id, _ in kept.pairs]
        order = [] if node.listing is None else node.listing.order
        kept.slots = [order[gpu] for _, gpu in kept.pairs]
        kept.is_described = all(self.task[row] is not None for row in kept.rows)

    def _begin(self, node_id: str, node: Node, task_id: str) -> int:
        row = self.tasks.join((node_id, task_id))
        if row == len(self.task):
            self.task.append(None)
            self.id.append("")
            self._told.append(_TaskRow())
        task = node.tasks.get(task_id)
        self.task[row], self.id[row] = task, task_id
        self._told[row] = _TaskRow(node.at) if task is None else _TaskRow(
            node.at,
            self.jobs.join(job_key(node_id, task.id, task.job_id, task.user, task.launch)),
            NONE if task.user is None else self.owners.join(task.user),
            np.nan if task.started_at is None else task.started_at - (node.clock_offset_s or 0.0),
            _standing(task))
        if self._told[row].standing == SCHEDULED:
            self._scheduled.add(node.at)
        return row

    def _lay_out(self) -> None:
        self.row = np.array([row for kept in self._kept.values() for row in kept.rows], np.intp)
        self.slot = np.array([slot for kept in self._kept.values() for slot in kept.slots],
                             np.intp)
        table = np.array(self._told, float).reshape(-1, 5).T
        self.node_at, self.job, self.owner = table[:3].astype(np.intp)
        self.started_at, standing = table[3:]
        is_scheduled = np.isin(self.node_at, list(self._scheduled))
        self.is_foreign = np.where(np.isnan(standing), np.nan, (standing == NOBODYS) | (
            (standing == FREE) & is_scheduled))

    def in_job(self, row: int) -> list[tuple[str, str]]:
        """Node and id of its Tasks."""
        return [self.of_task(task) for task in np.flatnonzero(
            (self.job == row) & self.tasks.there()).tolist()]

    def row_of(self, node_id: str, task_id: str) -> int | None:
        kept = self._kept.get(node_id)
        return None if kept is None else kept.row_of.get(task_id)

    def of_task(self, row: int) -> tuple[str, str]:
        return self._fleet.node_ids[self.node_at[row]], self.id[row]


def _standing(task: Task) -> float:
    """Whether anybody has given it its GPUs."""
    # From its cgroup, which a process cannot choose as it can its variables.
    manager = (task.manager or "").partition(" ")[0]
    if manager in ("slurm", "pod"):
        return SCHEDULED
    if manager == "unit" or task.kind in ("mps_server", "graphics"):
        return SERVICE
    return NOBODYS if task.user is None else FREE


def _is_other(kept: _NodeGpuUses | None, node: Node) -> bool:
    return kept is None or (kept.uses is not node.uses or kept.tasks is not node.tasks
                            or kept.listing is not node.listing)
