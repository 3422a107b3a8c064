"""Limits a GPU's power or locks its clocks for a time, and undoes either before its end."""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import ClockLock, LimitRelease, PowerCap, SettingChange, TimedLimit

from ...journal.store import JournalError
from ...limits import mps_shares
from ...limits.apply import UNSURE, apply, clock_now, judged_now, not_undone, undo
from ...limits.stores import LimitStores
from ...limits.timed_limits import same_limit
from ...readings import GpuLimits
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import Applied, GpuPreview, SettingKind, listed, many, not_taken, span


def _cap_flaws(setting: PowerCap, preview: GpuPreview) -> Iterator[Refusal]:
    limits = preview.limits
    low, high = limits.power_min_w, limits.power_max_w
    if low is None or high is None or limits.power_w is None:
        yield Refusal("setting", "this GPU does not report its range of power limits")
    elif not low <= setting.watts <= high:
        yield Refusal("setting", f"this GPU takes {low:.0f} to {high:.0f} W, not {setting.watts} W")


def _cap_changes(setting: PowerCap, preview: GpuPreview) -> tuple[SettingChange, ...]:
    return (SettingChange("power limit", _power_words(preview.limits),
                          f"{setting.watts} W for {span(setting.lease_s)}"),)


def _cap_do(act: ActionExecution, setting: PowerCap) -> Applied:
    return begin(act, setting, "power", (float(setting.watts),))


def _lock_flaws(setting: ClockLock, preview: GpuPreview) -> Iterator[Refusal]:
    top = preview.limits.clock_max_mhz
    if setting.min_mhz > setting.max_mhz:
        yield Refusal("setting", "a lock goes from a lower clock to a higher one")
    elif top is not None and setting.max_mhz > top:
        yield Refusal("setting", f"this GPU's clock goes to {top:.0f} MHz, not "
                                 f"{setting.max_mhz} MHz")


def _lock_changes(setting: ClockLock, preview: GpuPreview) -> tuple[SettingChange, ...]:
    return (SettingChange("clock lock", _lock_words(preview.limits),
                          f"{setting.min_mhz} to {setting.max_mhz} MHz for "
                          f"{span(setting.lease_s)}"),)


def _lock_warnings(setting: ClockLock, preview: GpuPreview) -> Iterator[str]:
    yield from _slows_others(setting, preview)
    yield "NVML cannot read a lock back: that it is in force is seen by the clock alone."


def _lock_do(act: ActionExecution, setting: ClockLock) -> Applied:
    return begin(act, setting, "clocks", (float(setting.min_mhz), float(setting.max_mhz)))


def _release_flaws(setting: LimitRelease, preview: GpuPreview) -> Iterator[Refusal]:
    try:
        if _limit(preview.context.limits, setting) is None:
            yield Refusal("setting", "gpudeck has set no such limit on this GPU; a limit set by "
                                     "somebody else is theirs to undo")
    except JournalError as why:
        yield Refusal("journal", str(why))


def _release_changes(setting: LimitRelease, preview: GpuPreview) -> tuple[SettingChange, ...]:
    if setting.what == "clocks":
        return (SettingChange("clock lock", _lock_words(preview.limits),
                              "none: the driver chooses"),)
    try:
        limit = _limit(preview.context.limits, setting)
    except JournalError:
        limit = None
    before = f"{limit.before[0]:.0f}" if limit is not None and limit.before else "unknown"
    if setting.what == "mps_share":
        now = "not known" if limit is None else f"{limit.wanted[0]:.0f} %"
        return (SettingChange("MPS share of next clients", now, f"{before} %"),)
    return (SettingChange("power limit", _power_words(preview.limits), f"{before} W"),)


