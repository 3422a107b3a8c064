"""The Tasks list: order, groups, sums."""

import random

from dashboard.task_list import group_order, grouped, ordered
from dashboard.views import TaskView, UseView


def task(ident: str, user: str | None = "alice", mem: float | None = 1.0, node: str = "n1",
         job: str | None = None, gpus: int = 1, started_at: float | None = 10.0) -> TaskView:
    uses = [UseView(f"{ident}-{at}", mem, 1.0) for at in range(gpus)]
    return TaskView(ident, node, f"{node}.example", 1, started_at, user, f"python {ident}.py",
                    "whole", uses, mem, None if mem is None else 1.0, "running", None, "compute",
                    job)


def test_what_is_not_known_comes_last_whichever_way() -> None:
    amounts = random.sample(range(1, 10_000), 20)
    tasks = [task(f"t{at}", mem=float(mem)) for at, mem in enumerate(amounts)]
    tasks.insert(random.randrange(20), task("unknown", mem=None))
    for order, is_reversed in (("asc", False), ("desc", True)):
        found = ordered(tasks, "mem_used_bytes", order)  # type: ignore[arg-type]
        assert [one.mem_used_bytes for one in found[:-1]] == sorted(amounts, reverse=is_reversed)
        assert found[-1].id == "unknown"


def test_equals_keep_their_order() -> None:
    tasks = [task(f"t{at}", user=random.choice("ab")) for at in range(50)]
    for order in ("asc", "desc"):
        found = ordered(tasks, "user", order)
        for user in "ab":
            assert [one.id for one in found if one.user == user] == [
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
