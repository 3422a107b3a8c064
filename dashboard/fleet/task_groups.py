"""Sums over the Tasks of each owner or job. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from gpudeck.contract.message_limits import PID_MAX
from gpudeck.measures.metrics import Absence

from .metric_table import Floats
from .owner_views import owner_view
from .task_list import (
    GroupBy,
    Order,
    TaskGroup,
    places_by_number,
    places_by_word,
    task_key,
)
from .task_table import (
    CODES,
    STATES,
    Places,
    TaskTable,
    average_sm_pct,
    gpus_at,
    number,
    summed,
    whole,
)
from .visibility import CommandLineVisibility

MAX_GROUPS = 1_000
MOST_ACTED_ON = 100


@dataclass(frozen=True, slots=True, eq=False)
class TaskGroups:
    """Groups in the order in which their first Task comes: in a list sorted by memory, what holds
    most need not be searched for. Numbers are NaN where a part is not known."""

    table: TaskTable
    by: GroupBy
    keys: list[str]
    rows: Places  # Tasks by group; those of group i are rows[starts[i]:starts[i + 1]]
    starts: Places
    oldest: Places  # Task that gives the group its name
    nodes: Places
    gpus: Floats
    mem_used_bytes: Floats
    sm_pct: Floats
    started_at: Floats
    idle_s: Floats
    util_pct: Floats
    mem_total_bytes: Floats

    def __len__(self) -> int:
        return len(self.keys)

    def views(self, places: Places, reads: CommandLineVisibility) -> Iterator[TaskGroup]:
        for place in places[:MAX_GROUPS].tolist():
            yield self._view(place, reads)

    def _view(self, place: int, reads: CommandLineVisibility) -> TaskGroup:
        table, is_job, row = self.table, self.by == "job", int(self.oldest[place])
        rows, oldest = self.rows[self.starts[place]:self.starts[place + 1]], table.tasks[row]
        states, nodes = table.state[rows], int(self.nodes[place])
        group = TaskGroup(
            self.keys[place], oldest.user, None, None, None, len(rows), nodes,
            int(self.gpus[place]), number(self.mem_used_bytes[place]), number(self.sm_pct[place]),
            number(self.started_at[place]), whole(self.idle_s[place]),
            number(self.util_pct[place]), number(self.mem_total_bytes[place]),
            paused=int((states == CODES["paused"]).sum()),
            suspended=int((states == CODES["suspended"]).sum()),
            state=STATES[states[0]] if (states == states[0]).all() else None)
        if is_job:
            self._name(group, row, rows, reads)
        return group

    def _name(self, group: TaskGroup, row: int, rows: Places, reads: CommandLineVisibility
              ) -> None:
        """Name a job by its oldest Task."""
        table = self.table
        oldest, node = table.tasks[row], table.node_of(row)
        group.host = node.hello.host if group.nodes == 1 else None
        group.command = reads.line(oldest.user, oldest.command)
        group.job_id = oldest.launch or oldest.job_id
        group.first_job = oldest.job_id or oldest.id
        group.manager = oldest.manager
        group.owner = owner_view(oldest, reads.of_user(oldest.user))
        # What a simulator has made up has no process to act on.
        firsts = {task_key(table.node_of(at), table.tasks[at]): table.tasks[at].id
                  for at in rows[::-1].tolist() if table.tasks[at].pid <= PID_MAX}
        group.act_on = [*firsts.values()][:MOST_ACTED_ON]


def group_tasks(table: TaskTable, rows: Places, keys: Sequence[str], by: GroupBy) -> TaskGroups:
    """Sum Tasks by group. `keys`: the key of each row's group."""
    number_of: dict[str, int] = {}
    group = np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.intp)
    size = len(number_of)
    group_of = np.full(len(table), -1)
    group_of[rows] = group
    use_group = group_of[table.use_task]
    there = use_group >= 0
    use_group, slots = use_group[there], table.use_slot[there]
    gpu_group, gpu_slots = gpus_at(use_group, slots)
    by_group = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[by_group], np.arange(size + 1))
    started_at = table.started_at[rows]
    oldest = np.lexsort((np.where(np.isnan(started_at), np.inf, started_at), group))
    in_group, first = rows[by_group], starts[:-1]
    return TaskGroups(
        table, by, [*number_of], in_group, starts, rows[oldest[first]],
        np.bincount(gpus_at(group, table.node_at[rows])[0], minlength=size),
        np.bincount(gpu_group, minlength=size).astype(float),
        summed(group, table.mem_used_bytes[rows], size),
        average_sm_pct(use_group, slots, table.use_sm[there], size),
        started_at[oldest[first]],
        np.minimum.reduceat(table.idle_s[in_group], first) if size else np.zeros(0),
        _average_util(table, gpu_group, gpu_slots, size),
        summed(gpu_group, table.fleet.fact("mem_total_bytes")[gpu_slots], size))


def _average_util(table: TaskTable, at: Places, slots: Places, size: int) -> Floats:
    """Average utilization over the GPUs of which it is known."""
    util = table.fleet.column("util_pct", table.mono)
    there = util.absent[slots] == Absence.PRESENT
    counts = np.bincount(at[there], minlength=size)
    sums = np.bincount(at[there], util.values[slots[there]], size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


NUMBERS = ("mem_used_bytes", "sm_pct", "gpus", "started_at", "idle_s")


def group_order(groups: TaskGroups, sort: str, order: Order) -> Places:
    """Sort groups, by the group's own sum where there is one."""
    if sort in NUMBERS:
        return places_by_number(attrgetter(sort)(groups), order)
    if sort == "user":
        users = [groups.table.tasks[row].user for row in groups.oldest.tolist()]
        return places_by_word([None if user is None else user.lower() for user in users], order)
    return np.arange(len(groups))
