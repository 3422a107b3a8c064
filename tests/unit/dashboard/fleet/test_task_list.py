"""The Tasks list: order, groups, sums."""

import random
from typing import Any

import pytest

from dashboard.fleet.fleet import Fleet
from dashboard.fleet.owner_views import OwnerView, owner_view, ranks_beside
from dashboard.fleet.task_list import group_order, grouped, job_key, sort_tasks
from dashboard.fleet.views import TaskGpuUseView, TaskView
from gpudeck.contract.message_limits import PID_MAX
from gpudeck.contract.wire import Task
from gpudeck.words.commands import ranks_left
from tests.unit.fleets import add_node


def task(ident: str, user: str | None = "alice", mem: float | None = 1.0, node: str = "n1",
         job: str | None = None, gpus: int = 1, started_at: float | None = 10.0) -> TaskView:
    uses = [TaskGpuUseView(f"{ident}-{at}", mem, 1.0) for at in range(gpus)]
    return TaskView(ident, node, f"{node}.example", 1, started_at, user, f"python {ident}.py",
                    "whole", uses, mem, None if mem is None else 1.0, "running", None, "compute",
                    job)


def test_what_is_not_known_comes_last_whichever_way() -> None:
    amounts = random.sample(range(1, 10_000), 20)
    tasks = [task(f"t{at}", mem=float(mem)) for at, mem in enumerate(amounts)]
    tasks.insert(random.randrange(20), task("unknown", mem=None))
    for order, is_reversed in (("asc", False), ("desc", True)):
        sorted_tasks = sort_tasks(tasks, "mem_used_bytes", order)  # type: ignore[arg-type]
        assert [one.mem_used_bytes for one in sorted_tasks[:-1]] == sorted(
            amounts, reverse=is_reversed)
        assert sorted_tasks[-1].id == "unknown"


def test_equals_keep_their_order() -> None:
    tasks = [task(f"t{at}", user=random.choice("ab")) for at in range(50)]
    for order in ("asc", "desc"):
        sorted_tasks = sort_tasks(tasks, "user", order)
        for user in "ab":
            assert [one.id for one in sorted_tasks if one.user == user] == [
                one.id for one in tasks if one.user == user]


def test_sums_of_owners_and_jobs() -> None:
    tasks = [task("t1", mem=2.0, job="j"), task("t2", mem=3.0, job="j", gpus=2, started_at=5.0),
             task("t3", user="bob", mem=None), task("t4", node="n2", job="j", mem=9.0)]
    alice, bob = grouped(tasks, "owner")
    assert (alice.key, alice.tasks, alice.nodes, alice.gpus, alice.mem_used_bytes) == (
        "alice", 3, 2, 4, 14.0)
    assert alice.started_at == 5.0
    assert bob.mem_used_bytes is None, "a sum of the rest would be a wrong number"
    jobs = {one.key: one for one in grouped(tasks, "job")}
    assert set(jobs) == {"n1/j", "n1/t3", "n2/j"}, "a job is one of its node"
    assert jobs["n1/j"].command == "python t2.py", "the oldest gives the name"
    assert [one.key for one in group_order([bob, alice], "mem_used_bytes", "desc")] == [
        "alice", "bob"]


def test_the_share_of_a_job_is_the_average_over_its_gpus() -> None:
    """Eight ranks with a GPU each never make 592 %; two ranks on one GPU share it."""
    alone = [task(f"t{at}", job="alone") for at in range(8)]
    shared = [task(f"s{at}", job="shared") for at in range(2)]
    for rank in alone:
        rank.gpus[0].sm_pct = 74.0
    shared[0].gpus = [TaskGpuUseView("a", 1.0, 30.0), TaskGpuUseView("b", 1.0, 50.0)]
    shared[1].gpus = [TaskGpuUseView("a", 1.0, 40.0)]
    of_alone, of_shared = grouped([*alone, *shared], "job")
    assert (of_alone.sm_pct, of_shared.sm_pct) == (74.0, 60.0)
    shared[1].gpus[0].sm_pct = None
    assert grouped(shared, "job")[0].sm_pct is None
    [of_user] = grouped(alone, "owner")
    assert of_user.sm_pct == 74.0


def test_a_job_has_the_state_of_its_tasks_and_what_manages_it() -> None:
    tasks = [task("t1", job="j"), task("t2", job="j", started_at=5.0), task("t3")]
    for view in tasks:
        view.state, view.owner = "running", OwnerView(slurm_job="7")
    tasks[1].manager, tasks[1].owner = "slurm job 7", OwnerView(slurm_job="8")
    ranks, alone = grouped(tasks, "job")
    assert (ranks.state, ranks.manager, ranks.owner.slurm_job) == ("running", "slurm job 7", "8")
    assert (alone.manager, alone.owner.slurm_job) == (None, "7")
    tasks[0].state = "paused"
    assert (grouped(tasks, "job")[0].state, grouped(tasks, "job")[0].paused) == (None, 1)
    [all_of_them] = grouped(tasks, "owner")
    assert (all_of_them.manager, all_of_them.owner) == (None, OwnerView()), "each has its own"


def test_ranks_of_one_launch_are_one_job_on_all_their_nodes() -> None:
    launch = "torchrun 10.0.0.1:29500/x"

    def rank(ident: str, node: str, user: str = "alice") -> TaskView:
        view = task(ident, node=node, job=f"j-{ident}", user=user)
        view.owner = OwnerView(launch=launch)
        return view

    tasks = [rank("t1", "n1"), rank("t2", "n2"), rank("t3", "n2", "bob"), task("t4", node="n1")]
    alice, bob, alone = grouped(tasks, "job")
    assert (alice.tasks, alice.nodes, alice.host, alice.job_id) == (2, 2, None, launch)
    assert (bob.tasks, bob.host) == (1, "n2.example"), "another user's is another launch"
    assert alone.tasks == 1
    assert job_key(tasks[0]) == "n1/j-t1", "an act takes its node's part alone"


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
    made_up, real = task("t1", job="a"), task("t2", job="b")
    made_up.pid = PID_MAX + random.randrange(1, 1_000)
    real.pid = PID_MAX
    tasks_by_job = {one.key: one.act_on for one in grouped([made_up, real], "job")}
    assert tasks_by_job == {"n1/a": [], "n1/b": ["t2"]}
