"""Stops all processes of a task; its memory stays held. Undone by `resume`."""

import signal

from gpudeck.actions import ActionParams

from ..guard import GuardInput
from ..targets import TargetProcessSet
from .execution import Outcome
from .stopping import outcome, wait_for_state
from .task_kind import TaskActionKind, TaskExecution


def do(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    sent = targets.send(signal.SIGSTOP)
    act.tell_owner(targets, "Its memory stays; `gpudeck resume` lets it go on.")
    targets.adopt()
    targets.send(signal.SIGSTOP, only_new=True)
    moving = wait_for_state(targets, "T", True)
    return outcome(targets, moving, f"paused: {sent} processes stand still", "did not stand still")


def warnings(_params: ActionParams, _case: GuardInput) -> tuple[str, ...]:
    return ("Its memory stays held while it is paused.",
            "Peers that wait for it in a collective (NCCL, MPI) hang, and may give up.")


PAUSE = TaskActionKind("pause", "pauses", do, warnings)
