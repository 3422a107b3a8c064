"""Mail when a GPU, or a whole node, is drained: to each owner there, once. Pure."""

from collections import defaultdict

from gpudeck.contract.limits import Drain
from gpudeck.contract.repairs import WHOLE_NODE
from gpudeck.contract.wire import Task

from ..actions.lifecycle import CommandRecord
from ..fleet.fleet import Node
from .owner_words import OwnerActionNotification


def drain_notifications(record: CommandRecord, node: Node | None
                        ) -> list[tuple[str, OwnerActionNotification]]:
    """Return the notifications, each with its owner, once the node has recorded the drain: a drain
    that came to nothing asks nobody to finish."""
    setting = record.params.setting
    if not isinstance(setting, Drain) or node is None or not _is_just_done(record):
        return []
    by_owner: defaultdict[str, list[Task]] = defaultdict(list)
    for task in _tasks_on(node, setting.gpu_uuid):
        if task.user is not None:
            by_owner[task.user].append(task)
    hours = setting.within_s / 3_600
    text = f"Please finish within {hours:.3g} h, or move: nothing new is assigned there."
    return [(owner, OwnerActionNotification(
        record.action, record.host, ", ".join(task.id for task in tasks), tasks[0].command,
        record.asker.name, record.reason, text)) for owner, tasks in sorted(by_owner.items())]


def _is_just_done(record: CommandRecord) -> bool:
    return record.state == "done" and not any(
        moment.state == "done" for moment in record.history[:-1])


def _tasks_on(node: Node, board: str) -> list[Task]:
    """Return tasks on the board or on one of its MIG instances."""
    gpus = () if node.listing is None else node.listing.inventory.gpus
    indices = {at for at, facts in enumerate(gpus)
               if board in (WHOLE_NODE, facts.uuid, facts.parent_uuid)}
    task_ids = {use.task_id for use in node.uses if use.gpu in indices}
    return [task for task_id, task in node.tasks.items() if task_id in task_ids]
