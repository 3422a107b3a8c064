"""What pause and resume share: waiting until processes have stopped, or run again."""

import time

from gpudeck.actions import ActionVerification, CommandState

from ..targets import TargetProcessSet
from .execution import Outcome
from .task_kind import are_alive

STOPPED_WITHIN_S = 2.0


def wait_for_state(targets: TargetProcessSet, letter: str, wanted: bool) -> list[int]:
    """The pids that are not so after a while. A debugger's stop (`t`) is not ours."""
    deadline = time.monotonic() + STOPPED_WITHIN_S
    while True:
        facts = [found for grip in targets.living() if (found := grip.facts()) is not None]
        wrong = [each.identity.pid for each in facts
                 if (each.row.state == letter) != wanted and each.row.state not in "ZX"]
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(0.01)


def outcome(targets: TargetProcessSet, wrong: list[int], done: str, failed: str) -> Outcome:
    vanished = targets.vanished()
    verified = ActionVerification(bystanders_alive=are_alive(targets, vanished), vanished=vanished,
                                  survivors=tuple(wrong))
    if not targets.living():
        return "not_effective", None, verified, "it ended by itself meanwhile"
    if wrong:
        return "not_effective", None, verified, f"{len(wrong)} processes {failed}"
    state: CommandState = "not_effective" if vanished else "done"
    return state, None, verified, done
