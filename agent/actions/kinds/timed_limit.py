"""What power caps and clock locks share: a limit of a GPU for a time, undone at its end."""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from gpudeck.actions import Refusal
from gpudeck.limits import ClockLock, PowerCap, TimedLimit

from ...journal.store import JournalError
from ...limits.apply import UNSURE, apply, clock_now, judged_now
from ...readings import GpuLimits
from .execution import ActionExecution, ActionRefusedError
from .setting_kind import Applied, GpuPreview, listed, many, not_taken


def begin(act: ActionExecution, setting: PowerCap | ClockLock, what: Literal["power", "clocks"],
          wanted: tuple[float, ...]) -> Applied:
    """On disk before it is set, so that no limit is ever left without its end."""
    applier, store = act.context.limits.applier, act.context.limits.timed
    found = applier.read([setting.gpu_uuid])[setting.gpu_uuid]
    try:
        former, limit = store.all(), _new_limit(act, setting, what, wanted, found)
        store.begin(limit)
        limit = next(each for each in store.all() if each.lease_id == limit.lease_id)
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
               what: Literal["power", "clocks"], wanted: tuple[float, ...], found: GpuLimits
               ) -> TimedLimit:
    clock = clock_now(act.context.node.boot_id)
    before = (found.power_w,) if what == "power" else found.locked_mhz
    return TimedLimit(
        act.command.command_id, setting.gpu_uuid, what, wanted,
        tuple(each for each in before or () if each is not None), act.command.asker.name,
        act.command.reason, clock.wall, clock.wall + setting.lease_s, clock.boot_id,
        clock.boottime_s + setting.lease_s, "beginning")


def slows_others(_setting: PowerCap | ClockLock, preview: GpuPreview) -> Iterator[str]:
    owners = listed(sorted({each.user or "owner unknown" for each in preview.bystanders}))
    if preview.bystanders:
        yield (f"It slows the whole GPU: {many(len(preview.bystanders), 'task')} on it, of "
               f"{owners}.")


def power_words(limits: GpuLimits) -> str:
    return "not known" if limits.power_w is None else f"{limits.power_w:.0f} W"


def lock_words(limits: GpuLimits) -> str:
    if limits.locked_mhz is not None:
        return "{:.0f} to {:.0f} MHz".format(*limits.locked_mhz)
    return "none" if limits.tells_lock else "not known: NVML cannot read a lock back"


def span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
