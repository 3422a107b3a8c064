"""Tells a task's owner something, at the terminals they have open on this node."""

from gpudeck.actions import ActionVerification

from ..targets import TargetProcessSet
from .execution import Outcome
from .task_kind import TaskActionKind, TaskExecution, no_warnings


def do(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    count = act.tell_owner(targets, act.params.text)
    who = targets.account
    if count == 0:
        return ("not_effective", None, ActionVerification(),
                f"{who} has no terminal open on this node; nobody was notified here")
    return ("done", None, ActionVerification(),
            f"told {who} at {count} terminal{'s' * (count != 1)}")


NOTIFY = TaskActionKind("notify", "about", do, no_warnings, is_whole_job=False)
