"""Limits of GPUs for a time: what to do about each, from what was read. Pure.

A reloaded driver has lost its limits (pitfalls.md A.5): they are set again.
What somebody else has set meanwhile is shown as drift and left alone, also at the end: it is not
ours to take back.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from gpudeck.limits import LeaseState, TimedLimit

from ..readings import GpuLimits

NEAR_W = 1.0  # drivers keep milliwatts, people say watts
NEAR_MHZ = 20.0  # a board has its clocks in steps of 15 MHz or less
BUSY_PCT = 5.0


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Now. Wall clocks are set; that of the boot goes on, also during suspend."""

    wall: float
    boot_id: str
    boottime_s: float


@dataclass(frozen=True, slots=True)
class LimitStep:
    """`undo`: set what was before, and forget it. `forget`: nothing is to be set. `limit`: as it is
    now known to be."""

    do: Literal["keep", "apply", "undo", "forget"]
    limit: TimedLimit
    why: str = ""


def left_s(limit: TimedLimit, clock: NodeTime) -> float:
    """By the clock that nobody sets, of the same boot; after another one only the wall is left."""
    if limit.boot_id == clock.boot_id:
        return limit.ends_boottime_s - clock.boottime_s
    return min(limit.ends_at - clock.wall, limit.ends_at - limit.began_at)


def step(limit: TimedLimit, found: GpuLimits | None, clock: NodeTime, is_fresh: bool) -> LimitStep:
    """`is_fresh`: the driver, or this agent, was restarted since the last time."""
    is_over = left_s(limit, clock) <= 0
    now = judged(limit, found, clock.wall)
    if limit.state == "beginning":
        # Whoever began it has ended in the middle: its outcome is unknown, and so it is taken back.
        return LimitStep("undo", now, "it was begun and its outcome was never recorded")
    if is_fresh and not is_over and _is_silent_lock(now, found):
        return LimitStep("apply", now)
    if now.state == "unknown":
        return LimitStep("keep", now)  # also at its end: to undo what cannot be read is to guess
    if is_over and _is_not_ours(now, found):
        return LimitStep("forget", now, f"its time is over; {now.words}, and stays that way")
    if is_over:
        return LimitStep("undo", now, "its time is over")
    if now.state in ("drifted", "not_in_force") and is_fresh:
        # What a driver has forgotten nobody has changed.
        return LimitStep("apply", judged(replace(limit, state="not_in_force"), found, clock.wall))
    return LimitStep("keep", now)


def _is_not_ours(now: TimedLimit, found: GpuLimits | None) -> bool:
    """What is read there is another limit. That a clock is above a lock tells less: the lock may
    be set all the same."""
    tells = now.what == "power" or (found is not None and found.tells_lock)
    return now.state == "drifted" or (now.state == "not_in_force" and tells)


def _is_silent_lock(limit: TimedLimit, found: GpuLimits | None) -> bool:
    """No driver tells of it, so that waiting to see it gone is waiting for ever; to lock it once
    more changes nothing where it is still locked."""
    return (limit.what == "clocks" and limit.state == "unknown" and found is not None
            and is_read(found) and not found.tells_lock)


def is_read(found: GpuLimits | None) -> bool:
    return found is not None and not found.trouble


def not_read(found: GpuLimits | None) -> str:
    return ("the GPU is not there now" if found is None else found.trouble)[:1_024]


def judged(limit: TimedLimit, found: GpuLimits | None, wall: float) -> TimedLimit:
    """The timed limit with its proof."""
    if found is None or found.trouble:
        return replace(limit, state="unknown", words=not_read(found))
    judge = _power if limit.what == "power" else _clocks
    return replace(judge(limit, found), seen_at=wall)


def _power(limit: TimedLimit, found: GpuLimits) -> TimedLimit:
    wanted, seen = limit.wanted[0], found.power_w
    if seen is None:
        return replace(limit, state="unknown", seen=None,
                       words="the driver does not say the limit that is set")
    if abs(seen - wanted) < NEAR_W:
        return replace(limit, state="in_force", seen=seen, words=f"the driver reports {seen:.0f} W")
    if limit.state == "not_in_force":
        return replace(limit, seen=seen, words=f"the driver reports {seen:.0f} W")
    return replace(limit, state="drifted", seen=seen, words=f"somebody has set {seen:.0f} W since")


def _clocks(limit: TimedLimit, found: GpuLimits) -> TimedLimit:
    low, high = limit.wanted
    if found.tells_lock:
        is_so = found.locked_mhz == (low, high)
        was = "nothing" if found.locked_mhz is None else "{:.0f} to {:.0f} MHz".format(
            *found.locked_mhz)
        return replace(limit, state="in_force" if is_so else _away(limit), seen=found.sm_clock_mhz,
                       words=f"the driver reports {was} is locked")
    clock = found.sm_clock_mhz
    if clock is None:
        return replace(limit, state="unknown", seen=None,
                       words="the driver reports neither the lock nor the clock")
    told = f"NVML cannot read a lock back; the SM clock is {clock:.0f} MHz"
    if clock > high + NEAR_MHZ:
        return replace(limit, state=_away(limit), seen=clock, words=f"{told}, above the lock")
    if found.util_pct is not None and found.util_pct >= BUSY_PCT:
        return replace(limit, state="in_force", seen=clock, words=f"{told} at work, within it")
    return replace(limit, state="unknown", seen=clock,
                   words=f"{told} at rest, which proves nothing")


def _away(limit: TimedLimit) -> LeaseState:
    """Of one that is not as it was set: what never was in force nobody has changed."""
    return "not_in_force" if limit.state == "not_in_force" else "drifted"


def same_limit(one: TimedLimit, gpu_uuid: str, what: str) -> bool:
    return one.gpu_uuid == gpu_uuid and one.what == what


def with_new(limits: Iterable[TimedLimit], new: TimedLimit) -> tuple[TimedLimit, ...]:
    """It takes the place of one on the same limit, and what was before that one stays `before`."""
    kept, before = [], new.before
    for limit in limits:
        if same_limit(limit, new.gpu_uuid, new.what):
            before = limit.before
        else:
            kept.append(limit)
    return (*kept, replace(new, before=before))


