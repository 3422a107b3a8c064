"""Sets whether one process at a time may use a GPU; held until it is set back to default."""

import time
from collections.abc import Iterator

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import ComputeMode, ManagedComputeMode, SettingChange

from ...journal.store import JournalError
from ...limits.apply import MODES, UNSURE
from ...limits.compute_modes import words_of
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import (
    Applied,
    GpuPreview,
    SettingKind,
    listed,
    many,
    not_taken,
)

OF_MPS = ("mps_server", "mps_client")


def flaws(_setting: ComputeMode, preview: GpuPreview) -> Iterator[Refusal]:
    if preview.limits.compute_mode is None:
        yield Refusal("setting", "this GPU does not report its compute mode; it cannot be set here "
                                 "for a board that is split by MIG")


def changes(setting: ComputeMode, preview: GpuPreview) -> tuple[SettingChange, ...]:
    return (SettingChange("compute mode", words_of(preview.limits.compute_mode),
                          words_of(MODES[setting.mode])),)


def warnings(setting: ComputeMode, preview: GpuPreview) -> Iterator[str]:
    """Yield warnings. Nothing is taken from running tasks; what counts is who can begin."""
    if setting.mode == "default":
        yield ("From now on several processes can use this GPU at a time, including processes "
               "outside MPS and its limits.")
        return
    yield ("From now on one process at a time can start on this GPU: where MPS runs, its server, "
           "with its clients through it. A process without MPS fails.")
    clients = preview.context.limits.mps.clients()
    of_mps = {pid for server, pids in clients.items() for pid in (server, *pids)}
    beside = [entry.task for entry in (
                  () if preview.snapshot is None else preview.snapshot.gpu_tasks)
              if entry.gpu_uuid == setting.gpu_uuid and entry.task.pid not in of_mps
              and entry.task.kind not in OF_MPS]
    if beside:
        names = listed([f"{task.user or 'owner unknown'} ({task.pid})" for task in beside])
        yield (f"{many(len(beside), 'task')} of it {'go' if len(beside) > 1 else 'goes'} on "
               f"without MPS, and nothing else can start there until then: {names}.")
    yield ("It stays until it is set back to default: a reloaded driver forgets it, and "
           "the agent then sets it again.")


def do(act: ActionExecution, setting: ComputeMode) -> Applied:
    """Set the mode. `default` is what a driver begins with: then nothing is to be held any more,
    which is written down first, so that nobody sets the former one again behind it."""
    limits, uuid, number = act.context.limits, setting.gpu_uuid, MODES[setting.mode]
    try:
        former = limits.modes.forget(uuid) if setting.mode == "default" else None
        trouble = limits.applier.set_mode(uuid, number)
        if trouble and not trouble.startswith(UNSURE):
            if former is not None:
                limits.modes.keep(former)
            raise ActionRefusedError(not_taken(trouble))
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    reading = limits.applier.read([uuid])[uuid]
    is_set = reading.compute_mode == number
    words = reading.trouble or words_of(reading.compute_mode)
    words += _store(act, setting) if is_set and setting.mode != "default" else ""
    if trouble:
        return False, is_set, f"{trouble}. The driver reports: {words}"
    return True, is_set, f"{'' if is_set else 'applied, not in force: '}the driver reports: {words}"


def _store(act: ActionExecution, setting: ComputeMode) -> str:
    command, number = act.command, MODES[setting.mode]
    mode = ManagedComputeMode(setting.gpu_uuid, setting.mode, command.asker.name, command.reason,
                              time.time(), "in_force", f"the driver reports {words_of(number)}")
    try:
        act.context.limits.modes.keep(mode)
    except JournalError as why:
        return f"; a reloaded driver will forget it: it could not be stored ({why})"
    return ""


COMPUTE_MODE = SettingKind(ComputeMode, flaws, changes, warnings, do)
