"""Limits of GPUs for a time: what to do about each, from what was read. Pure.

A reloaded driver has lost its limits (pitfalls.md A.5): they are set again.
What somebody else has set meanwhile is shown as drift and left alone, also at the end: it is not
ours to take back.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from gpudeck.contract.limits import LeaseState, TimedLimit

from ..readings import GpuLimits

NEAR_W = 1.0  # drivers keep milliwatts, people say watts
NEAR_MHZ = 20.0  # a board has its clocks in steps of 15 MHz or less
BUSY_PCT = 5.0


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time now. Wall clocks are set; the boot clock goes on, also during suspend."""

    wall: float
    boot_id: str
    boottime_s: float


@dataclass(frozen=True, slots=True)
class LimitStep:
    """Step to take. `undo`: set what was before, and forget it. `forget`: nothing is to be set.
    `limit`: as it is now known to be."""

    do: Literal["keep", "apply", "undo", "forget"]
    limit: TimedLimit
    why: str = ""


def left_s(limit: TimedLimit, clock: NodeTime) -> float:
    """Return the seconds left by the boot clock, which nobody sets; after a reboot by wall time."""
    if limit.boot_id == clock.boot_id:
        return limit.ends_boottime_s - clock.boottime_s
    return min(limit.ends_at - clock.wall, limit.ends_at - limit.began_at)


def step(limit: TimedLimit, current: GpuLimits | None, clock: NodeTime, is_fresh: bool
         ) -> LimitStep:
    """Decide what to do about a limit. `is_fresh`: the driver or this agent has restarted since."""
    is_over = left_s(limit, clock) <= 0
    now = judged(limit, current, clock.wall)
    if limit.state == "beginning":
        # Whoever began it has ended in the middle: its outcome is unknown, and so it is taken back.
        return LimitStep("undo", now, "it was begun and its outcome was never recorded")
    if is_fresh and not is_over and is_silent_lock(now, current):
        return LimitStep("apply", now)
    if now.state == "unknown":
        return LimitStep("keep", now)  # also at its end: to undo what cannot be read is to guess
    if is_over and _is_not_ours(now, current):
        return LimitStep("forget", now, f"its time is over; {now.words}, and stays that way")
    if is_over:
        return LimitStep("undo", now, "its time is over")
    if now.state in ("drifted", "not_in_force") and is_fresh:
        # What a driver has forgotten nobody has changed.
        return LimitStep("apply", judged(replace(limit, state="not_in_force"), current, clock.wall))
    return LimitStep("keep", now)


def _is_not_ours(now: TimedLimit, current: GpuLimits | None) -> bool:
    """Return whether another limit is read there. A clock above a lock proves less: the lock may be
    set all the same."""
    tells = now.what == "power" or (current is not None and current.tells_lock)
    return now.state == "drifted" or (now.state == "not_in_force" and tells)


def is_silent_lock(limit: TimedLimit, current: GpuLimits | None) -> bool:
    """Return whether it is a clock lock that no driver reports: waiting to see it gone would be
    waiting for ever, and locking once more changes nothing where it is still locked."""
    return (limit.what == "clocks" and limit.state == "unknown" and current is not None
            and is_read(current) and not current.tells_lock)


def is_read(current: GpuLimits | None) -> bool:
    return current is not None and not current.trouble


def not_read(current: GpuLimits | None) -> str:
    return ("the GPU is not there now" if current is None else current.trouble)[:1_024]


def judged(limit: TimedLimit, current: GpuLimits | None, wall: float) -> TimedLimit:
    """Return the timed limit with its proof."""
    if current is None or current.trouble:
        return replace(limit, state="unknown", words=not_read(current))
    judge = _power if limit.what == "power" else _clocks
    return replace(judge(limit, current), seen_at=wall)


def _power(limit: TimedLimit, current: GpuLimits) -> TimedLimit:
    target_w, power_w = limit.wanted[0], current.power_w
    if power_w is None:
        return replace(limit, state="unknown", seen=None,
                       words="the driver does not say the limit that is set")
    if abs(power_w - target_w) < NEAR_W:
        return replace(limit, state="in_force", seen=power_w,
                       words=f"the driver reports {power_w:.0f} W")
    if limit.state == "not_in_force":
        return replace(limit, seen=power_w, words=f"the driver reports {power_w:.0f} W")
    return replace(limit, state="drifted", seen=power_w,
                   words=f"somebody has set {power_w:.0f} W since")


def _clocks(limit: TimedLimit, current: GpuLimits) -> TimedLimit:
    low, high = limit.wanted
    if current.tells_lock:
        is_as_set = current.locked_mhz == (low, high)
        was = "nothing" if current.locked_mhz is None else "{:.0f} to {:.0f} MHz".format(
            *current.locked_mhz)
        return replace(limit, state="in_force" if is_as_set else _away(limit),
                       seen=current.sm_clock_mhz, words=f"the driver reports {was} is locked")
    clock = current.sm_clock_mhz
    if clock is None:
        return replace(limit, state="unknown", seen=None,
                       words="the driver reports neither the lock nor the clock")
    sentence = f"NVML cannot read a lock back; the SM clock is {clock:.0f} MHz"
    if clock > high + NEAR_MHZ:
        return replace(limit, state=_away(limit), seen=clock, words=f"{sentence}, above the lock")
    if current.util_pct is not None and current.util_pct >= BUSY_PCT:
        return replace(limit, state="in_force", seen=clock, words=f"{sentence} at work, within it")
    return replace(limit, state="unknown", seen=clock,
                   words=f"{sentence} at rest, which proves nothing")


def _away(limit: TimedLimit) -> LeaseState:
    """Return the state of a limit that is not as it was set; nobody changed one never in force."""
    return "not_in_force" if limit.state == "not_in_force" else "drifted"


def same_limit(one: TimedLimit, gpu_uuid: str, what: str) -> bool:
    return one.gpu_uuid == gpu_uuid and one.what == what


def with_new(limits: Iterable[TimedLimit], new: TimedLimit) -> tuple[TimedLimit, ...]:
    """Add a limit; one on the same limit is replaced, and passes its `before` on."""
    remaining, before = [], new.before
    for limit in limits:
        if same_limit(limit, new.gpu_uuid, new.what):
            before = limit.before
        else:
            remaining.append(limit)
    return (*remaining, replace(new, before=before))


