"""The Tasks that somebody sees as one list: which match, in which order, and summed by owner or
job. Pure."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from gpudeck.actions import total

from . import views
from .filters import Filter, TaskGpuPairs
from .fleet import Fleet
from .visibility import VisibleFleet

T = TypeVar("T")
Order = Literal["asc", "desc"]
GroupBy = Literal["owner", "job"]
ORDERS: tuple[Order, ...] = ("asc", "desc")
GROUP_BYS: tuple[GroupBy, ...] = ("owner", "job")
MAX_GROUPS = 1_000

SORTS: dict[str, Callable[[views.TaskView], Any]] = {
    "user": lambda task: _folded(task.user),
    "host": lambda task: task.host.lower(),
    "pid": lambda task: task.pid,
    "command": lambda task: _folded(task.command),
    "gpus": lambda task: len(task.gpus),
    "mem_used_bytes": lambda task: task.mem_used_bytes,
    "sm_pct": lambda task: task.sm_pct,
    "started_at": lambda task: task.started_at,
    "state": lambda task: task.state,
    "manager": lambda task: _folded(task.manager),
    "job": lambda task: group_key(task, "job"),
}


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
    sm_pct: float | None
    started_at: float | None  # of the oldest


class TaskList(msgspec.Struct):
    items: list[views.TaskView]
    next: str | None
    total: int  # that match
    groups: list[TaskGroup] | None = None


def matching(fleet: Fleet, visible: VisibleFleet, picked: Filter, mono: float
             ) -> set[tuple[str, str]]:
    """(node id, task id) of the Tasks that match with one of their GPUs at least."""
    uses = [(node, use) for node in visible.nodes(fleet) if node.listing is not None
            for use in node.uses if use.task_id in node.tasks]
    slots = [node.listing.order[use.gpu] for node, use in uses if node.listing is not None]
    rows = TaskGpuPairs(np.array(slots, np.intp), [node.tasks[use.task_id] for node, use in uses])
    hits = picked.matches_uses(fleet, mono, rows, visible.reads)
    return {(uses[at][0].hello.node_id, uses[at][1].task_id) for at in hits.nonzero()[0].tolist()}


def ordered(tasks: Iterable[views.TaskView], sort: str, order: Order) -> list[views.TaskView]:
    """What is not known comes last, whichever way; equals stay in the order of node and id, so
    that a row moves only when its own value does."""
    return _known_first(tasks, SORTS[sort], order)


def _known_first(rows: Iterable[T], of: Callable[[T], Any], order: Order) -> list[T]:
    keyed = [(of(row), row) for row in rows]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=order == "desc")
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def group_key(task: views.TaskView, by: GroupBy) -> str:
    if by == "owner":
        return task.user or ""
    if task.owner.launch is not None:  # its ranks may be on other nodes
        return f"{task.user or ''}/{task.owner.launch}"
    return job_key(task)


def job_key(task: views.TaskView) -> str:
    """Of what an act takes as one: a node's part of a launch."""
    return f"{task.node}/{task.job_id or task.id}"


def grouped(tasks: Iterable[views.TaskView], by: GroupBy) -> list[TaskGroup]:
    """In the order in which their first Task comes; what holds most memory need not be searched
    for when the list is sorted by it."""
    members: dict[str, list[views.TaskView]] = {}
    for task in tasks:
        members.setdefault(group_key(task, by), []).append(task)
    return [_group(key, inside, by) for key, inside in members.items()]


def _group(key: str, inside: list[views.TaskView], by: GroupBy) -> TaskGroup:
    starts = [task.started_at for task in inside if task.started_at is not None]
    oldest = min(inside, key=lambda task: (task.started_at is None, task.started_at or 0.0))
    is_job, nodes = by == "job", len({task.node for task in inside})
    return TaskGroup(
        key, oldest.user, oldest.host if is_job and nodes == 1 else None,
        oldest.command if is_job else None,
        (oldest.owner.launch or oldest.job_id) if is_job else None, len(inside), nodes,
        len({(task.node, use.uuid) for task in inside for use in task.gpus}),
        total(task.mem_used_bytes for task in inside), total(task.sm_pct for task in inside),
        min(starts) if starts else None)


def group_order(groups: list[TaskGroup], sort: str, order: Order) -> list[TaskGroup]:
    """By the group's own sum where there is one."""
    if sort == "user":
        return _known_first(groups, lambda one: _folded(one.user), order)
    if sort in ("mem_used_bytes", "sm_pct", "gpus", "started_at"):
        return _known_first(groups, attrgetter(sort), order)
    return groups


def _folded(text: str | None) -> str | None:
    return None if text is None else text.lower()
