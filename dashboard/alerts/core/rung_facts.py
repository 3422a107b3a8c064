"""Facts about a target that decide what a rule could do to it, now or from history."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import UNSET

from gpudeck.contract.rungs import RungTarget
from gpudeck.contract.wire import Task

from ...fleet.fleet import Fleet

Place = tuple[str, str]  # a node, and a job on it


def job_of(node_id: str, task: Task) -> Place:
    return node_id, task.job_id or task.id


def rung_target(fleet: Fleet, node_id: str, members: Sequence[tuple[str, Task]],
                tree: Iterable[Task]) -> RungTarget:
    """Return the facts by which a ladder's steps on a target are judged. `members`: its tasks, each
    with its node; `tree`: the tasks of the job on this node to which the first of them belongs. The
    ceiling is as the node reported it when it connected."""
    mine = [task for where, task in members if where == node_id]
    node = fleet.nodes.get(node_id)
    rules = UNSET if node is None else node.hello.rules
    users = {task.user for task in mine} - {None}
    return RungTarget(
        actions=None if node is None else node.permits or None,
        rules=None if rules is UNSET else rules, manager=manager_of(mine),
        is_mps_client=any(task.kind == "mps_client" for task in mine),
        processes=None, is_one_tree=False if len(users) > 1 else None,
        meant=frozenset(task.id for task in mine),
        tree=frozenset(task.id for task in tree) if mine else None,
        other_nodes=len({where for where, _ in members} - {node_id}))


def manager_of(tasks: Collection[Task]) -> str | None:
    """Return what manages these tasks, judged as a node does: what also runs the agent manages
    nothing for it, and then a task's job is not named after it. A Slurm job number alone is reason
    enough not to act."""
    return next(filter(None, map(_manager_of, tasks)), None)


def _manager_of(task: Task) -> str | None:
    manager = task.manager or ""
    if manager.startswith("unit ") or (manager and task.job_id == manager[:128]):
        return manager
    return None if manager or task.slurm_job is None else f"slurm job {task.slurm_job}"
