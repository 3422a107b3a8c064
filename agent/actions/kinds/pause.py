"""Stops all processes of a task, whose memory stays held, and resumes them."""

import contextlib
import signal
import time

from gpudeck.contract.actions import ActionParams, ActionVerification, CommandState, Refusal

from ...tasks.jobs import ProcessTableRow, below, one_tree
from ...tasks.processes import table
from ..guard import GuardInput
from ..targets import TargetProcessSet
from .execution import ActionRefusedError, Outcome
from .task_kind import TaskActionKind, TaskExecution, are_alive, no_flaws, no_warnings

STOPPED_WITHIN_S = 2.0
ROUNDS = 5  # what is born while it is stopped is found, and the chase has an end


def _pause(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    if act.command.asker.kind == "rule":
        return _pause_whole(act, targets)
    count = targets.send(signal.SIGSTOP)
    act.tell_owner(targets, "It keeps its memory; `gpudeck resume` continues it.")
    targets.adopt()
    targets.send(signal.SIGSTOP, only_new=True)
    moving = _wait_for_state(targets, "T", True)
    return _outcome(targets, moving, f"paused: {count} processes stopped", "did not stop")


def _pause_whole(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    """Pause, for a rule, the whole job or nothing: nobody is there to see what half of it does."""
    order = [row.pid for row in one_tree(_rows(targets))]
    if not order:
        raise ActionRefusedError(Refusal("multi_process", "its processes are not one tree any "
                                                          "more; nothing was touched"))
    # Root first, so that it starts nothing meanwhile.
    targets.all.sort(key=lambda target: (
        order.index(target.handle.pid) if target.handle.pid in order else -1))
    stopped_before = frozenset(row.pid for row, _ in _rows(targets) if row.state == "T")
    try:
        wrong = _stop_tree(targets)
    except BaseException:
        _undo(targets, stopped_before)
        raise
    still = _undo(targets, stopped_before) if wrong else 0
    if not wrong:
        act.tell_owner(targets, "It keeps its memory; `gpudeck resume` continues it.")
    return _outcome(targets, wrong, f"paused: {len(targets.all)} processes stopped",
                    "did not stop with the others, "
                    + (f"of which {still} could not be woken" if still else "which run again"))


def _stop_tree(targets: TargetProcessSet) -> list[int]:
    """Stop the tree; return the pids that keep it from being whole."""
    targets.send(signal.SIGSTOP)
    for _ in range(ROUNDS):
        if wrong := _wait_for_state(targets, "T", True):
            return wrong
        targets.adopt()
        if not targets.send(signal.SIGSTOP, only_new=True):
            break
    known_pids = {target.handle.pid for target in targets.all if not target.is_new}
    alive = [handle.pid for handle in targets.living()]
    wrong = [row.pid for row in below(alive, table())
             if row.pid not in known_pids and row.state not in "ZX"]
    return wrong + _wait_for_state(targets, "T", True) or ([] if one_tree(_rows(targets)) else
                                                           alive)


def _undo(targets: TargetProcessSet, stopped_before: frozenset[int]) -> int:
    """Resume what was paused; return how many did not. Those that were stopped before stay so."""
    handles = [target.handle for target in reversed(targets.all)
               if target.handle.pid not in stopped_before]
    for handle in handles:
        with contextlib.suppress(OSError):  # the others all the same
            handle.send(signal.SIGCONT)
    deadline = time.monotonic() + STOPPED_WITHIN_S
    while (still := sum(facts.row.state == "T" for handle in handles
                        if (facts := handle.facts()) is not None)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return still


def _rows(targets: TargetProcessSet) -> list[tuple[ProcessTableRow, int]]:
    return [(facts.row, facts.identity.uid) for target in targets.all
            if (facts := target.handle.facts()) is not None]


def _pause_warnings(_params: ActionParams, _case: GuardInput) -> tuple[str, ...]:
    return ("It keeps its GPU memory while it is paused.",
            "Processes waiting for it in NCCL or MPI hang and may time out.")


def _resume(_act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    count = targets.send(signal.SIGCONT)
    still = _wait_for_state(targets, "T", False)
    return _outcome(targets, still, f"resumed: {count} processes run again", "are still stopped")


def _wait_for_state(targets: TargetProcessSet, letter: str, is_meant: bool) -> list[int]:
    """Return the pids not in that state after a while. A debugger's stop (`t`) is not ours."""
    deadline = time.monotonic() + STOPPED_WITHIN_S
    while True:
        facts = [current for handle in targets.living() if (current := handle.facts()) is not None]
        wrong = [process.identity.pid for process in facts
                 if (process.row.state == letter) != is_meant and process.row.state not in "ZX"]
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(0.01)


def _outcome(targets: TargetProcessSet, wrong: list[int], success: str, failure: str) -> Outcome:
    vanished = targets.vanished()
    verified = ActionVerification(bystanders_alive=are_alive(targets, vanished), vanished=vanished,
                                  survivors=tuple(wrong))
    if not targets.living():
        return "not_effective", None, verified, "it ended by itself in the meantime"
    if wrong:
        return "not_effective", None, verified, f"{len(wrong)} processes {failure}"
    state: CommandState = "not_effective" if vanished else "done"
    return state, None, verified, success


PAUSE = TaskActionKind("pause", "pauses", _pause, _pause_warnings, no_flaws)
RESUME = TaskActionKind("resume", "resumes", _resume, no_warnings, no_flaws)
