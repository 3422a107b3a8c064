"""The Tasks list: order, groups, sums."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dashboard.fleet.fleet import STALE_AFTER_S, Fleet
from dashboard.fleet.owner_views import OwnerView, owner_view, ranks_beside
from dashboard.fleet.task_groups import group_order, group_tasks
from dashboard.fleet.task_list import GroupBy, TaskGroup, group_keys, sort_tasks, task_key, tasks_in
from dashboard.fleet.task_table import NodeTasksCache, TaskColumns, task_table
from dashboard.fleet.views import TaskView
from dashboard.fleet.visibility import ALL_READ, CommandLineVisibility
from gpudeck.contract.message_limits import PID_MAX
from gpudeck.contract.wire import Task, Tasks, Use
from gpudeck.words.commands import ranks_left
from tests.unit.fleets import EMPTY, MONO, NOW, add_node, frame, task_views


@dataclass
class TaskCase:
    id: str
    user: str | None = "alice"
    mem: float | None = 1.0  # of all its GPUs
    node: str = "n1"
    job: str | None = None
    sm: Sequence[float | None] = (1.0,)  # on each of its GPUs
    gpus: Sequence[int] = ()  # their places; none: of its own
    started_at: float | None = 10.0
    state: Any = "running"
    manager: str | None = None
    launch: str | None = None
    slurm_job: str | None = None
    pid: int = 1

    @property
    def described(self) -> Task:
        return Task(self.id, self.pid, 1, self.started_at, self.user, f"python {self.id}.py",
                    manager=self.manager, kind="compute", job_id=self.job, launch=self.launch,
                    slurm_job=self.slurm_job)


def fleet_of(cases: Sequence[TaskCase]) -> Fleet:
    fleet = Fleet(1)
    for node_id in sorted({case.node for case in cases}):
        here, uses, gpus = [case for case in cases if case.node == node_id], list[Use](), 8
        for case in here:
            places = case.gpus or range(gpus, gpus + len(case.sm))
            gpus += len(case.sm)
            uses += [Use(case.id, gpu, None if case.mem is None else case.mem / len(case.sm), sm,
                         case.state) for gpu, sm in zip(places, case.sm, strict=True)]
        node = add_node(fleet, node_id, gpus)
        fleet.frame(node, frame([EMPTY] * gpus, tasks=Tasks(
            True, tuple(case.described for case in here), tuple(uses))), NOW, MONO)
    return fleet


def table_of(cases: Sequence[TaskCase]) -> TaskColumns:
    fleet = fleet_of(cases)
    return task_table(fleet, fleet.nodes.values(), NodeTasksCache(), MONO)


def sorted_views(table: TaskColumns, sort: str, order: Any) -> list[TaskView]:
    rows = sort_tasks(table, np.arange(len(table)), sort, order, ALL_READ)
    return [*table.views(rows.tolist(), ALL_READ)]


def groups_in(cases: Sequence[TaskCase], by: GroupBy, sort: str = "", order: Any = "asc"
              ) -> list[TaskGroup]:
    table = table_of(cases)
    rows = np.arange(len(table))
    groups = group_tasks(table, rows, group_keys(table, rows, by), by)
    places = group_order(groups, sort, order) if sort else np.arange(len(groups))
    return [*groups.views(places, ALL_READ)]


def test_what_is_not_known_comes_last_whichever_way() -> None:
    amounts = random.sample(range(1, 10_000), 20)
    cases = [TaskCase(f"t{at}", mem=float(mem)) for at, mem in enumerate(amounts)]
    cases.insert(random.randrange(20), TaskCase("unknown", mem=None))
    for order, is_reversed in (("asc", False), ("desc", True)):
        tasks = sorted_views(table_of(cases), "mem_used_bytes", order)
        assert [one.mem_used_bytes for one in tasks[:-1]] == sorted(amounts, reverse=is_reversed)
        assert tasks[-1].id == "unknown"


@pytest.mark.parametrize(("sort", "values"), [("user", ("a", "b", None)),
                                              ("started_at", (1.0, 2.0, None))])
def test_equals_keep_their_order(sort: str, values: Sequence[Any]) -> None:
    cases = [TaskCase(f"t{at:02}", **{sort: random.choice(values)}) for at in range(50)]
    table = table_of(cases)
    for order in ("asc", "desc"):
        tasks = sorted_views(table, sort, order)
        for value in values:
            assert [one.id for one in tasks if getattr(one, sort) == value] == [
                case.id for case in cases if getattr(case, sort) == value]


def test_sums_of_owners_and_jobs() -> None:
    cases = [TaskCase("t1", mem=2.0, job="j"),
             TaskCase("t2", mem=3.0, job="j", sm=(1.0, 1.0), started_at=5.0),
             TaskCase("t3", user="bob", mem=None), TaskCase("t4", node="n2", job="j", mem=9.0)]
    alice, bob = groups_in(cases, "owner")
    assert (alice.key, alice.tasks, alice.nodes, alice.gpus, alice.mem_used_bytes) == (
        "alice", 3, 2, 4, 14.0)
    assert alice.started_at == 5.0
    assert bob.mem_used_bytes is None, "a sum of the rest would be a wrong number"
    assert alice.mem_total_bytes == 4 * 80e9
    jobs = {one.key: one for one in groups_in(cases, "job")}
    assert set(jobs) == {"n1/j", "n1/t3", "n2/j"}, "a job is one of its node"
    assert jobs["n1/j"].command == "python t2.py", "the oldest gives the name"
    assert [one.key for one in groups_in(cases, "owner", "mem_used_bytes", "desc")] == [
        "alice", "bob"]
    assert [one.key for one in groups_in(cases, "owner", "user", "desc")] == ["bob", "alice"]


def test_the_share_of_a_job_is_the_average_over_its_gpus() -> None:
    """Eight ranks with a GPU each never make 592 %; two ranks on one GPU share it."""
    alone = [TaskCase(f"t{at}", job="alone", sm=(74.0,)) for at in range(8)]
    shared = [TaskCase("s0", job="shared", sm=(30.0, 50.0), gpus=(0, 1)),
              TaskCase("s1", job="shared", sm=(40.0,), gpus=(0,))]
    of_shared, of_alone = groups_in([*alone, *shared], "job")
    assert (of_alone.sm_pct, of_shared.sm_pct, of_shared.gpus) == (74.0, 60.0, 2)
    assert [one.sm_pct for one in task_views(fleet_of(shared))] == [40.0, 40.0]
    shared[1].sm = (None,)
    assert groups_in(shared, "job")[0].sm_pct is None
    [of_user] = groups_in(alone, "owner")
    assert of_user.sm_pct == 74.0


def test_a_job_has_the_state_of_its_tasks_and_what_manages_it() -> None:
    cases = [TaskCase("t1", job="j", slurm_job="7"),
             TaskCase("t2", job="j", started_at=5.0, slurm_job="8", manager="slurm job 7"),
             TaskCase("t3", slurm_job="7")]
    ranks, alone = groups_in(cases, "job")
    assert (ranks.state, ranks.manager, ranks.owner.slurm_job) == ("running", "slurm job 7", "8")
    assert (alone.manager, alone.owner.slurm_job) == (None, "7")
    cases[0].state = "paused"
    assert (groups_in(cases, "job")[0].state, groups_in(cases, "job")[0].paused) == (None, 1)
    [all_of_them] = groups_in(cases, "owner")
    assert (all_of_them.manager, all_of_them.owner) == (None, OwnerView()), "each has its own"


def test_a_node_suspends_its_own_tasks_alone() -> None:
    """Ids are the nodes' words: two may claim one."""
    fleet = fleet_of([TaskCase("t1"), TaskCase("t1", node="n2"), TaskCase("t2", node="n2")])
    fleet.nodes["n2"].suspended = ("t1",)
    assert [(one.node, one.id, one.state) for one in task_views(fleet)] == [
        ("n1", "t1", "running"), ("n2", "t1", "suspended"), ("n2", "t2", "running")]


