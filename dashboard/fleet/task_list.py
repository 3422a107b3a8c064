"""List of the Tasks that somebody sees: matching, sorted, and summed by owner or job. Pure."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from gpudeck.contract.actions import total
from gpudeck.contract.message_limits import PID_MAX
from gpudeck.measures.jobs import average_sm_pct
from gpudeck.measures.metrics import Absence

from . import views
from .filters import Filter, TaskGpuPairs
from .fleet import STALE_AFTER_S, Fleet, Node
from .host_views import checkpoints_of, host_uses, serving_of
from .owner_views import OwnerView
from .visibility import CommandLineVisibility, VisibleFleet
from .wasted_gpus import idle_s, least

T = TypeVar("T")
Order = Literal["asc", "desc"]
GroupBy = Literal["owner", "job"]
ORDERS: tuple[Order, ...] = ("asc", "desc")
GROUP_BYS: tuple[GroupBy, ...] = ("owner", "job")
MAX_GROUPS = 1_000
MOST_ACTED_ON = 100

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
    "idle_s": lambda task: task.idle_s,
}


class GpuNow(NamedTuple):
    util_pct: float | None
    mem_total_bytes: float | None


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


def tasks_of(fleet: Fleet, node: Node, reads: CommandLineVisibility, mono: float
             ) -> list[views.TaskView]:
    """Return the Tasks of a Node, with how long their GPUs have been idle."""
    tasks = views.task_views(fleet, node, reads)
    order = [] if node.listing is None else node.listing.order
    is_live = {fleet.uuids[slot]: mono - float(fleet.sampled_mono[slot]) <= STALE_AFTER_S
               and fleet.reported[slot] == 0 for slot in order}
    idle = {uuid: idle_s(fleet, slot, mono) if is_live[uuid] else None
            for slot in order for uuid in (fleet.uuids[slot],)}
    on_host, serving = host_uses(node, mono), serving_of(fleet, node, mono)
    checkpoints = checkpoints_of(fleet, node, mono)
    for task in tasks:
        for use in task.gpus:  # what was read last is not passed off as live
            use.sm_pct = use.sm_pct if is_live[use.uuid] else None
        task.sm_pct = average_sm_pct((use.uuid, use.sm_pct) for use in task.gpus)
        task.idle_s = least(idle[use.uuid] for use in task.gpus)
        task.on_host, task.serving = on_host.get(task.id), serving.get(task.id)
        task.checkpoints = checkpoints.get(task.id)
    return tasks


def boards_now(fleet: Fleet, visible: VisibleFleet, mono: float) -> dict[tuple[str, str], GpuNow]:
    """Return the load of each GPU now, by node and UUID."""
    util = fleet.column("util_pct", mono)
    there = util.absent == Absence.PRESENT
    return {(fleet.node_ids[fleet.node_at[slot]], fleet.uuids[slot]): GpuNow(
        float(util.values[slot]) if there[slot] else None, fleet.facts[slot].mem_total_bytes)
        for slot in visible.slots.tolist()}


def matching(fleet: Fleet, visible: VisibleFleet, picked: Filter, mono: float
             ) -> set[tuple[str, str]]:
    """Return (node id, task id) of the Tasks that match with one of their GPUs at least."""
    uses = [(node, use) for node in visible.nodes(fleet) if node.listing is not None
            for use in node.uses if use.task_id in node.tasks]
    slots = [node.listing.order[use.gpu] for node, use in uses if node.listing is not None]
    rows = TaskGpuPairs(np.array(slots, np.intp), [node.tasks[use.task_id] for node, use in uses])
    hits = picked.matches_uses(fleet, mono, rows, visible.reads)
    return {(uses[at][0].hello.node_id, uses[at][1].task_id) for at in hits.nonzero()[0].tolist()}


def sort_tasks(tasks: Iterable[views.TaskView], sort: str, order: Order) -> list[views.TaskView]:
    """Sort Tasks. What is not known comes last, whichever way; equals stay in the order of node and
    id, so that a row moves only when its own value does."""
    return _known_first(tasks, SORTS[sort], order)


def _known_first(rows: Iterable[T], of: Callable[[T], Any], order: Order) -> list[T]:
    keyed = [(of(row), row) for row in rows]
    known_pairs = [pair for pair in keyed if pair[0] is not None]
    known_pairs.sort(key=lambda pair: pair[0], reverse=order == "desc")
    return [row for _, row in known_pairs] + [row for key, row in keyed if key is None]


def group_key(task: views.TaskView, by: GroupBy) -> str:
    if by == "owner":
        return task.user or ""
    if task.owner.launch is not None:  # its ranks may be on other nodes
        return f"{task.user or ''}/{task.owner.launch}"
    return job_key(task)


def job_key(task: views.TaskView) -> str:
    """Return the key of what an action takes as one: a node's part of a launch."""
    return f"{task.node}/{task.job_id or task.id}"


def grouped(tasks: Iterable[views.TaskView], by: GroupBy,
            boards: Mapping[tuple[str, str], GpuNow] | None = None) -> list[TaskGroup]:
    """Sum Tasks by group, in the order in which their first Task comes: in a list sorted by memory,
    what holds most need not be searched for."""
    members: dict[str, list[views.TaskView]] = {}
    for task in tasks:
        members.setdefault(group_key(task, by), []).append(task)
    return [_group(key, inside, by, boards or {}) for key, inside in members.items()]


def _group(key: str, inside: list[views.TaskView], by: GroupBy,
           boards: Mapping[tuple[str, str], GpuNow]) -> TaskGroup:
    starts = [task.started_at for task in inside if task.started_at is not None]
    oldest = min(inside, key=lambda task: (task.started_at is None, task.started_at or 0.0))
    is_job, nodes = by == "job", len({task.node for task in inside})
    on = [boards.get(gpu, GpuNow(None, None))
          for gpu in sorted({(task.node, use.uuid) for task in inside for use in task.gpus})]
    load = [board.util_pct for board in on if board.util_pct is not None]
    # What a simulator has made up has no process to act on.
    firsts = {job_key(task): task.id for task in reversed(inside) if task.pid <= PID_MAX}
    return TaskGroup(
        key, oldest.user, oldest.host if is_job and nodes == 1 else None,
        oldest.command if is_job else None,
        (oldest.owner.launch or oldest.job_id) if is_job else None, len(inside), nodes,
        len({(task.node, use.uuid) for task in inside for use in task.gpus}),
        total(task.mem_used_bytes for task in inside),
        average_sm_pct(((task.node, use.uuid), use.sm_pct)
                       for task in inside for use in task.gpus),
        min(starts) if starts else None, least(task.idle_s for task in inside),
        sum(load) / len(load) if load else None, total(board.mem_total_bytes for board in on),
        (oldest.job_id or oldest.id) if is_job else None,
        [*firsts.values()][:MOST_ACTED_ON] if is_job else [],
        sum(task.state == "paused" for task in inside),
        sum(task.state == "suspended" for task in inside),
        oldest.state if len({task.state for task in inside}) == 1 else None,
        oldest.manager if is_job else None, oldest.owner if is_job else OwnerView())


def group_order(groups: list[TaskGroup], sort: str, order: Order) -> list[TaskGroup]:
    """Sort groups, by the group's own sum where there is one."""
    if sort == "user":
        return _known_first(groups, lambda group: _folded(group.user), order)
    if sort in ("mem_used_bytes", "sm_pct", "gpus", "started_at", "idle_s"):
        return _known_first(groups, attrgetter(sort), order)
    return groups


def _folded(text: str | None) -> str | None:
    return None if text is None else text.lower()
