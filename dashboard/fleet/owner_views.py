"""Owner of a Task, as programs and pages read it; and other ranks that an action touches. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from gpudeck.contract.wire import Task

from .fleet import Node


class OwnerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Details besides `user` and `manager`; what is not known is left out."""

    uid: int | None = None
    parent_pid: int | None = None
    container: str | None = None
    container_name: str | None = None
    pod: str | None = None
    namespace: str | None = None
    slurm_job: str | None = None
    unit: str | None = None
    notebook: str | None = None  # as a command line: to those who may read it
    launch: str | None = None  # ranks of one launch share it, on all their nodes
    rank: int | None = None


def owner_view(task: Task, has_whole: bool) -> OwnerView:
    return OwnerView(
        task.uid, task.parent_pid, task.container, task.container_name, task.pod, task.namespace,
        task.slurm_job, task.unit, task.notebook if has_whole else None, task.launch, task.rank)


def ranks_beside(nodes: Iterable[Node], node_id: str, task_ids: Collection[str]
                 ) -> tuple[int, int, int]:
    """Return, of the launches of these Tasks of a Node, how many other Tasks are on other Nodes, on
    how many Nodes, and how many are on this one."""
    everywhere = list(nodes)
    launches = {task.launch for node in everywhere if node.hello.node_id == node_id
                for task in node.tasks.values() if task.id in task_ids} - {None}
    ranks: dict[str, int] = {}
    for node in everywhere if launches else ():
        is_here = node.hello.node_id == node_id
        count = sum(task.launch in launches and not (is_here and task.id in task_ids)
                    for task in node.tasks.values())
        if count:
            ranks[node.hello.node_id] = count
    here = ranks.pop(node_id, 0)
    return sum(ranks.values()), len(ranks), here
