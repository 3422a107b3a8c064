"""Resets a board that is out of service and empty, and diagnoses it. Never one that is in use.

The record says what is under way before it begins, so that a node that dies meanwhile has a board
that is out of service and says why. The answer of the vendor's program is no proof: the board is
read again.
"""

import time
from collections.abc import Iterator

from msgspec.structs import replace

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import GpuDiagnosis, GpuReset, SettingChange
from gpudeck.contract.repairs import (
    AT_WORK,
    WORDS,
    WORDS_MOST,
    GpuRepair,
    RepairEvent,
    after,
    state_of,
    why_not,
)
from gpudeck.contract.vendors import vendor_of

from ...backends.repair import ResetAnswer
from ...journal.store import JournalError
from ..quiet_window import quiet
from .execution import ActionExecution, ActionRefusedError
from .service import flaws as service_flaws
from .setting_kind import NOT_VERIFIED, Applied, ServicePreview, SettingKind, listed, many

BACK_WITHIN_S = 60.0
RESETS_MOST, RESETS_WITHIN_S = 2, 86_400.0
BoardSetting = GpuReset | GpuDiagnosis


def _flaws(setting: BoardSetting, preview: ServicePreview) -> Iterator[Refusal]:
    yield from service_flaws(setting, preview)
    yield from (Refusal("setting", why) for why in _in_the_way(preview))
    is_reset, facts = isinstance(setting, GpuReset), preview.facts
    module = preview.context.boards.module(setting.gpu_uuid)
    if module is None or facts is None:
        yield Refusal("setting", "boards of this kind cannot be reset or diagnosed from here"
                      if module is None else "the driver's status of this board is not known yet")
    elif why := module.reset_trouble(facts) if is_reset else module.diagnosis_trouble():
        yield Refusal("setting", why)
    if is_reset and preview.resets >= RESETS_MOST:
        yield Refusal("budget", f"it was reset {preview.resets} times within a day; a third reset "
                                "mends nothing: it needs inspection")


def _in_the_way(preview: ServicePreview) -> Iterator[str]:
    """Yield what is in the way: work that would be lost. Not to know is no permission."""
    if preview.snapshot is None:
        yield "the driver does not list its processes now, so nobody can say that it is empty"
    elif preview.tasks:
        yield (f"{many(len(preview.tasks), 'task')} on it: {listed(list(preview.tasks))}. "
               "Drain it first, and wait or end them")
    if preview.others_at_work:
        yield (f"{preview.others_at_work} of this node is under repair; one at a time, since each "
               "disturbs all that read its GPUs")


def _changes(setting: BoardSetting, preview: ServicePreview) -> tuple[SettingChange, ...]:
    what = "reset" if isinstance(setting, GpuReset) else f"diagnosis, level {setting.level}"
    return (SettingChange("service", WORDS[state_of(preview.repair)], what),)


def _warnings(setting: BoardSetting, preview: ServicePreview) -> Iterator[str]:
    yield NOT_VERIFIED
    if isinstance(setting, GpuReset):
        yield ("For up to three minutes no GPU of this driver is read: a reader keeps every board "
               "open. Other monitors (DCGM, exporters, device plugins) have to be stopped by you.")
        yield "Where boards share NVLink without Fabric Manager, all of them have to be reset."


def _do_reset(act: ActionExecution, setting: GpuReset) -> Applied:
    store, context = act.context.limits.repairs, act.context
    facts, module = context.boards.facts_and_module(context.tasks.recent, setting.gpu_uuid)
    repair = _begin(act, setting, "reset")
    store.note_reset(setting.gpu_uuid, time.time(), RESETS_WITHIN_S)
    act.report("waiting until the readers of this node have released the driver")
    source, boards, uuid = context.tasks.source, context.boards, setting.gpu_uuid
    with quiet(boards.data, vendor_of(uuid), lambda: (
            bool(source.readers_of(uuid)) or boards.has_readers(uuid))) as is_quiet:
        if not is_quiet:
            answer = ResetAnswer("a reading process of gpudeck did not release the driver", True)
        elif (holders := module.holders(facts)) != ():
            answer = ResetAnswer("what else has it open cannot be seen with these rights"
                                 if holders is None else
                                 f"it is open for {listed([*holders])}; stop these first", True)
        else:
            act.report("resetting the board")
            answer = module.reset(facts)
    act.report("reading the board again")
    wrong = _wrong(act, setting.gpu_uuid)
    event = _verdict(answer, wrong, store.resets(setting.gpu_uuid, time.time() - RESETS_WITHIN_S))
    words = f"{answer.message}{f'; read again: {wrong}' if wrong else '; read again: it is well'}"
    return _end(act, repair, event, words, event == "reset_worked")


def _verdict(answer: ResetAnswer, wrong: str, resets: int) -> RepairEvent:
    if answer.is_refused:
        return "not_reset"
    if not wrong:
        return "reset_worked"
    return "worn_out" if resets >= RESETS_MOST else "reset_failed"


def _wrong(act: ActionExecution, uuid: str) -> str:
    """Return what is still wrong with the board; "": the driver lists it, and advises nothing."""
    deadline = time.monotonic() + BACK_WITHIN_S
    source = act.context.tasks.source
    while (fresh := source.fresh(1.0)) is None or not fresh.is_read(uuid):
        if time.monotonic() > deadline:
            return "the driver does not answer"
        time.sleep(0.2)
    limits = act.context.limits.applier.read([uuid])[uuid]
    if limits.trouble:
        return limits.trouble
    if limits.recovery_action:
        return f"the driver advises action {limits.recovery_action} still"
    return ""


def _do_diagnosis(act: ActionExecution, setting: GpuDiagnosis) -> Applied:
    context = act.context
    facts, module = context.boards.facts_and_module(context.tasks.recent, setting.gpu_uuid)
    repair = _begin(act, setting, "diagnose")
    answer = module.diagnose(facts, setting.level)
    return _end(act, repair, answer.verdict, f"level {setting.level}: {answer.message}",
                answer.verdict == "passed")


def _begin(act: ActionExecution, setting: BoardSetting, event: RepairEvent) -> GpuRepair:
    """Record the repair on disk before anything is touched. Raises ActionRefusedError."""
    store = act.context.limits.repairs
    try:
        before = store.of(setting.gpu_uuid)
        if before is None or (why := why_not(before, event)):
            raise ActionRefusedError(Refusal("changed", why if before else "it is in service"))
        now = after(before, event, time.time())
        assert now is not None
        now = replace(now, boot_id=act.context.node.boot_id)
        store.keep(now)
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    return now


def _end(act: ActionExecution, repair: GpuRepair, event: RepairEvent, words: str, is_well: bool
         ) -> Applied:
    now = after(repair, event, time.time(), words)
    assert now is not None
    try:
        act.context.limits.repairs.keep(now)
    except JournalError as why:  # the record then says that it was cut short
        return True, False, f"{words}; it could not be recorded ({why})"[:WORDS_MOST]
    return event != "not_reset", is_well, f"{WORDS[now.state]}: {words}"[:WORDS_MOST]


def at_work(repairs: tuple[GpuRepair, ...], uuid: str) -> str:
    """Return another board of this node that is being repaired; "": none."""
    return next((f"GPU {repair.gpu_uuid}" for repair in repairs
                 if repair.gpu_uuid != uuid and repair.state in AT_WORK), "")


RESET = SettingKind(GpuReset, _flaws, _changes, _warnings, _do_reset)
DIAGNOSE = SettingKind(GpuDiagnosis, _flaws, _changes, _warnings, _do_diagnosis)
