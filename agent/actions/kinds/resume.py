"""Lets a paused task go on."""

import signal

from ..targets import TargetProcessSet
from .execution import Outcome
from .stopping import outcome, wait_for_state
from .task_kind import TaskActionKind, TaskExecution, no_warnings


def do(_act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    sent = targets.send(signal.SIGCONT)
    still = wait_for_state(targets, "T", False)
    return outcome(targets, still, f"resumed: {sent} processes go on", "still stand still")


RESUME = TaskActionKind("resume", "lets go on", do, no_warnings)
