"""Tasks of many nodes as columns: a list of all of them is sorted and summed at once. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from gpudeck.contract.wire import Task, Use

from .fleet import STALE_AFTER_S, Fleet, InventorySlots, Node
from .host_views import (
    CheckpointsView,
    HostUseView,
    ServingView,
    checkpoints_of,
    host_uses,
    serving_of,
)
from .metric_table import Floats, Mask
from .views import TaskGpuUseView, TaskState, TaskView, task_view
from .visibility import CommandLineVisibility

Places = npt.NDArray[np.intp]
STATES: tuple[TaskState | None, ...] = (None, *get_args(TaskState))
CODES: Mapping[str | None, int] = {state: code for code, state in enumerate(STATES)}


@dataclass(frozen=True, slots=True, eq=False)
class NodeTasks:
    """A node's Tasks that use a GPU, by id, and which Task each use is of: what stays the same
    while only numbers come. A Task that the node never described has no owner, and is left out."""

    described: Mapping[str, Task]
    listing: InventorySlots
    tasks: list[Task]
    jobs: list[str]  # keys of their jobs
    task_at: Places  # of each use of the node, in `tasks`; -1: of none
    slots: Places

    def is_of(self, node: Node) -> bool:
        return (node.tasks is self.described and node.listing is self.listing
                and len(node.uses) == len(self.slots))


class NodeTasksCache:
    """NodeTasks of each node: made again where its Tasks or its GPUs have changed."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeTasks] = {}

    def of(self, node: Node) -> NodeTasks | None:
        """Return a node's Tasks; None: its GPUs are not known yet."""
        cached = self._by_node.get(node.hello.node_id)
        if cached is not None and cached.is_of(node):
            return cached
        if node.listing is None:
            return None
        cached = self._by_node[node.hello.node_id] = _node_tasks(node, node.listing)
        return cached


def _node_tasks(node: Node, listing: InventorySlots) -> NodeTasks:
    ids = sorted({use.task_id for use in node.uses} & node.tasks.keys())
    place = {task_id: at for at, task_id in enumerate(ids)}
    tasks = [node.tasks[task_id] for task_id in ids]
    return NodeTasks(
        node.tasks, listing, tasks, [launch_key(node.hello.node_id, task) for task in tasks],
        np.array([place.get(use.task_id, -1) for use in node.uses], np.intp),
        np.array([listing.order[use.gpu] for use in node.uses], np.intp))


@dataclass(frozen=True, slots=True, eq=False)
class TaskColumns:
    """Tasks in the order of `nodes`, then by id, a row each; and their uses of GPUs, a row for each
    pair. Numbers are NaN where they are not known."""

    fleet: Fleet
    nodes: list[Node]
    mono: float
    tasks: list[Task]
    jobs: list[str]  # keys of their jobs
    node_at: Places  # of each Task, in `nodes`
    uses: list[Use]
    use_task: Places  # of each use, in `tasks`
    use_slot: Places
    use_sm: Floats
    order: Places  # uses by Task; those of row i are order[starts[i]:starts[i + 1]]
    starts: Places
    mem_used_bytes: Floats
    sm_pct: Floats
    idle_s: Floats
    state: npt.NDArray[np.uint8]  # index into STATES

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def gpu_counts(self) -> Floats:
        return np.diff(self.starts).astype(float)

    @property
    def started_at(self) -> Floats:
        return np.array([task.started_at for task in self.tasks], float)

    def node_of(self, row: int) -> Node:
        node: Node = self.nodes[self.node_at[row]]
        return node

    def key(self, row: int) -> tuple[str, str]:
        return self.node_of(row).hello.node_id, self.tasks[row].id

    def views(self, rows: Iterable[int], reads: CommandLineVisibility) -> Iterator[TaskView]:
        hosts: dict[int, _HostNumbers] = {}
        places = np.array([*rows], np.intp)
        for row, at, state, start, end, mem_used_bytes, sm_pct, idle_s in zip(
                places.tolist(), self.node_at[places].tolist(), self.state[places].tolist(),
                self.starts[places].tolist(), self.starts[places + 1].tolist(),
                plain(self.mem_used_bytes[places]), plain(self.sm_pct[places]),
                plain(self.idle_s[places], int), strict=True):
            node, task = self.nodes[at], self.tasks[row]
            if at not in hosts:
                hosts[at] = _host_numbers(self.fleet, node, self.mono)
            view = task_view(node, task, self._gpus(self.order[start:end]), mem_used_bytes, sm_pct,
                             STATES[state], reads)
            uses, serving, checkpoints = hosts[at]
            view.idle_s, view.on_host = idle_s, uses.get(task.id)
            view.serving, view.checkpoints = serving.get(task.id), checkpoints.get(task.id)
            yield view

    def _gpus(self, at: Places) -> list[TaskGpuUseView]:
        fleet = self.fleet
        return [TaskGpuUseView(fleet.uuids[slot], self.uses[use].mem_used_bytes, sm_pct,
                               fleet.facts[slot].place)
                for use, slot, sm_pct in zip(at.tolist(), self.use_slot[at].tolist(),
                                             plain(self.use_sm[at]), strict=True)]


