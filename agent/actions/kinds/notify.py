"""Tells a task's owner something, at the terminals they have open on this node."""

from gpudeck.action_words import many
from gpudeck.actions import ActionVerification

from ...tasks.terminals import TerminalReach
from ..targets import TargetProcessSet
from .execution import Outcome
from .task_kind import TaskActionKind, TaskExecution, no_warnings


def do(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    reach = act.tell_owner(targets, act.params.text)
    who, count = targets.account, reach.terminals
    if count == 0:
        return ("not_effective", None, ActionVerification(), _why(who, reach))
    return ("done", None, ActionVerification(),
            f"told {who} at {many(count, 'terminal')}")


def _why(who: str, reach: TerminalReach) -> str:
    if reach.denials:
        return (f"{who} has {many(reach.denials, 'terminal')} open on this node, but the agent may "
                "not write there; nobody was notified here. It needs the group `tty`: the grant "
                "`terminals` of its service")
    if reach.mutes:
        return f"{who} has turned messages off at each terminal (mesg n); nobody was notified here"
    return f"{who} has no terminal open on this node; nobody was notified here"


NOTIFY = TaskActionKind("notify", "about", do, no_warnings, is_whole_job=False)