def _release_do(act: ActionExecution, setting: LimitRelease) -> Applied:
    limits = act.context.limits
    try:
        limit = _limit(limits, setting)
        if limit is None:
            raise ActionRefusedError(Refusal("setting",
                                             "gpudeck no longer has such a limit on this GPU"))
        if act.command.asker.kind == "rule" and limit.by != act.command.asker.name:
            raise ActionRefusedError(Refusal("rules", f"{limit.by} has set this limit; a rule "
                                                      "takes back its own alone"))
        if limit.what == "mps_share":
            if trouble := mps_shares.undo(limits.mps, limit):
                return False, False, trouble
        elif trouble := undo(limits.applier, limit):
            return False, False, trouble
        elif wrong := not_undone(limits.applier, limit):
            return True, False, f"applied, not in force: {wrong}"
        limits.timed.end(limit, f"released by {act.command.asker.name}")
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    return True, True, "the previous value is restored"


def _limit(limits: LimitStores, setting: LimitRelease) -> TimedLimit | None:
    """Return the limit that gpudeck has set there, or None. Raises JournalError."""
    return next((limit for limit in limits.timed.all()
                 if same_limit(limit, setting.gpu_uuid, setting.what)), None)


def begin(act: ActionExecution, setting: PowerCap | ClockLock, what: Literal["power", "clocks"],
          values: tuple[float, ...]) -> Applied:
    """Record the limit on disk before it is set, so that none is ever left without its end."""
    applier, store = act.context.limits.applier, act.context.limits.timed
    reading = applier.read([setting.gpu_uuid])[setting.gpu_uuid]
    try:
        former, limit = store.all(), _new_limit(act, setting, what, values, reading)
        store.begin(limit)
        limit = next(stored for stored in store.all() if same_limit(stored, limit.gpu_uuid, what))
        trouble = apply(applier, limit)
        if trouble and not trouble.startswith(UNSURE):
            store.put_back(limit, former)
            raise ActionRefusedError(not_taken(trouble))
        # Whatever differs now was never in force; nobody has changed it since.
        now = judged_now(applier, replace(limit, state="not_in_force"))
        store.note(now)  # also where the driver fell silent: what may be set must have its end
    except JournalError as why:
        raise ActionRefusedError(Refusal("journal", str(why))) from why
    if trouble:
        return False, now.state == "in_force", f"{trouble}. {now.words}"
    return True, {"in_force": True, "unknown": None}.get(now.state, False), now.words


def _new_limit(act: ActionExecution, setting: PowerCap | ClockLock,
               what: Literal["power", "clocks"], values: tuple[float, ...], reading: GpuLimits
               ) -> TimedLimit:
    clock = clock_now(act.context.node.boot_id)
    before = (reading.power_w,) if what == "power" else reading.locked_mhz
    return TimedLimit(
        act.command.command_id, setting.gpu_uuid, what, values,
        tuple(value for value in before or () if value is not None), act.command.asker.name,
        act.command.reason, clock.wall, clock.wall + setting.lease_s, clock.boot_id,
        clock.boottime_s + setting.lease_s, "beginning")


def _slows_others(_setting: PowerCap | ClockLock, preview: GpuPreview) -> Iterator[str]:
    owners = listed(sorted({bystander.user or "owner unknown" for bystander in preview.bystanders}))
    if preview.bystanders:
        yield (f"It slows the whole GPU: {many(len(preview.bystanders), 'task')} on it, of "
               f"{owners}.")


def _power_words(limits: GpuLimits) -> str:
    return "not known" if limits.power_w is None else f"{limits.power_w:.0f} W"


def _lock_words(limits: GpuLimits) -> str:
    if limits.locked_mhz is not None:
        return "{:.0f} to {:.0f} MHz".format(*limits.locked_mhz)
    return "none" if limits.tells_lock else "not known: NVML cannot read a lock back"


POWER_CAP = SettingKind(PowerCap, _cap_flaws, _cap_changes, _slows_others, _cap_do)
CLOCK_LOCK = SettingKind(ClockLock, _lock_flaws, _lock_changes, _lock_warnings, _lock_do)
RELEASE_LIMIT = SettingKind(LimitRelease, _release_flaws, _release_changes,
                            lambda _setting, _preview: (), _release_do)
