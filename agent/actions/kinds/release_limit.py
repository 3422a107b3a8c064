"""Undoes a power cap or a clock lock before its end."""

from collections.abc import Iterator

from gpudeck.actions import Refusal
from gpudeck.limits import LimitRelease, SettingChange, TimedLimit

from ...journal.store import JournalError
from ...limits.apply import not_undone, undo
from ...limits.stores import LimitStores
from ...limits.timed_limits import same_limit
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import Applied, GpuPreview, SettingKind
from .timed_limit import lock_words, power_words


def flaws(setting: LimitRelease, preview: GpuPreview) -> Iterator[Refusal]:
    try:
        if _limit(preview.context.limits, setting) is None:
            yield Refusal("setting", "gpudeck holds no such limit on this GPU; what somebody else "
                                     "has set is theirs to take back")
    except JournalError as why:
        yield Refusal("journal", str(why))


def changes(setting: LimitRelease, preview: GpuPreview) -> tuple[SettingChange, ...]:
    if setting.what == "clocks":
        return (SettingChange("clock lock", lock_words(preview.limits),
                              "none: the driver chooses"),)
    try:
        limit = _limit(preview.context.limits, setting)
    except JournalError:
        limit = None
    before = f"{limit.before[0]:.0f}" if limit is not None and limit.before else "unknown"
    return (SettingChange("power limit", power_words(preview.limits), f"{before} W"),)


def do(act: ActionExecution, setting: LimitRelease) -> Applied:
    limits = act.context.limits
    try:
        limit = _limit(limits, setting)
        if limit is None:
            raise ActionRefusedError(Refusal("setting",
                                             "gpudeck holds no such limit on this GPU any more"))
        if trouble := undo(limits.applier, limit):
            return False, False, trouble
        if wrong := not_undone(limits.applier, limit):
            return True, False, f"applied, not in force: {wrong}"
        limits.timed.end(limit, f"released by {act.command.asker.name}")
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    return True, True, "what was before is set again"


def _limit(limits: LimitStores, setting: LimitRelease) -> TimedLimit | None:
    """Raises JournalError."""
    return next((each for each in limits.timed.all()
                 if same_limit(each, setting.gpu_uuid, setting.what)), None)


RELEASE_LIMIT = SettingKind(LimitRelease, flaws, changes, lambda _setting, _preview: (), do)
