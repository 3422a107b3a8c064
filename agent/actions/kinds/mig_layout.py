"""Splits a board by MIG as requested, or makes it whole again. An instance that somebody uses or
has leased is never touched: the layout is planned around it or refused.

The wanted layout and the previous one are on disk before the first step: if the agent dies half
way, the node still reports what state the board is in and how to finish or undo it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import ManagedMigLayout, MigLayout, SettingChange
from gpudeck.contract.repairs import WORDS, of_gpu, state_of
from gpudeck.contract.vendors import vendor_of
from gpudeck.mig.planner import Layout, MigPlan, NoLayoutError, plan
from gpudeck.mig.wishes import OFF, WishError, parse_wish, wants_mode, wish_words

from ...backends.mig_managers import other_manager
from ...journal.store import JournalError
from ...limits import mig_layouts
from ...readings import MigBoard
from ..context import NodeContext, TaskSnapshot
from ..quiet_window import quiet
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import NOT_VERIFIED, Applied, SettingKind, listed, many

OUT_OF_SERVICE = ("cordoned", "drained")


@dataclass(frozen=True, slots=True)
class MigPreview:
    """The planned layout; `plan` None: see `refusal`. `mode`: switched on or off; None: it
    stays."""

    board: MigBoard
    plan: MigPlan | None
    in_use: Layout
    refusal: Refusal | None
    mode: bool | None = None

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(uuid for instance in self.board.instances for uuid in instance.uuids)

    def listed(self, layout: Layout) -> str:
        names = {profile.id: profile.name for profile in self.board.profiles}
        return listed([f"{names[profile]} at {start}" for profile, start in layout])


def mig_preview(context: NodeContext, setting: MigLayout, snapshot: TaskSnapshot | None
                ) -> MigPreview:
    uuid = setting.gpu_uuid
    if refusal := _service_refusal(context, uuid):
        return MigPreview(MigBoard(uuid), None, (), refusal)
    board = context.limits.applier.mig(uuid)
    mode = _new_mode(board, wants_mode(setting.layout))
    if why := (_board_trouble(board, mode) or other_manager()
               or ("" if mode is None else _window_trouble(context, uuid))):
        return MigPreview(board, None, (), Refusal("setting", why))
    try:
        in_use = _in_use(context, board, snapshot)
        wish = parse_wish(setting.layout, board.profiles)
        mig_plan = plan(board.profiles, mig_layouts.present(board), wish, in_use)
    except JournalError as why_not:
        return MigPreview(board, None, (), Refusal("journal", str(why_not)))
    except (_InTheWayError, WishError, NoLayoutError) as why_not:
        return MigPreview(board, None, (), Refusal("setting", str(why_not)))
    return MigPreview(board, mig_plan, in_use, None, mode)


class _InTheWayError(Exception):
    """Somebody's work might be lost, in words for people. Not to know is no permission."""


def _service_refusal(context: NodeContext, uuid: str) -> Refusal | None:
    """Refuse a board in service: somebody could be given an instance that is about to go."""
    if trouble := context.limits.applier.trouble(uuid):
        return Refusal("setting", trouble)
    try:
        state = state_of(of_gpu(context.limits.repairs.all(), uuid))
    except JournalError as why:
        return Refusal("journal", str(why))
    if state in OUT_OF_SERVICE:
        return None
    return Refusal("setting", f"it is {WORDS[state]}: only a GPU that is cordoned or drained is "
                              "split, so that nobody is given an instance that is about to go")


def _new_mode(board: MigBoard, requested: bool | None) -> bool | None:
    if board.is_pending:  # else the next reset would change it, when nobody expects it
        return board.is_on if requested is None else requested
    return None if requested in (None, board.is_on) else requested


def _board_trouble(board: MigBoard, mode: bool | None) -> str:
    if board.trouble or mode is None or board.is_resetless:
        return board.trouble
    if board.is_pending:
        return ("its MIG mode was changed and waits for a reset of the board: reset it, or reboot "
                "the machine")
    return (f"{mig_layouts.MODE_IS_OFF if mode else 'MIG is on here'}, and this board changes its "
            "mode only with a reset, which gpudeck leaves to you. Stop the agent and whatever else "
            f"has the board open, then as root: `nvidia-smi -i {board.uuid} -mig {int(mode)}`")