_HostNumbers = tuple[Mapping[str, HostUseView], Mapping[str, ServingView],
                     Mapping[str, CheckpointsView]]


def _host_numbers(fleet: Fleet, node: Node, mono: float) -> _HostNumbers:
    return (host_uses(node, mono), serving_of(fleet, node, mono),
            checkpoints_of(fleet, node, mono))


def launch_key(node_id: str, task: Task) -> str:
    return group_key(node_id, task.id, task.job_id, task.user, task.launch)


def group_key(node_id: str, task_id: str, job_id: str | None, user: str | None, launch: str | None
              ) -> str:
    """Return the key of a job; ranks of one launch may be on other nodes."""
    return job_key(node_id, task_id, job_id) if launch is None else f"{user or ''}/{launch}"


def job_key(node_id: str, task_id: str, job_id: str | None) -> str:
    """Return the key of what an action takes as one: a node's part of a launch."""
    return f"{node_id}/{job_id or task_id}"


def plain(numbers: npt.NDArray[Any], kind: type[float] = float) -> list[Any]:
    """Return numbers as JSON has them; None: not known."""
    return [None if value != value else kind(value) for value in numbers.tolist()]


def task_table(fleet: Fleet, nodes: Iterable[Node], cache: NodeTasksCache, mono: float
               ) -> TaskColumns:
    """Return the Tasks of these nodes, and how long the GPUs of each have been idle."""
    pairs = [(node, part) for node in nodes if (part := cache.of(node)) is not None]
    members, parts = [node for node, _ in pairs], [part for _, part in pairs]
    tasks = [*chain.from_iterable(part.tasks for part in parts)]
    uses, use_task, slots = _uses(members, parts)
    order, size = np.argsort(use_task, kind="stable"), len(tasks)
    starts = np.searchsorted(use_task[order], np.arange(size + 1))
    is_live = _are_live(fleet, mono)[slots]  # what was read last is not passed off as live
    sm_pct = np.where(is_live, np.array([use.sm_pct for use in uses], float), np.nan)
    idle_s = np.where(is_live, np.rint(mono - fleet.idle_mono[slots]), np.nan)
    return TaskColumns(
        fleet, members, mono, tasks, [*chain.from_iterable(part.jobs for part in parts)],
        np.repeat(np.arange(len(parts)), [len(part.tasks) for part in parts]), uses, use_task,
        slots, sm_pct, order, starts,
        summed(use_task, np.array([use.mem_used_bytes for use in uses], float), size),
        average_sm_pct(use_task, slots, sm_pct, size),
        # As long as all of its GPUs are.
        np.minimum.reduceat(idle_s[order], starts[:-1]),
        _states(members, parts, uses, use_task))


def _uses(nodes: list[Node], parts: list[NodeTasks]) -> tuple[list[Use], Places, Places]:
    """Return the uses of described Tasks; of each, its Task's place among all, and its slot."""
    uses = [*chain.from_iterable(node.uses for node in nodes)]
    task_at, slots = _join(part.task_at for part in parts), _join(part.slots for part in parts)
    first = np.cumsum([0, *(len(part.tasks) for part in parts)])[:-1]
    use_task = task_at + np.repeat(first, [len(part.slots) for part in parts])
    there = task_at >= 0
    if there.all():
        return uses, use_task, slots
    return [uses[at] for at in np.flatnonzero(there).tolist()], use_task[there], slots[there]


def _join(parts: Iterable[Places]) -> Places:
    return np.concatenate([np.zeros(0, np.intp), *parts])


def _are_live(fleet: Fleet, mono: float) -> Mask:
    size = len(fleet)
    is_live: Mask = (mono - fleet.sampled_mono[:size] <= STALE_AFTER_S) & (
        fleet.reported[:size] == 0)
    return is_live


def _states(nodes: list[Node], parts: list[NodeTasks], uses: list[Use], use_task: Places
            ) -> npt.NDArray[np.uint8]:
    states = np.zeros(sum(len(part.tasks) for part in parts), np.uint8)
    states[use_task] = [CODES[use.state] for use in uses]
    first = 0
    for node, part in zip(nodes, parts, strict=True):
        if suspended := frozenset(node.suspended or ()):
            states[[first + at for at, task in enumerate(part.tasks) if task.id in suspended]] = (
                CODES["suspended"])
        first += len(part.tasks)
    return states


def summed(at: Places, numbers: Floats, size: int) -> Floats:
    """Sum numbers by place. NaN where any part is: a sum of the rest would be a wrong number."""
    return np.bincount(at, numbers, size).astype(float)


def gpus_at(at: Places, slots: Places) -> tuple[Places, Places]:
    """Return each pair of a place and one of its GPUs once."""
    most = int(slots.max(initial=0)) + 1
    pairs = np.unique(at * most + slots)
    return pairs // most, pairs % most


def average_sm_pct(at: Places, slots: Places, sm_pct: Floats, size: int) -> Floats:
    """Average as gpudeck.measures.jobs does: summed on each GPU, averaged over GPUs."""
    counts = np.bincount(gpus_at(at, slots)[0], minlength=size)
    average: Floats = summed(at, sm_pct, size) / np.maximum(counts, 1)
    return average
