"""Disconnects a client of MPS, by MPS's own control program; the process goes on."""

from gpudeck.contract.actions import ActionParams, ActionVerification, Refusal

from ..guard import GuardInput
from ..targets import TargetProcessSet
from .execution import ActionRefusedError, Outcome
from .task_kind import TaskActionKind, TaskExecution, are_alive, no_flaws


def do(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    if not targets.clients():
        raise ActionRefusedError(Refusal("mps", "it is not an MPS client any more; nothing was "
                                                "touched"))
    leave_mps(act, targets)
    act.tell_owner(targets, "CUDA will give it errors from now on.")
    pids = {handle.pid for handle in targets.living()}
    listed = {pid for clients in act.context.limits.mps.clients().values() for pid in clients}
    vanished = targets.vanished()
    verified = ActionVerification(applied=True, in_force=not pids & listed, vanished=vanished,
                                  bystanders_alive=are_alive(targets, vanished))
    if pids & listed:
        return ("not_effective", None, verified,
                "applied, not in force: MPS still lists it as its client")
    return ("not_effective" if vanished else "done"), None, verified, (
        "disconnected from MPS; the process itself keeps running")


def leave_mps(act: TaskExecution, targets: TargetProcessSet) -> Refusal | None:
    """Disconnect all clients; refuse if the first one cannot be: then nothing was touched."""
    for number, handle in enumerate(targets.clients()):
        if trouble := act.context.limits.mps.terminate(handle.pid):
            refusal = Refusal("mps", f"{trouble}; no signal was sent")
            if number == 0:
                raise ActionRefusedError(refusal)
            return refusal
    return None


def warnings(_params: ActionParams, _case: GuardInput) -> tuple[str, ...]:
    return ("MPS destroys its contexts on the GPU at once; the process itself keeps running, with "
            "errors from CUDA, and its work on the GPU is lost. Meanwhile the MPS server accepts "
            "no new client.",)


TERMINATE_CLIENT = TaskActionKind("terminate_client", "disconnects from MPS", do, warnings,
                                  no_flaws, is_whole_job=False)
