"""Lowers the power limit of the GPUs that a task has to itself, for a time; locks the clocks of a
board that takes no lower limit; of a client of MPS lowers the share of the next clients. The
previous limit is set again at the end, or earlier when the rule has cleared; both are what every
timed limit does."""

from typing import TypeVar

from gpudeck.contract.action_table import LIMIT_LASTS_S, LIMIT_SHARE
from gpudeck.contract.actions import ActionParams, ActionVerification, Refusal
from gpudeck.contract.limits import ClockLock, PowerCap

from ...limits.apply import not_undone, undo
from ...readings import GpuLimits
from ..context import TaskSnapshot
from ..guard import GuardInput
from ..targets import TargetProcessSet
from .execution import ActionRefusedError, Outcome
from .mps_share import clients_of, limit_share
from .setting_kind import Applied, span
from .task_kind import TaskActionKind, TaskExecution, are_alive, no_flaws
from .timed_limits import begin

LOWEST_MHZ = 210  # clock of an idle board; one whose clocks end higher takes its own
Setting = PowerCap | ClockLock


def watts_of(limits: GpuLimits) -> int | Refusal:
    """Return the watts to limit the board to, of what is in force now; a Refusal: it cannot be."""
    if limits.trouble:
        return Refusal("setting", limits.trouble)
    if limits.power_w is None or limits.power_min_w is None:
        return Refusal("setting", "one of its GPUs does not report its power limit or its range")
    watts = round(max(limits.power_w * LIMIT_SHARE, limits.power_min_w))
    if watts >= limits.power_w:
        return Refusal("setting", "one of its GPUs is at its lowest power limit already")
    return watts


def clocks_of(limits: GpuLimits) -> tuple[int, int] | None:
    """Return from and to which clocks are locked instead; None: their range is not known, or they
    are locked already."""
    if limits.clock_max_mhz is None or limits.locked_mhz is not None:
        return None
    top = round(limits.clock_max_mhz * LIMIT_SHARE)
    return min(LOWEST_MHZ, top), top


def gpus_of(snapshot: TaskSnapshot, pids: frozenset[int]) -> tuple[str, ...] | Refusal:
    """Return the GPUs that they use. A limit slows the whole board: nobody else may be on it."""
    uuids = {entry.gpu_uuid for entry in snapshot.gpu_tasks if entry.task.pid in pids}
    if not uuids:
        return Refusal("gone", "it does not use a GPU any more; nothing was touched")
    if any(entry.gpu_uuid in uuids and entry.task.pid not in pids for entry in snapshot.gpu_tasks):
        return Refusal("changed", "others use one of its GPUs, and a power limit would slow them "
                                  "as well")
    return tuple(sorted(uuids))


def _limit(act: TaskExecution, targets: TargetProcessSet) -> Outcome:
    if targets.snapshot is None:
        raise ActionRefusedError(Refusal("unreadable", "the driver did not list its processes"))
    if clients_of(targets.snapshot, targets.pids):
        return limit_share(act, targets, targets.snapshot)
    uuids = _require(gpus_of(targets.snapshot, targets.pids))
    settings = _settings(act, uuids)
    limited: list[str] = []
    wrong = ""
    for uuid in uuids:
        try:
            is_applied, in_force, words = _begin(act, settings[uuid])
        except ActionRefusedError as why:
            if not limited:
                raise
            is_applied, in_force, words = False, False, why.refusal.sentence
        limited.append(uuid)
        if not is_applied or in_force is False:
            wrong = words
            break
    if wrong:
        wrong += _take_back(act, limited)
    vanished = targets.vanished()
    verified = ActionVerification(applied=not wrong, in_force=not wrong, vanished=vanished,
                                  bystanders_alive=are_alive(targets, vanished))
    if wrong:
        return "not_effective", None, verified, wrong[:1_024]
    caps = ", ".join(_words(settings[uuid]) for uuid in uuids)
    act.tell_owner(targets, f"Its GPUs are limited to {caps} for {span(LIMIT_LASTS_S)} at most.")
    return "done", None, verified, f"limited to {caps} for {span(LIMIT_LASTS_S)} at most"


def _begin(act: TaskExecution, setting: Setting) -> Applied:
    if isinstance(setting, PowerCap):
        return begin(act, setting, "power", (float(setting.watts),))
    return begin(act, setting, "clocks", (float(setting.min_mhz), float(setting.max_mhz)))


def _words(setting: Setting) -> str:
    return (f"{setting.watts} W" if isinstance(setting, PowerCap)
            else f"clocks of {setting.max_mhz} MHz")


def _settings(act: TaskExecution, uuids: tuple[str, ...]) -> dict[str, Setting]:
    """Return the setting of each GPU. All or none: nothing has been set when one is refused."""
    limits, boards = act.context.limits, act.context.tasks.recent.board_of
    if trouble := next(filter(None, map(limits.applier.trouble, uuids)), ""):
        raise ActionRefusedError(Refusal("setting", trouble))
    if any(boards.get(uuid, uuid) != uuid for uuid in uuids):
        raise ActionRefusedError(Refusal("setting", "it runs on a MIG instance, and a power limit "
                                                    "is of the whole board"))
    for limit in limits.timed.all():
        if limit.gpu_uuid in uuids and limit.what != "mps_share":
            what = "power limit" if limit.what == "power" else "clock lock"
            raise ActionRefusedError(Refusal("setting", f"one of its GPUs has a timed {what} "
                                                        "already, which stays as it is"))
    board_limits = limits.applier.read(uuids)
    return {uuid: _of_board(uuid, board_limits[uuid]) for uuid in uuids}


def _of_board(uuid: str, limits: GpuLimits) -> Setting:
    watts = watts_of(limits)
    clocks = clocks_of(limits) if isinstance(watts, Refusal) and not limits.trouble else None
    if clocks is None:
        return PowerCap(uuid, _require(watts), LIMIT_LASTS_S)
    return ClockLock(uuid, *clocks, LIMIT_LASTS_S)


def _take_back(act: TaskExecution, uuids: list[str]) -> str:
    """Undo what was limited before one of them failed (all or none); return how that ended."""
    limits, remaining = act.context.limits, []
    for uuid in uuids:
        mine = next((limit for limit in limits.timed.all() if limit.gpu_uuid == uuid
                     and limit.lease_id == act.command.command_id), None)
        if mine is None:
            continue
        if undo(limits.applier, mine) or not_undone(limits.applier, mine):
            remaining.append(uuid)  # its own end takes it back
        else:
            limits.timed.end(mine, "another GPU of the same task could not be limited")
    return ("; the others are as before" if not remaining
            else f"; still limited: {', '.join(remaining)}")


T = TypeVar("T")


def _require(value: T | Refusal) -> T:
    if isinstance(value, Refusal):
        raise ActionRefusedError(value)
    return value


def _warnings(_params: ActionParams, case: GuardInput) -> tuple[str, ...]:
    if any(subject.kind == "mps_client" for subject in case.subjects):
        return ("It is a client of MPS, which changes nothing for a client that runs: its owner's "
                "next clients get a smaller share of the threads, and it keeps its own.",)
    return ("It runs more slowly. By how much is not known before: it depends on the work.",)


LIMIT = TaskActionKind("limit", "limits", _limit, _warnings, no_flaws)
