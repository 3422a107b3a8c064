"""What the hub knows of a target about what a rule could do to it: now, or as history keeps it."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import UNSET

from gpudeck.rungs import RungTarget
from gpudeck.wire import Task

from ...fleet.fleet import Fleet

Place = tuple[str, str]  # a node, and a job on it


def job_of(node_id: str, task: Task) -> Place:
    return node_id, task.job_id or task.id


def rung_target(fleet: Fleet, node_id: str, meant: Sequence[tuple[str, Task]],
                tree: Iterable[Task]) -> RungTarget:
    """`meant`: what it is about, each with its node; `tree`: the tasks of the job on this node that
    the first of them is in. Of the ceiling, as its node said when it connected."""
    mine = [task for where, task in meant if where == node_id]
    node = fleet.nodes.get(node_id)
    rules = UNSET if node is None else node.hello.rules
    users = {task.user for task in mine} - {None}
    return RungTarget(
        actions=None if node is None else node.hello.actions or None,
        rules=None if rules is UNSET else rules, manager=manager_of(mine),
        is_mps_client=any(task.kind == "mps_client" for task in mine),
        processes=None, is_one_tree=False if len(users) > 1 else None,
        meant=frozenset(task.id for task in mine),
        tree=frozenset(task.id for task in tree) if mine else None,
        other_nodes=len({where for where, _ in meant} - {node_id}))


def manager_of(tasks: Collection[Task]) -> str | None:
    """As a node judges it: what runs the agent itself as well manages nothing for it, and the job
    does not have its name then. A job's number alone is enough not to act."""
    return next(filter(None, map(_manager_of, tasks)), None)


def _manager_of(task: Task) -> str | None:
    manager = task.manager or ""
    if manager.startswith("unit ") or (manager and task.job_id == manager[:128]):
        return manager
    return None if manager or task.slurm_job is None else f"slurm job {task.slurm_job}"
