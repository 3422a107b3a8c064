"""List of the Tasks that somebody sees: matching, sorted, and summed by owner or job. Pure."""

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np

from . import views
from .filters import Filter, TaskGpuPairs
from .metric_table import Floats
from .owner_views import OwnerView
from .task_table import STATES, Places, TaskColumns, job_key
from .visibility import CommandLineVisibility

Order = Literal["asc", "desc"]
GroupBy = Literal["owner", "job"]
ORDERS: tuple[Order, ...] = ("asc", "desc")
GROUP_BYS: tuple[GroupBy, ...] = ("owner", "job")

NUMBERS: dict[str, Callable[[TaskColumns], Floats]] = {
    "gpus": attrgetter("gpu_counts"),
    "mem_used_bytes": attrgetter("mem_used_bytes"),
    "sm_pct": attrgetter("sm_pct"),
    "started_at": attrgetter("started_at"),
    "idle_s": attrgetter("idle_s"),
}
WORDS: dict[str, Callable[[TaskColumns, int, CommandLineVisibility], Any]] = {
    "user": lambda table, row, _: _folded(table.tasks[row].user),
    "host": lambda table, row, _: table.node_of(row).hello.host.lower(),
    "pid": lambda table, row, _: table.tasks[row].pid,
    "command": lambda table, row, reads: _folded(
        reads.line(table.tasks[row].user, table.tasks[row].command)),
    "state": lambda table, row, _: STATES[table.state[row]],
    "manager": lambda table, row, _: _folded(table.tasks[row].manager),
    "job": lambda table, row, _: table.jobs[row],
}
SORTS = ("user", "host", "pid", "command", "gpus", "mem_used_bytes", "sm_pct", "started_at",
         "state", "manager", "job", "idle_s")


class TaskGroup(msgspec.Struct):
    """Sums over the Tasks of one owner or job; None where a part is not known."""

    key: str
    user: str | None
    host: str | None  # of a job on one node
    command: str | None  # of a job: that of its oldest Task
    job_id: str | None  # of a job; of ranks of one launch, the launch
    tasks: int
    nodes: int
    gpus: int
    mem_used_bytes: float | None
    sm_pct: float | None  # average over its GPUs
    started_at: float | None  # of the oldest
    idle_s: float | None = None  # for so long all its GPUs were under 5 % busy
    util_pct: float | None = None  # average of its GPUs now
    mem_total_bytes: float | None = None  # that its GPUs have
    first_job: str | None = None  # of a job: the id of one of its jobs, which `jobs/ID` knows
    act_on: list[str] = []  # of each job on each node one task: who acts on these acts on all
    paused: int = 0  # of its Tasks
    suspended: int = 0  # of its Tasks
    state: views.TaskState | None = None  # of all its Tasks; null: not known, or not the same
    manager: str | None = None  # of a job, as of its oldest Task; so is `owner`
    owner: OwnerView = OwnerView()


class TaskList(msgspec.Struct):
    items: list[views.TaskView]
    next: str | None
    total: int  # that match
    groups: list[TaskGroup] | None = None


def matching(table: TaskColumns, picked: Filter, reads: CommandLineVisibility) -> Places:
    """Return the Tasks that match with one of their GPUs at least."""
    pairs = TaskGpuPairs(table.use_slot, [table.tasks[at] for at in table.use_task.tolist()])
    hits = picked.matches_uses(table.fleet, table.mono, pairs, reads)
    return np.unique(table.use_task[hits])


def sort_tasks(table: TaskColumns, rows: Places, sort: str, order: Order,
               reads: CommandLineVisibility) -> Places:
    """Sort Tasks. What is not known comes last, whichever way; equals stay in the order of node and
    id, so that a row moves only when its own value does."""
    if sort in NUMBERS:
        return rows[places_by_number(NUMBERS[sort](table)[rows], order)]
    return rows[places_by_word([WORDS[sort](table, row, reads) for row in rows.tolist()], order)]


def places_by_number(numbers: Floats, order: Order) -> Places:
    places: Places = np.argsort(-numbers if order == "desc" else numbers, kind="stable")
    return places


def places_by_word(words: Sequence[Any], order: Order) -> Places:
    known_places = [place for place, word in enumerate(words) if word is not None]
    known_places.sort(key=words.__getitem__, reverse=order == "desc")
    return np.array([*known_places, *(place for place, word in enumerate(words) if word is None)],
                    np.intp)


def group_keys(table: TaskColumns, rows: Places, by: GroupBy) -> list[str]:
    """Return the key of each row's group."""
    if by == "owner":
        return [table.tasks[row].user or "" for row in rows.tolist()]
    return [table.jobs[row] for row in rows.tolist()]


def tasks_in(table: TaskColumns, rows: Places, keys: Sequence[str], by: GroupBy,
             opened: Collection[str]) -> Places:
    """Return the Tasks of groups that are open. A launch is also named by its part on a node."""
    if not opened:
        return rows[:0]
    return np.array([row for row, key in zip(rows.tolist(), keys, strict=True) if key in opened or (
        by == "job" and task_key(table, row) in opened)], np.intp)


def task_key(table: TaskColumns, row: int) -> str:
    task = table.tasks[row]
    return job_key(table.node_of(row).hello.node_id, task.id, task.job_id)


def _folded(text: str | None) -> str | None:
    return None if text is None else text.lower()
