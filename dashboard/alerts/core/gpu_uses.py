"""Who uses which GPUs, as flat arrays, with a row per Task, Job and Owner that is there.

A Task's row is its whole identity: a new process of the same number is another row, and inherits
nothing. A row whose Task is gone is nobody's for one look at least.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np

from gpudeck.jobs import job_key
from gpudeck.wire import Task, Use

from ...fleet.fleet import Fleet, InventorySlots, Node
from ...fleet.sampled_tasks import SampledTasks
from .numbers import NONE
from .rule_signal import Floats
from .state_machine import Mask, Rows

# How a Task stands to who gives out GPUs. FREE: somebody started it by hand.
SCHEDULED, SERVICE, FREE, NOBODYS = 0.0, 1.0, 2.0, 3.0
_PAIR = attrgetter("task_id", "gpu")
NODES_AT_A_TIME = 16
NO_NUMBERS = np.empty(0)
NO_ROWS = np.empty(0, np.intp)
T = TypeVar("T")


class TargetRowAllocator:
    """Rows for who comes and goes. Who is there, and how many rows there are, is as it was settled
    last."""

    def __init__(self) -> None:
        self.keys: list[Hashable | None] = []
        self._row_of: dict[Hashable, int] = {}
        self._members: list[int] = []
        self._free: list[int] = []
        self._left: list[int] = []
        self._fresh: list[int] = []
        self._there = np.empty(0, bool)
        self._fresh_rows = NO_ROWS
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

    def settle(self) -> None:
        if not self._is_known:
            self._there = np.array(self._members, np.intp) > 0
            self._is_known = True
        self._fresh_rows = np.array(self._fresh, np.intp)

    def there(self) -> Mask:
        return self._there

    def fresh(self) -> Rows:
        return self._fresh_rows

    def __len__(self) -> int:
        return len(self._there)


class _TaskRow(NamedTuple):
    """A Task's reported values, as numbers."""

    node_at: int = 0
    job: int = NONE
    owner: int = NONE
    started_at: float = np.nan  # by our clock
    standing: float = np.nan


class _SampledRows(NamedTuple):
    ids: tuple[str, ...]
    row_of: dict[str, int]  # of that Node; another one when a Task has come or gone
    rows: Rows


@dataclass(slots=True)
class _NodeGpuUses:
    """What was taken of one Node."""

    node: Node
    uses: tuple[Use, ...]
    tasks: dict[str, Task]
    listing: InventorySlots | None
    pairs: list[tuple[str, int]] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: NO_ROWS)
    slots: Rows = field(default_factory=lambda: NO_ROWS)
    mem: Floats = field(default_factory=lambda: NO_NUMBERS)
    sm: Floats = field(default_factory=lambda: NO_NUMBERS)
    start: int = 0  # of its uses among those of all nodes
    is_described: bool = True
    sampled: dict[Sequence[str], _SampledRows] = field(default_factory=dict)  # by what is sampled

    def rows_of(self, names: Sequence[str], ids: tuple[str, ...]) -> Rows:
        """Looked up again only when the Node says them of other Tasks, or has others."""
        known = self.sampled.get(names)
        if known is None or known.row_of is not self.row_of or known.ids != ids:
            known = self.sampled[names] = _SampledRows(ids, self.row_of, np.array(
                [self.row_of.get(task_id, NONE) for task_id in ids], np.intp))
        return known.rows