def test_ranks_of_one_launch_are_one_job_on_all_their_nodes() -> None:
    launch = "torchrun 10.0.0.1:29500/x"
    cases = [TaskCase("t1", job="j-t1", launch=launch),
             TaskCase("t2", node="n2", job="j-t2", launch=launch),
             TaskCase("t3", "bob", node="n2", job="j-t3", launch=launch), TaskCase("t4")]
    alice, alone, bob = groups_in(cases, "job")
    assert (alice.tasks, alice.nodes, alice.host, alice.job_id) == (2, 2, None, launch)
    assert (bob.tasks, bob.host) == (1, "n2.example"), "another user's is another launch"
    assert alone.tasks == 1
    table = table_of(cases)
    assert task_key(table, 0) == "n1/j-t1", (
        "an act takes its node's part alone")
    rows = np.arange(len(table))
    keys = group_keys(table, rows, "job")
    for opened, ids in (({alice.key}, ["t1", "t2"]), ({"n2/j-t2"}, ["t2"]), (set(), [])):
        in_groups = tasks_in(table, rows, keys, "job", opened)
        assert [table.tasks[row].id for row in in_groups.tolist()] == ids


def test_tasks_are_those_of_now() -> None:
    """Columns of a node are made again where its tasks have changed."""
    fleet, cache = fleet_of([TaskCase("t1"), TaskCase("t2")]), NodeTasksCache()
    [node] = fleet.nodes.values()
    looks = (
        (("t1", 8, 5.0), ("t2", 9, 6.0)),  # only numbers
        (("t2", 9, 7.0),),
        (("t2", 8, 7.0), ("t2", 9, 7.0)),  # another GPU
        (("t2", 8, 7.0), ("unknown", 9, 7.0)),
        (("unknown", 9, 7.0), ("t2", 8, 7.0)),
    )
    for seq, pairs in enumerate(looks, start=2):
        uses = tuple(Use(task_id, gpu, mem, None) for task_id, gpu, mem in pairs)
        fleet.frame(node, frame([EMPTY] * 10, seq, tasks=Tasks(False, (), uses)), NOW, MONO)
        views = task_views(fleet, cache=cache)
        assert [(view.id, use.uuid, use.mem_used_bytes) for view in views for use in view.gpus] == [
            (task_id, f"GPU-n1-{gpu}", mem) for task_id, gpu, mem in pairs if task_id != "unknown"]