def _window_trouble(context: NodeContext, uuid: str) -> str:
    """Return why nobody can say that the board is not open; "": it can be seen."""
    facts = context.tasks.recent.facts.get(uuid)
    if context.boards.module(uuid) is None or facts is None or facts.minor is None:
        return "its device file is not known yet, so nobody can say who has it open"
    return ""


def _in_use(context: NodeContext, board: MigBoard, snapshot: TaskSnapshot | None) -> Layout:
    """Return the instances that a task or a lease is on. Raises _InTheWayError, JournalError."""
    if snapshot is None:
        raise _InTheWayError("the driver does not list its processes now, so nobody can say which "
                             "instances are in use")
    by_uuid = {uuid: (instance.profile, instance.start)
               for instance in board.instances for uuid in instance.uuids}
    boards = context.tasks.recent.board_of
    strange = sorted({entry.task.id for entry in snapshot.gpu_tasks if entry.gpu_uuid not in by_uuid
                      and (
        boards.get(entry.gpu_uuid) == board.uuid or entry.gpu_uuid == board.uuid
        or (entry.gpu_uuid.startswith("MIG-") and entry.gpu_uuid not in boards))})
    if strange:
        raise _InTheWayError(f"{many(len(strange), 'task')} on it, and it is not known on which "
                             f"instance: {listed(strange)}")
    leased = context.limits.leased()
    if board.uuid in leased:
        raise _InTheWayError("the whole board is leased; wait until the lease has ended")
    busy = {entry.gpu_uuid for entry in snapshot.gpu_tasks} | leased
    return tuple(sorted({place for uuid, place in by_uuid.items() if uuid in busy}))


def _flaws(setting: MigLayout, preview: MigPreview) -> Iterator[Refusal]:
    if preview.refusal is not None:
        yield preview.refusal
    elif preview.plan is not None and preview.plan.is_nothing and preview.mode is None and all(
            instance.is_complete for instance in preview.board.instances):
        yield Refusal("setting", "it is split like that already")


def _changes(setting: MigLayout, preview: MigPreview) -> tuple[SettingChange, ...]:
    if preview.plan is None:
        return (SettingChange("MIG", "not known", setting.layout),)
    mig_plan, after = preview.plan, mig_layouts.profile_counts(preview.plan.layout)
    mode = () if preview.mode is None else (
        SettingChange("MIG mode", _mode_words(preview.board), "on" if preview.mode else "off"),)
    return (SettingChange("MIG", mig_layouts.words(preview.board),
                          OFF if _is_off_after(preview)
                          else wish_words(after, preview.board.profiles)), *mode,
            SettingChange("instances destroyed", "", preview.listed(mig_plan.destroy)),
            SettingChange("instances created", "", preview.listed(mig_plan.create)))


def _mode_words(board: MigBoard) -> str:
    return ("on" if board.is_on else "off") + (", to change at the next reset" if board.is_pending
                                               else "")


def _is_off_after(preview: MigPreview) -> bool:
    return not (preview.board.is_on if preview.mode is None else preview.mode)


def _warnings(setting: MigLayout, preview: MigPreview) -> Iterator[str]:
    yield NOT_VERIFIED
    if preview.mode is not None:
        yield ("The mode changes on a board that nobody has open: for up to three minutes no GPU "
               "of this driver is read. Other monitors (DCGM, exporters, device plugins) have to "
               "be stopped by you.")
    if preview.in_use:
        yield f"In use or leased, and not touched: {preview.listed(preview.in_use)}."
    if any(not instance.is_complete for instance in preview.board.instances):
        yield "Instances without a compute instance are destroyed first: nothing can run on them."
    yield ("A reset or restart of the machine takes all instances away; the agent then creates "
           "them again on the empty board, where MIG is on. Slurm drains a node that has fewer "
           "GPUs than it is configured with.")


def _do(act: ActionExecution, setting: MigLayout) -> Applied:
    limits, uuid = act.context.limits, setting.gpu_uuid
    preview = mig_preview(act.context, setting,
                          act.context.tasks.find(setting.gpu_uuid))
    if preview.plan is None:
        assert preview.refusal is not None
        raise ActionRefusedError(preview.refusal)
    former, record = _begin(act, setting, preview)
    trouble = _carry_out(act, preview)
    act.report("reading the board again")
    now = limits.applier.mig(uuid)
    if _is_as_wanted(now, preview):
        words = f"the driver reports {mig_layouts.words(now)}"
        stored = None if not preview.plan.layout else replace(record, state="in_force", words=words)
        return True, True, words + _end(act, record, stored)
    why = trouble or now.trouble or "the driver said yes, and it reads back otherwise"
    return _undo(act, preview, former, record, now, why)


