"""Uses of GPUs by tasks as flat arrays, with a row for each task, job and owner that is present.

A task's row stands for its whole identity: a new process with the same pid gets another row and
inherits nothing. The row of a task that is gone stays empty for one step at least.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gpudeck.contract.wire import Task, Use
from gpudeck.measures.jobs import job_key

from ...fleet.fleet import Fleet, InventorySlots, Node
from ...fleet.sampled_tasks import SampledTasks
from .numbers import NONE
from .rule_signal import Floats
from .state_machine import Mask, Rows

# How a task got its GPUs. FREE: somebody started it by hand.
SCHEDULED, SERVICE, FREE, NOBODYS = 0.0, 1.0, 2.0, 3.0
_PAIR = attrgetter("task_id", "gpu")
NODES_AT_A_TIME = 16
NO_NUMBERS = np.empty(0)
NO_ROWS = np.empty(0, np.intp)
T = TypeVar("T")


class TargetRowAllocator:
    """Rows for keys that come and go. `there`, `fresh` and the length are as of the last
    `settle`."""

    def __init__(self) -> None:
        self.keys: list[Hashable | None] = []
        self._row_of: dict[Hashable, int] = {}
        self._members: list[int] = []
        self._free: list[int] = []
        self._departed: list[int] = []
        self._fresh: list[int] = []
        self._there = np.empty(0, bool)
        self._fresh_rows = NO_ROWS
        self._is_known = True

    def turn(self) -> None:
        """Begin a new step: rows of keys that left before it may be reused."""
        self._free += self._departed
        self._departed, self._fresh = [], []

    def join(self, key: Hashable) -> int:
        """Add one member of this key and return its row, which is new for the first."""
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
            self._departed.append(row)
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
    """The reported values of a task, as numbers."""

    node_at: int = 0
    job: int = NONE
    owner: int = NONE
    started_at: float = np.nan  # by the hub's clock
    standing: float = np.nan


class _SampledRows(NamedTuple):
    ids: tuple[str, ...]
    row_of: dict[str, int]  # of that node; a new dict when a task has come or gone
    rows: Rows


@dataclass(slots=True)
class _NodeGpuUses:
    """The uses on one node as of the last step."""

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
        """Return the row of each sampled task. Looked up again only when the node samples other
        tasks, or has others."""
        former = self.sampled.get(names)
        if former is None or former.row_of is not self.row_of or former.ids != ids:
            former = self.sampled[names] = _SampledRows(ids, self.row_of, np.array(
                [self.row_of.get(task_id, NONE) for task_id in ids], np.intp))
        return former.rows


class GpuUseTable:
    """All uses of GPUs. `row`, `slot`: of each use; `job`, `owner`, `node_at`, `started_at`: of
    each task's row. They show the last step, even while the next one is prepared."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_node: dict[str, _NodeGpuUses] = {}
        self.tasks = TargetRowAllocator()
        self.jobs = TargetRowAllocator()
        self.owners = TargetRowAllocator()
        self.task: list[Task | None] = []
        self.id: list[str] = []
        self._task_rows: list[_TaskRow] = []
        self._columns = np.empty((0, len(_TaskRow._fields)))  # the same, with room for more
        self._is_prepared = False
        self._has_changed = self._has_moved = False  # since the last step
        self._scheduled: set[int] = set()  # nodes; for good: between two jobs they still are
        self.row: Rows = np.empty(0, np.intp)
        self.slot: Rows = np.empty(0, np.intp)
        self.mem: Floats = np.empty(0)
        self.sm: Floats = np.empty(0)
        self._numbers = np.empty((2, 0))  # `mem` and `sm` of the next step, unless a task moves
        self.job: Rows = np.empty(0, np.intp)
        self.owner: Rows = np.empty(0, np.intp)
        self.node_at: Rows = np.empty(0, np.intp)
        self.started_at: Floats = np.empty(0)
        self.is_foreign: Floats = np.empty(0)
        self._of_layout: dict[Hashable, Any] = {}

    def prepare(self) -> Iterator[None]:
        """Prepare the next step some nodes at a time, so that other greenlets can run in
        between."""
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
                   if (current := self._by_node.get(node_id)) is None
                   or current.uses is not node.uses
                   or current.tasks is not node.tasks or current.listing is not node.listing]
        moved: list[tuple[str, Node]] = []
        for part in _parts(changed):
            moved += [(node_id, node) for node_id, node in part if self._update(node_id, node)]
            yield
        # Departures first: a job that starts again under the same name is another one.
        stay: list[dict[str, int]] = []
        for part in _parts(moved):
            stay += [self._remove_departed(node_id) for node_id, _ in part]
            yield
        for joining in _parts([*zip(moved, stay, strict=True)]):
            for (node_id, node), row_of in joining:
                self._add_arrivals(node_id, node, row_of)
            yield
        self._has_changed |= bool(changed)
        self._has_moved |= bool(moved)

    def _update(self, node_id: str, node: Node) -> bool:
        """Take over the numbers of a node, and return whether any task came, went or moved."""
        uses = node.uses if node.listing is not None else ()
        pairs = list(map(_PAIR, uses))
        if (current := self._by_node.get(node_id)) is None:
            current = self._by_node[node_id] = _NodeGpuUses(
                node, node.uses, node.tasks, node.listing, is_described=False)
        stays = (pairs == current.pairs and current.listing is node.listing
                 and current.is_described)
        current.uses, current.tasks, current.listing = node.uses, node.tasks, node.listing
        current.pairs = pairs
        current.mem = np.array([use.mem_used_bytes for use in uses], float)
        current.sm = np.array([use.sm_pct for use in uses], float)
        if stays and not self._has_moved:  # else everything is laid out again
            part = slice(current.start, current.start + len(uses))
            self._numbers[0, part], self._numbers[1, part] = current.mem, current.sm
        return not stays

    def _remove_departed(self, node_id: str) -> dict[str, int]:
        """Remove tasks that left the node, and return the rows of those that stay."""
        current = self._by_node[node_id]
        present = {task_id for task_id, _ in current.pairs}
        stay: dict[str, int] = {}
        for task_id, row in current.row_of.items():
            if task_id in present and (self.task[row] is not None or task_id not in current.tasks):
                stay[task_id] = row
            else:
                self._end(row)
        return stay

    def _end(self, row: int) -> None:
        task = self._task_rows[row]
        for roster, member in ((self.jobs, task.job), (self.owners, task.owner)):
            if member != NONE:
                roster.leave(member)
        self.tasks.leave(row)

    def _add_arrivals(self, node_id: str, node: Node, row_of: dict[str, int]) -> None:
        current = self._by_node[node_id]
        for task_id, _ in current.pairs:
            if task_id not in row_of:
                row_of[task_id] = self._begin(node_id, node, task_id)
        current.row_of = row_of
        current.rows = np.array([row_of[task_id] for task_id, _ in current.pairs], np.intp)
        order = [] if current.listing is None else current.listing.order
        current.slots = np.array([order[gpu] for _, gpu in current.pairs], np.intp)
        current.is_described = all(self.task[row] is not None for row in row_of.values())

    def _begin(self, node_id: str, node: Node, task_id: str) -> int:
        row = self.tasks.join((node_id, task_id))
        if row == len(self.task):
            self.task.append(None)
            self.id.append("")
            self._task_rows.append(_TaskRow())
        task = self._by_node[node_id].tasks.get(task_id)
        self.task[row], self.id[row] = task, task_id
        self._task_rows[row] = _TaskRow(node.at) if task is None else _TaskRow(
            node.at,
            self.jobs.join(job_key(node_id, task.id, task.job_id, task.user, task.launch)),
            NONE if task.user is None else self.owners.join(task.user),
            np.nan if task.started_at is None else task.started_at - (node.clock_offset_s or 0.0),
            _standing(task))
        if row >= self._columns.shape[0]:
            self._columns = np.resize(self._columns, (2 * row + 64, self._columns.shape[1]))
        self._columns[row] = self._task_rows[row]
        if self._task_rows[row].standing == SCHEDULED:
            self._scheduled.add(node.at)
        return row

    def reuse(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value that depends on which task, job and owner uses which GPU alone: it is made
        once for as long as they stay, and is not to be changed."""
        if key not in self._of_layout:
            self._of_layout[key] = make()
        value: T = self._of_layout[key]
        return value

    def _lay_out(self) -> None:
        self._of_layout = {}
        nodes, start = self._by_node.values(), 0
        for node in nodes:
            node.start, start = start, start + len(node.mem)
        self.row = np.concatenate([NO_ROWS, *(node.rows for node in nodes)])
        self.slot = np.concatenate([NO_ROWS, *(node.slots for node in nodes)])
        self._numbers = np.array([np.concatenate([NO_NUMBERS, *(node.mem for node in nodes)]),
                                  np.concatenate([NO_NUMBERS, *(node.sm for node in nodes)])])
        table = self._columns[: len(self._task_rows)].T.copy()
        self.node_at, self.job, self.owner = table[:3].astype(np.intp)
        self.started_at, standing = table[3:]
        is_scheduled = np.isin(self.node_at, list(self._scheduled))
        self.is_foreign = np.where(np.isnan(standing), np.nan, (standing == NOBODYS) | (
            (standing == FREE) & is_scheduled))

    def in_job(self, row: int) -> list[tuple[str, str]]:
        """Return the node and id of each task of a job."""
        return [self.of_task(task) for task in np.flatnonzero(
            (self.job == row) & self.tasks.there()).tolist()]

    def sampled(self, names: Sequence[str], of: Callable[[Node], SampledTasks]
                ) -> dict[str, Floats]:
        """Return, by the rows of tasks, numbers that nodes report of tasks other than their use of
        GPUs."""
        columns = np.full((len(names), len(self.tasks)), np.nan)
        reports = [(uses.rows_of(names, sampled.ids), sampled.values)
                   for uses in self._by_node.values() if (sampled := of(uses.node)).ids]
        if reports:
            rows = np.concatenate([row_numbers for row_numbers, _ in reports])
            values = np.concatenate([numbers for _, numbers in reports], axis=1)
            for column, of_tasks in zip(columns, values, strict=True):
                is_known = (rows != NONE) & ~np.isnan(of_tasks)
                column[rows[is_known]] = of_tasks[is_known]
        return dict(zip(names, columns, strict=True))

    def of_task(self, row: int) -> tuple[str, str]:
        return self._fleet.node_ids[self.node_at[row]], self.id[row]


def _parts(items: list[T]) -> Iterator[list[T]]:
    return (items[at : at + NODES_AT_A_TIME] for at in range(0, len(items), NODES_AT_A_TIME))


def _standing(task: Task) -> float:
    """Return how a task got its GPUs; NOBODYS if not even its user is known."""
    # From its cgroup, which a process cannot choose as it can its environment variables.
    manager = (task.manager or "").partition(" ")[0]
    if manager in ("slurm", "pod"):
        return SCHEDULED
    if manager == "unit" or task.kind in ("mps_server", "graphics"):
        return SERVICE
    return NOBODYS if task.user is None else FREE
