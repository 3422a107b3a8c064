"""Stops all processes of a task, whose memory stays held, and lets them go on again."""

import signal
import time

from gpudeck.actions import ActionParams, ActionVerification, CommandState

from ..guard import GuardInput
from ..targets import TargetProcessSet
from .execution import Outcome
from .task_kind import TaskActionKind, TaskExecution, are_alive, no_warnings

STOPPED_WITHIN_S = 2.0


def _pause(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    sent = targets.send(signal.SIGSTOP)
    act.tell_owner(targets, "Its memory stays; `gpudeck resume` lets it go on.")
    targets.adopt()
    targets.send(signal.SIGSTOP, only_new=True)
    moving = _wait_for_state(targets, "T", True)
    return _outcome(targets, moving, f"paused: {sent} processes stand still", "did not stand still")


def _pause_warnings(_params: ActionParams, _case: GuardInput) -> tuple[str, ...]:
    return ("Its memory stays held while it is paused.",
            "Peers that wait for it in a collective (NCCL, MPI) hang, and may give up.")


def _resume(_act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    sent = targets.send(signal.SIGCONT)
    still = _wait_for_state(targets, "T", False)
    return _outcome(targets, still, f"resumed: {sent} processes go on", "still stand still")


def _wait_for_state(targets: TargetProcessSet, letter: str, wanted: bool) -> list[int]:
    """The pids that are not so after a while. A debugger's stop (`t`) is not ours."""
    deadline = time.monotonic() + STOPPED_WITHIN_S
    while True:
        facts = [found for grip in targets.living() if (found := grip.facts()) is not None]
        wrong = [each.identity.pid for each in facts
                 if (each.row.state == letter) != wanted and each.row.state not in "ZX"]
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(0.01)


def _outcome(targets: TargetProcessSet, wrong: list[int], done: str, failed: str) -> Outcome:
    vanished = targets.vanished()
    verified = ActionVerification(bystanders_alive=are_alive(targets, vanished), vanished=vanished,
                                  survivors=tuple(wrong))
    if not targets.living():
        return "not_effective", None, verified, "it ended by itself meanwhile"
    if wrong:
        return "not_effective", None, verified, f"{len(wrong)} processes {failed}"
    state: CommandState = "not_effective" if vanished else "done"
    return state, None, verified, done


PAUSE = TaskActionKind("pause", "pauses", _pause, _pause_warnings)
RESUME = TaskActionKind("resume", "lets go on", _resume, no_warnings)
