"""Sets a timed limit, takes it back, and reads what the driver then says. Blocks."""

import time

from gpudeck.limits import TimedLimit

from .apply import LimitApplier
from .timed_limits import NodeTime, judged

READ_BACK_WITHIN_S = 2.0
READ_EVERY_S = 0.1


def clock_now(boot_id: str) -> NodeTime:
    return NodeTime(time.time(), boot_id, time.clock_gettime(time.CLOCK_BOOTTIME))


def apply(applier: LimitApplier, limit: TimedLimit) -> str:
    """"": taken without a word, which proves nothing."""
    if limit.what == "power":
        return applier.set_power(limit.gpu_uuid, limit.wanted[0])
    return applier.lock_clocks(limit.gpu_uuid, *limit.wanted)


def undo(applier: LimitApplier, limit: TimedLimit) -> str:
    """Back to what was before it, or else to the board's own."""
    if limit.what == "clocks":
        return (applier.lock_clocks(limit.gpu_uuid, *limit.before) if limit.before
                else applier.unlock_clocks(limit.gpu_uuid))
    found = applier.read([limit.gpu_uuid])[limit.gpu_uuid]
    watts = limit.before[0] if limit.before else found.power_default_w
    if watts is None:
        return "neither what was before nor the board's own limit is known"
    return applier.set_power(limit.gpu_uuid, watts)


def not_undone(applier: LimitApplier, limit: TimedLimit) -> str:
    """Why it is still set; "": it is not, or that cannot be read."""
    found = applier.read([limit.gpu_uuid])[limit.gpu_uuid]
    if found.trouble:
        return found.trouble
    if limit.what == "power" and limit.before and found.power_w is not None and (
            abs(found.power_w - limit.before[0]) >= 1.0):
        return f"the driver says {found.power_w:.0f} W, not {limit.before[0]:.0f} W"
    if limit.what == "clocks" and found.tells_lock and found.locked_mhz != (limit.before or None):
        return "the driver still says that clocks are locked"
    return ""


def judged_now(applier: LimitApplier, limit: TimedLimit) -> TimedLimit:
    """A driver takes a moment to say what it was told."""
    until = time.monotonic() + READ_BACK_WITHIN_S
    while True:
        found = applier.read([limit.gpu_uuid]).get(limit.gpu_uuid)
        now = judged(limit, found, time.time())
        if now.state in ("in_force", "unknown") or time.monotonic() > until:
            return now
        time.sleep(READ_EVERY_S)