def _carry_out(act: ActionExecution, preview: MigPreview) -> str:
    """Carry out the plan: on before there can be instances; off when there is none any more."""
    assert preview.plan is not None
    applier, uuid = act.context.limits.applier, preview.board.uuid
    if preview.mode is True and (trouble := _switch(act, uuid, True)):
        return trouble
    act.report("destroying and creating instances")
    trouble = mig_layouts.carry_out(applier, preview.board, preview.plan)
    if preview.mode is False and not trouble:
        return _switch(act, uuid, False)
    return trouble


def _switch(act: ActionExecution, uuid: str, is_on: bool) -> str:
    """Switch MIG. Nobody may have the board open, and every reader of this node has."""
    context = act.context
    facts, module = context.boards.facts_and_module(context.tasks.recent, uuid)
    act.report("waiting until the readers of this node have released the driver")
    source, boards = context.tasks.source, context.boards
    with quiet(boards.data, vendor_of(uuid), lambda: (
            bool(source.readers_of(uuid)) or boards.has_readers(uuid))) as is_quiet:
        if not is_quiet:
            return "a reading process of gpudeck did not release the driver"
        holders = module.holders(facts)
        if holders is None:
            return "what else has the board open cannot be seen with these rights"
        if holders:
            return f"it is open for {listed([*holders])}; stop these first"
        act.report(f"switching MIG {'on' if is_on else 'off'}")
        trouble = context.limits.applier.set_mig_mode(uuid, is_on)
    return f"MIG was not switched {'on' if is_on else 'off'}: {trouble}" if trouble else ""


def _is_as_wanted(now: MigBoard, preview: MigPreview) -> bool:
    return (preview.plan is not None and not now.trouble and not now.is_pending
            and now.is_on == (not _is_off_after(preview))
            and mig_layouts.is_there(now, preview.plan.layout))


def _begin(act: ActionExecution, setting: MigLayout, preview: MigPreview
           ) -> tuple[ManagedMigLayout | None, ManagedMigLayout]:
    """Record the layout on disk before anything is touched. Raises ActionRefusedError."""
    assert preview.plan is not None
    layouts, before = act.context.limits.layouts, mig_layouts.words(preview.board)
    layout = OFF if _is_off_after(preview) else wish_words(
        mig_layouts.profile_counts(preview.plan.layout), preview.board.profiles)[:128]
    record = ManagedMigLayout(
        setting.gpu_uuid, layout, preview.plan.layout, before, act.command.asker.name,
        act.command.reason, time.time(), "applying", f"from {before}")
    try:
        former = layouts.of(setting.gpu_uuid)
        layouts.keep(record)
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    return former, record


def _undo(act: ActionExecution, preview: MigPreview, former: ManagedMigLayout | None,
          record: ManagedMigLayout, now: MigBoard, why: str) -> Applied:
    """Go back to what was there, by the same steps; report what cannot be restored."""
    limits, before = act.context.limits, mig_layouts.present(preview.board)
    act.report("going back to the layout of before")
    back = None
    if not now.trouble:
        try:
            back = MigPreview(now, plan(now.profiles, mig_layouts.present(now),
                                        mig_layouts.profile_counts(before), preview.in_use),
                              preview.in_use, None, _new_mode(now, preview.board.is_on))
            _carry_out(act, back)
            now = limits.applier.mig(record.gpu_uuid)
        except NoLayoutError:
            back = None
    if back is not None and _is_as_wanted(now, back):
        restored = former if former is not None and former.state != "applying" else None
        return True, False, (f"{why}; gone back to {mig_layouts.words(now)}"
                             + _end(act, record, restored))[:1_024]
    half = mig_layouts.way_back(record, now, why)
    return True, False, (half.words + _end(act, record, half))[:1_024]


def _end(act: ActionExecution, record: ManagedMigLayout, now: ManagedMigLayout | None) -> str:
    """Store the record `now`; None: nothing is to be held any more. Return words of failure."""
    layouts = act.context.limits.layouts
    try:
        if now is None:
            layouts.forget(record)
        else:
            layouts.keep(now)
    except JournalError as why:
        return f"; it could not be recorded ({why})"
    return ""


MIG_LAYOUT = SettingKind(MigLayout, _flaws, _changes, _warnings, _do)