def test_a_share_that_was_read_long_ago_is_not_shown_as_live() -> None:
    fleet = fleet_of([TaskCase("t1", sm=(40.0,))])
    for after_s, sm_pct in ((STALE_AFTER_S, 40.0), (STALE_AFTER_S + 1, None)):
        [view] = task_views(fleet, mono=MONO + after_s)
        assert (view.sm_pct, view.gpus[0].sm_pct, view.mem_used_bytes) == (sm_pct, sm_pct, 1.0)


def test_commands_are_sorted_as_far_as_they_may_be_read() -> None:
    """Order of rows must not tell what their reader may not read."""
    table = table_of([TaskCase("a", "bob"), TaskCase("b", "carl"), TaskCase("c", "alice")])
    reads = CommandLineVisibility(False, frozenset({"alice"}))
    rows = sort_tasks(table, np.arange(3), "command", "desc", reads)
    assert [table.tasks[row].id for row in rows.tolist()] == ["c", "a", "b"]
    assert [view.command for view in table.views(rows.tolist(), reads)] == [
        "python c.py", "python", "python"]
    [group, *_] = group_tasks(table, rows[1:], group_keys(table, rows[1:], "job"), "job").views(
        np.arange(2), reads)
    assert group.command == "python"


@pytest.mark.parametrize(("action", "elsewhere", "nodes", "here", "sentences"), [
    ("end", 8, 1, 0,
     ["8 ranks on 1 other node are part of the same launch and will hang or fail."]),
    ("end", 1, 1, 0, ["1 rank on 1 other node is part of the same launch and will hang or fail."]),
    ("pause", 16, 2, 3, [
        "16 ranks on 2 other nodes are part of the same launch and will hang until it is resumed.",
        "3 ranks more on this node are part of the same launch and will hang until it is resumed.",
    ]),
    ("end", 0, 0, 0, []), ("resume", 8, 1, 1, []), ("notify", 8, 1, 1, []),
])
def test_what_becomes_of_the_other_ranks(
    action: Any, elsewhere: int, nodes: int, here: int, sentences: list[str]
) -> None:
    assert ranks_left(action, elsewhere, nodes, here) == sentences


def test_ranks_are_counted_beside_what_is_hit() -> None:
    fleet = Fleet(1)
    for node_id in ("n1", "n2", "n3"):
        node = add_node(fleet, node_id)
        for at in range(4):
            node.tasks[f"{node_id}-{at}"] = Task(
                f"{node_id}-{at}", 1, 1, 0.0, "alice", "x",
                launch=f"launch-{node_id if at == 3 else 'all'}")
    nodes = fleet.nodes.values()
    assert ranks_beside(nodes, "n1", ["n1-0", "n1-1"]) == (6, 2, 1)
    assert ranks_beside(nodes, "n1", ["n1-3"]) == (0, 0, 0)
    assert ranks_beside(nodes, "n2", ["n1-0"]) == (0, 0, 0), "a node speaks of its own tasks"


def test_a_notebooks_name_is_read_by_those_who_read_the_command() -> None:
    of = Task("t1", 1, 1, 0.0, "alice", "x", notebook="secret-plan.ipynb", pod="bert-0", rank=0)
    assert owner_view(of, True) == OwnerView(notebook="secret-plan.ipynb", pod="bert-0", rank=0)
    assert owner_view(of, False) == OwnerView(pod="bert-0", rank=0)


def test_a_job_that_is_made_up_is_not_offered_to_act_on() -> None:
    """The pages had buttons for it, which led to a refusal."""
    cases = [TaskCase("t1", job="a", pid=PID_MAX + random.randrange(1, 1_000)),
             TaskCase("t2", job="b", pid=PID_MAX)]
    tasks_by_job = {one.key: one.act_on for one in groups_in(cases, "job")}
    assert tasks_by_job == {"n1/a": [], "n1/b": ["t2"]}
