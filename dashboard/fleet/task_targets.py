"""Which node's task is meant. Ids are the nodes' own words, so two may claim one. Pure."""

from collections.abc import Iterable

from gpudeck.wire import Task

from ..errors import InvalidChangeError, NotFoundError
from .fleet import Node


class AmbiguousTaskError(InvalidChangeError):
    """Several nodes claim this id, and nothing tells whose it is."""


def task_on_node(nodes: Iterable[Node], target: str) -> tuple[Node, Task]:
    """`target`: an id, or NODE/ID with the node's id or host name. An id begins with the boot of
    its machine: of several that claim it, the one that booted so has it."""
    wanted, _, task_id = target.rpartition("/")
    found = [node for node in nodes if task_id in node.tasks
             and wanted in ("", node.hello.node_id, node.hello.host)]
    if len(found) > 1:
        boot = task_id.partition("-")[0]
        found = [node for node in found if boot and node.hello.boot_id.startswith(boot)] or found
    if not found:
        raise NotFoundError(f"there is no task {target[:128]!r} here")
    if len(found) > 1:
        hosts = " and ".join(sorted(f"{node.hello.host} ({node.hello.node_id})" for node in found))
        raise AmbiguousTaskError(
            f"{hosts[:400]} both claim the task {task_id[:128]!r}, and one of them is wrong: name "
            f"the node, as in {found[0].hello.node_id}/{task_id[:128]}")
    return found[0], found[0].tasks[task_id]
