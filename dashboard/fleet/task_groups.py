"""Sums over the Tasks of each owner or job. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpudeck.contract.message_limits import PID_MAX
from gpudeck.measures.metrics import Absence

from .metric_table import Codes, Floats
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
    TaskColumns,
    average_sm_pct,
    gpus_at,
    plain,
    summed,
)
from .visibility import CommandLineVisibility

Column = npt.NDArray[Any]
MAX_GROUPS = 1_000
MOST_ACTED_ON = 100


@dataclass(frozen=True, slots=True, eq=False)
class TaskGroups:
    """Groups in the order in which their first Task comes: in a list sorted by memory, what holds
    most need not be searched for. Numbers are NaN where a part is not known."""

    table: TaskColumns
    by: GroupBy
    keys: list[str]
    rows: Places  # Tasks by group; those of group i are rows[starts[i]:starts[i + 1]]
    starts: Places
    oldest: Places  # Task that gives the group its name
    numbers: Mapping[str, Column]  # by field of TaskGroup
    state: Codes  # of all its Tasks; 0: not the same

    def __len__(self) -> int:
        return len(self.keys)

    def views(self, places: Places, reads: CommandLineVisibility) -> Iterator[TaskGroup]:
        places = places[:MAX_GROUPS]
        columns = (plain(numbers[places], int if name in WHOLE else float)
                   for name, numbers in self.numbers.items())
        starts, ends = self.starts[places].tolist(), self.starts[places + 1].tolist()
        for place, row, start, end, state, *numbers in zip(
                places.tolist(), self.oldest[places].tolist(), starts, ends,
                self.state[places].tolist(), *columns, strict=True):
            group = TaskGroup(self.keys[place], self.table.tasks[row].user, None, None, None,
                              end - start, state=STATES[state],
                              **dict(zip(self.numbers, numbers, strict=True)))
            if self.by == "job":
                self._name(group, row, self.rows[start:end].tolist(), reads)
            yield group

    def _name(self, group: TaskGroup, row: int, rows: list[int], reads: CommandLineVisibility
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
        firsts = {task_key(table, at): table.tasks[at].id
                  for at in reversed(rows) if table.tasks[at].pid <= PID_MAX}
        group.act_on = [*firsts.values()][:MOST_ACTED_ON]


def group_tasks(table: TaskColumns, rows: Places, keys: Sequence[str], by: GroupBy) -> TaskGroups:
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
    in_group, first, state = rows[by_group], starts[:-1], table.state[rows]
    numbers: dict[str, Column] = {
        "nodes": np.bincount(gpus_at(group, table.node_at[rows])[0], minlength=size),
        "gpus": np.bincount(gpu_group, minlength=size),
        "mem_used_bytes": summed(group, table.mem_used_bytes[rows], size),
        "sm_pct": average_sm_pct(use_group, slots, table.use_sm[there], size),
        "started_at": started_at[oldest[first]],
        "idle_s": np.minimum.reduceat(table.idle_s[in_group], first),
        "util_pct": _average_util(table, gpu_group, gpu_slots, size),
        "mem_total_bytes": summed(gpu_group, table.fleet.fact("mem_total_bytes")[gpu_slots], size),
        "paused": np.bincount(group[state == CODES["paused"]], minlength=size),
        "suspended": np.bincount(group[state == CODES["suspended"]], minlength=size)}
    return TaskGroups(table, by, [*number_of], in_group, starts, rows[oldest[first]], numbers,
                      _state_of_all(table.state[in_group], first))


def _state_of_all(states: Codes, first: Places) -> Codes:
    least, most = np.minimum.reduceat(states, first), np.maximum.reduceat(states, first)
    return np.where(least == most, least, np.uint8(CODES[None]))


def _average_util(table: TaskColumns, at: Places, slots: Places, size: int) -> Floats:
    """Average utilization over the GPUs of which it is known."""
    util = table.fleet.column("util_pct", table.mono)
    there = util.absent[slots] == Absence.PRESENT
    counts = np.bincount(at[there], minlength=size)
    sums = np.bincount(at[there], util.values[slots[there]], size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


WHOLE = ("nodes", "gpus", "idle_s", "paused", "suspended")
SORTS = ("mem_used_bytes", "sm_pct", "gpus", "started_at", "idle_s")


def group_order(groups: TaskGroups, sort: str, order: Order) -> Places:
    """Sort groups, by the group's own sum where there is one."""
    if sort in SORTS:
        return places_by_number(groups.numbers[sort], order)
    if sort == "user":
        users = [groups.table.tasks[row].user for row in groups.oldest.tolist()]
        return places_by_word([None if user is None else user.lower() for user in users], order)
    return np.arange(len(groups))
