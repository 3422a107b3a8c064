"""Sends a task's owner a message, at the terminals they have open on this node."""

from gpudeck.contract.actions import ActionVerification
from gpudeck.words.actions import many

from ...tasks.terminals import TerminalReach
from ..targets import TargetProcessSet
from .execution import Outcome
from .task_kind import TaskActionKind, TaskExecution, no_flaws, no_warnings


def do(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    reach = act.tell_owner(targets, act.params.text)
    account, count = targets.account, reach.terminals
    if count == 0:
        return ("not_effective", None, ActionVerification(), _why(account, reach))
    return ("done", None, ActionVerification(),
            f"told {account} at {many(count, 'terminal')}")


def _why(account: str, reach: TerminalReach) -> str:
    if reach.denials:
        return (f"{account} has {many(reach.denials, 'terminal')} open on this node, but the agent "
                "may not write there; nobody was notified here. It needs the group `tty`: the "
                "grant `terminals` of its service")
    if reach.mutes:
        return (f"{account} has turned messages off at each terminal (mesg n); nobody was notified "
                "here")
    return f"{account} has no terminal open on this node; nobody was notified here"


NOTIFY = TaskActionKind("notify", "about", do, no_warnings, no_flaws,
                        is_whole_job=False)
