"""The node of a named task. Ids are the nodes' own words, so two may claim one. Pure."""

from collections.abc import Iterable

from gpudeck.contract.wire import Task

from ..errors import InvalidChangeError, NotFoundError
from .fleet import Node


class AmbiguousTaskError(InvalidChangeError):
    """Several nodes claim this id, and nothing shows whose it is."""


def task_on_node(nodes: Iterable[Node], target: str) -> tuple[Node, Task]:
    """`target`: an id, or NODE/ID with the node's id or host name. An id begins with the boot of
    its machine: of several that claim it, the one with that boot has it."""
    node_name, _, task_id = target.rpartition("/")
    hits = [node for node in nodes if task_id in node.tasks
            and node_name in ("", node.hello.node_id, node.hello.host)]
    if len(hits) > 1:
        boot = task_id.partition("-")[0]
        hits = [node for node in hits if boot and node.hello.boot_id.startswith(boot)] or hits
    if not hits:
        raise NotFoundError(f"there is no task {target[:128]!r} here")
    if len(hits) > 1:
        hosts = " and ".join(sorted(f"{node.hello.host} ({node.hello.node_id})" for node in hits))
        raise AmbiguousTaskError(
            f"{hosts[:400]} both claim the task {task_id[:128]!r}, and one of them is wrong: name "
            f"the node, as in {hits[0].hello.node_id}/{task_id[:128]}")
    return hits[0], hits[0].tasks[task_id]