class GpuUseTable:
    """`row`, `slot`: of each use; `job`, `owner`, `node_at`, `started_at`: of each Task's row. They
    are of the last look, also while the next one is prepared."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kept: dict[str, _NodeGpuUses] = {}
        self.tasks = TargetRowAllocator()
        self.jobs = TargetRowAllocator()
        self.owners = TargetRowAllocator()
        self.task: list[Task | None] = []
        self.id: list[str] = []
        self._told: list[_TaskRow] = []
        self._columns = np.empty((0, len(_TaskRow._fields)))  # the same, with room for more
        self._is_prepared = False
        self._has_changed = self._has_moved = False  # since the last look
        self._scheduled: set[int] = set()  # nodes; for good: between two jobs they are so too
        self.row: Rows = np.empty(0, np.intp)
        self.slot: Rows = np.empty(0, np.intp)
        self.mem: Floats = np.empty(0)
        self.sm: Floats = np.empty(0)
        self._numbers = np.empty((2, 0))  # both of the next look, unless somebody moves
        self.job: Rows = np.empty(0, np.intp)
        self.owner: Rows = np.empty(0, np.intp)
        self.node_at: Rows = np.empty(0, np.intp)
        self.started_at: Floats = np.empty(0)
        self.is_foreign: Floats = np.empty(0)

    def prepare(self) -> Iterator[None]:
        """What can be done of the next look some nodes at a time, so that others may have their
        turn."""
        self._is_prepared = True
        for roster in (self.tasks, self.jobs, self.owners):
            roster.turn()
        yield from self._follow()

    def look(self) -> None:
        for _ in self._follow() if self._is_prepared else self.prepare():
            pass
        self._is_prepared = False
        for roster in (self.tasks, self.jobs, self.owners):
            roster.settle()
        if self._has_moved:
            self._lay_out()
        if self._has_changed:
            self.mem, self.sm = self._numbers.copy()
        self._has_changed = self._has_moved = False

    def _follow(self) -> Iterator[None]:
        changed = [(node_id, node) for node_id, node in self._fleet.nodes.items()
                   if (kept := self._kept.get(node_id)) is None or kept.uses is not node.uses
                   or kept.tasks is not node.tasks or kept.listing is not node.listing]
        moved: list[tuple[str, Node]] = []
        for part in _parts(changed):
            moved += [(node_id, node) for node_id, node in part if self._take(node_id, node)]
            yield
        # Who left makes room first: a Job that begins again under its name is another one.
        stay: list[dict[str, int]] = []
        for part in _parts(moved):
            stay += [self._leave(node_id) for node_id, _ in part]
            yield
        for joining in _parts([*zip(moved, stay, strict=True)]):
            for (node_id, node), row_of in joining:
                self._join(node_id, node, row_of)
            yield
        self._has_changed |= bool(changed)
        self._has_moved |= bool(moved)

    def _take(self, node_id: str, node: Node) -> bool:
        """The numbers; whether anybody came, went or moved."""
        former = self._kept.get(node_id)
        uses = node.uses if node.listing is not None else ()
        pairs = list(map(_PAIR, uses))
        stays = (former is not None and pairs == former.pairs and former.listing is node.listing
                 and former.is_described)
        kept = self._kept.setdefault(node_id, _NodeGpuUses(
            node, node.uses, node.tasks, node.listing))
        kept.uses, kept.tasks, kept.listing = node.uses, node.tasks, node.listing
        kept.pairs = pairs
        kept.mem = np.array([use.mem_used_bytes for use in uses], float)
        kept.sm = np.array([use.sm_pct for use in uses], float)
        if stays and not self._has_moved:  # else all is laid out again
            part = slice(kept.start, kept.start + len(uses))
            self._numbers[0, part], self._numbers[1, part] = kept.mem, kept.sm
        return not stays

    def _leave(self, node_id: str) -> dict[str, int]:
        """Those who stay, with their rows."""
        kept = self._kept[node_id]
        there = {task_id for task_id, _ in kept.pairs}
        stay: dict[str, int] = {}
        for task_id, row in kept.row_of.items():
            if task_id in there and (self.task[row] is not None or task_id not in kept.tasks):
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
        kept.rows = np.array([row_of[task_id] for task_id, _ in kept.pairs], np.intp)
        order = [] if kept.listing is None else kept.listing.order
        kept.slots = np.array([order[gpu] for _, gpu in kept.pairs], np.intp)
        kept.is_described = all(self.task[row] is not None for row in row_of.values())

    def _begin(self, node_id: str, node: Node, task_id: str) -> int:
        row = self.tasks.join((node_id, task_id))
        if row == len(self.task):
            self.task.append(None)
            self.id.append("")
            self._told.append(_TaskRow())
        task = self._kept[node_id].tasks.get(task_id)
        self.task[row], self.id[row] = task, task_id
        self._told[row] = _TaskRow(node.at) if task is None else _TaskRow(
            node.at,
            self.jobs.join(job_key(node_id, task.id, task.job_id, task.user, task.launch)),
            NONE if task.user is None else self.owners.join(task.user),
            np.nan if task.started_at is None else task.started_at - (node.clock_offset_s or 0.0),
            _standing(task))
        if row >= self._columns.shape[0]:
            self._columns = np.resize(self._columns, (2 * row + 64, self._columns.shape[1]))
        self._columns[row] = self._told[row]
        if self._told[row].standing == SCHEDULED:
            self._scheduled.add(node.at)
        return row

    def _lay_out(self) -> None:
        all_kept, start = self._kept.values(), 0
        for kept in all_kept:
            kept.start, start = start, start + len(kept.mem)
        self.row = np.concatenate([NO_ROWS, *(kept.rows for kept in all_kept)])
        self.slot = np.concatenate([NO_ROWS, *(kept.slots for kept in all_kept)])
        self._numbers = np.array([np.concatenate([NO_NUMBERS, *(kept.mem for kept in all_kept)]),
                                  np.concatenate([NO_NUMBERS, *(kept.sm for kept in all_kept)])])
        table = self._columns[: len(self._told)].T.copy()
        self.node_at, self.job, self.owner = table[:3].astype(np.intp)
        self.started_at, standing = table[3:]
        is_scheduled = np.isin(self.node_at, list(self._scheduled))
        self.is_foreign = np.where(np.isnan(standing), np.nan, (standing == NOBODYS) | (
            (standing == FREE) & is_scheduled))

    def in_job(self, row: int) -> list[tuple[str, str]]:
        """Node and id of its Tasks."""
        return [self.of_task(task) for task in np.flatnonzero(
            (self.job == row) & self.tasks.there()).tolist()]

    def sampled(self, names: Sequence[str], of: Callable[[Node], SampledTasks]
                ) -> dict[str, Floats]:
        """What each Node says of its Tasks beside their GPUs, by their rows."""
        columns = np.full((len(names), len(self.tasks)), np.nan)
        said = [(kept.rows_of(names, sampled.ids), sampled.values) for kept in self._kept.values()
                if (sampled := of(kept.node)).ids]
        if said:
            rows = np.concatenate([each for each, _ in said])
            values = np.concatenate([each for _, each in said], axis=1)
            for column, of_tasks in zip(columns, values, strict=True):
                known = (rows != NONE) & ~np.isnan(of_tasks)
                column[rows[known]] = of_tasks[known]
        return dict(zip(names, columns, strict=True))

    def of_task(self, row: int) -> tuple[str, str]:
        return self._fleet.node_ids[self.node_at[row]], self.id[row]


def _parts(of: list[T]) -> Iterator[list[T]]:
    return (of[at : at + NODES_AT_A_TIME] for at in range(0, len(of), NODES_AT_A_TIME))


def _standing(task: Task) -> float:
    """Whether anybody has given it its GPUs."""
    # From its cgroup, which a process cannot choose as it can its variables.
    manager = (task.manager or "").partition(" ")[0]
    if manager in ("slurm", "pod"):
        return SCHEDULED
    if manager == "unit" or task.kind in ("mps_server", "graphics"):
        return SERVICE
    return NOBODYS if task.user is None else FREE
