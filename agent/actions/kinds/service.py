"""Takes a GPU, or the whole node, out of service, and returns it. Nothing is ended by any of it."""

import time
from collections.abc import Iterator

from gpudeck.contract.actions import Bystander, Refusal
from gpudeck.contract.limits import (
    Cordon,
    Drain,
    GpuDiagnosis,
    GpuReset,
    ReturnToService,
    ServiceSetting,
    SettingChange,
)
from gpudeck.contract.repairs import (
    WHOLE_NODE,
    WORDS,
    GpuRepair,
    RepairEvent,
    ServiceState,
    after,
    state_of,
    why_not,
)

from ...journal.store import JournalError
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import Applied, ServicePreview, SettingKind, listed, many, span

EVENTS: dict[type, RepairEvent] = {
    Cordon: "cordon", Drain: "drain", ReturnToService: "return", GpuReset: "reset",
    GpuDiagnosis: "diagnose"}
WANTED: dict[type, ServiceState] = {
    Cordon: "cordoned", Drain: "draining", ReturnToService: "in_service"}


RETURN_OF_NODE = ReturnToService(WHOLE_NODE)


def flaws(setting: ServiceSetting, preview: ServicePreview) -> Iterator[Refusal]:
    if preview.trouble:
        yield Refusal("journal", preview.trouble)
    elif setting.gpu_uuid != WHOLE_NODE and not preview.is_board:
        yield Refusal("setting", "no board here has this UUID; of a MIG instance, name its board")
    elif why := why_not(preview.repair, EVENTS[type(setting)]):
        yield Refusal("setting", _of_node_too(why, setting, preview))


def _of_node_too(why: str, setting: ServiceSetting, preview: ServicePreview) -> str:
    if isinstance(setting, ReturnToService) and preview.repair is None and preview.of_node:
        return (f"the whole node is {WORDS[preview.of_node.state]}: return the node, not this GPU "
                "alone")
    return why


def changes(setting: ServiceSetting, preview: ServicePreview) -> tuple[SettingChange, ...]:
    what = "the whole node" if setting.gpu_uuid == WHOLE_NODE else "service"
    return (SettingChange(what, WORDS[state_of(preview.repair)], _wanted_words(setting)),)


def _wanted_words(setting: ServiceSetting) -> str:
    words = WORDS[WANTED[type(setting)]]
    return f"{words}, for {span(setting.within_s)}" if isinstance(setting, Drain) else words


def warnings(setting: ServiceSetting, preview: ServicePreview) -> Iterator[str]:
    if isinstance(setting, ReturnToService):
        if preview.repair is not None and preview.repair.state in (
                "needs_reboot", "needs_inspection"):
            yield f"It {WORDS[preview.repair.state]}: {preview.repair.words}."
        if not preview.is_understood:
            yield ("What is out of service here is not understood: boards that somebody took out "
                   "return with the node, and how often a board was reset is forgotten.")
        return
    there = preview.bystanders
    if not there:
        yield "No task is on it now."
        return
    owners = listed(sorted({bystander.user or "owner unknown" for bystander in there}))
    yield (f"{many(len(there), 'task')} of {owners} go{'es' * (len(there) == 1)} on. "
           + ("Their owners are asked to finish." if isinstance(setting, Drain)
              else "It gets no other."))


def do(act: ActionExecution, setting: ServiceSetting) -> Applied:
    """Store the state: on disk is in force, as the pool asks the same record before each grant."""
    store, uuid = act.context.limits.repairs, setting.gpu_uuid
    try:
        if setting == RETURN_OF_NODE and not store.is_understood:
            store.forget_unread(act.command.asker.name)
            if store.of(uuid) is None:
                return True, True, f"it is {WORDS['in_service']}"
        before = store.of(uuid)
        if why := why_not(before, EVENTS[type(setting)]):
            raise ActionRefusedError(Refusal("changed", why))
        now = _next(act, setting, before)
        if now is None:
            assert before is not None  # what is in service cannot be returned
            store.end(before, act.command.asker.name)
        else:
            store.keep(now)
        state = state_of(store.of(uuid))
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    notice = _tell_owners(act, setting) if isinstance(setting, Drain) else ""
    return True, state == WANTED[type(setting)], f"it is {WORDS[state]}{notice}"


def _next(act: ActionExecution, setting: ServiceSetting, before: GpuRepair | None
          ) -> GpuRepair | None:
    command, now = act.command, time.time()
    state = WANTED[type(setting)]
    if state == "in_service":
        return None
    until = now + setting.within_s if isinstance(setting, Drain) else None
    began_at = now if before is None else before.began_at
    if before is not None:
        assert after(before, EVENTS[type(setting)], now) is not None
    return GpuRepair(setting.gpu_uuid, state, command.asker.name, command.reason, began_at, now,
                     act.context.node.boot_id, until)


def _tell_owners(act: ActionExecution, setting: Drain) -> str:
    """Notify the owners at their terminals; the hub writes to their addresses."""
    by_uid: dict[int, list[Bystander]] = {}
    for bystander in act.preview.bystanders:
        by_uid.setdefault(bystander.process.uid, []).append(bystander)
    why = f" ({act.command.reason})" if act.command.reason else ""
    within = span(setting.within_s)
    reached = sum(act.context.people.notify(uid, [
        f"a GPU that you use is taken out of service by {act.command.asker.name}{why}. Please "
        f"finish within {within}: {listed([other.task_id for other in its])}."]).terminals > 0
        for uid, its in by_uid.items())
    return f"; {reached} of {many(len(by_uid), 'owner')} told at a terminal" if by_uid else ""


CORDON = SettingKind(Cordon, flaws, changes, warnings, do)
DRAIN = SettingKind(Drain, flaws, changes, warnings, do)
RETURN = SettingKind(ReturnToService, flaws, changes, warnings, do)
