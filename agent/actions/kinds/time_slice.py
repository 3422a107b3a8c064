"""Sets how long each task on a shared GPU works before the next one has its turn. The GPU is shared
by time in any case; nothing is taken from anybody, and it is the whole board's."""

from collections.abc import Iterator

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import SettingChange, TimeSlice

from .execution import ActionExecution, ActionRefusedError
from .setting_kind import NOT_VERIFIED, Applied, GpuPreview, SettingKind, many, not_taken

UNKNOWN = "not known"


def flaws(setting: TimeSlice, preview: GpuPreview) -> Iterator[Refusal]:
    module = preview.context.boards.time_slice_module(setting.gpu_uuid)
    recent = preview.context.tasks.recent
    if module is None:
        yield Refusal("setting", "time slices of boards of this kind cannot be set")
    elif why := module.trouble():
        yield Refusal("setting", why)
    facts = recent.facts.get(setting.gpu_uuid)
    if (facts is not None and facts.parent_uuid is not None) or any(
            part.parent_uuid == setting.gpu_uuid for part in recent.facts.values()):
        yield Refusal("setting", "it is split by MIG, and its instances share no time")


def changes(setting: TimeSlice, preview: GpuPreview) -> tuple[SettingChange, ...]:
    module = preview.context.boards.time_slice_module(setting.gpu_uuid)
    present = None if module is None or module.trouble() else module.read(setting.gpu_uuid)
    return (SettingChange("time slice", present or UNKNOWN, setting.length),)


def warnings(setting: TimeSlice, preview: GpuPreview) -> Iterator[str]:
    yield NOT_VERIFIED
    yield ("It is the whole GPU's, for all tasks on it, now and later. How long a slice is, NVIDIA "
           "does not say. Longer ones cost less switching, and others wait longer for their turn.")
    yield "Nothing takes it back: a reloaded driver begins with default, and so does a reboot."
    clients = preview.context.limits.mps.clients()
    if count := sum(len(pids) for pids in clients.values()):
        yield f"{many(count, 'client')} of MPS here share a GPU at the same time, not in turns."


def do(act: ActionExecution, setting: TimeSlice) -> Applied:
    module = act.context.boards.time_slice_module(setting.gpu_uuid)
    assert module is not None
    if trouble := module.set_length(setting.gpu_uuid, setting.length):
        raise ActionRefusedError(not_taken(trouble))
    present = module.read(setting.gpu_uuid)
    if present is None:
        return True, None, "the driver does not report the time slice in a form that is known"
    is_set = present == setting.length
    return True, is_set, f"{'' if is_set else 'applied, not in force: '}the driver reports: " \
                         f"{present}"


TIME_SLICE = SettingKind(TimeSlice, flaws, changes, warnings, do)
