"""Limits of GPU memory for control groups: which are set, and what to do about each, from what was
read. Pure.

What somebody else has set, or taken away, is shown as drift and left alone, also at the end. What
a reloaded driver has forgotten is set again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from gpudeck.contract.limits import GroupMemoryLimit

from ..readings import GroupMemory

MEBIBYTE, GIBIBYTE = 2**20, 2**30
NEAR_BYTES = MEBIBYTE
HOLDS_AGENT = ("gpudeck's agent runs in this control group: the driver would then report the limit "
               "as the memory of the GPU")
NESTED = ("a control group around it is limited already, and limits do not nest on this machine "
          "(no controller dmem): this one would replace that one")
REMOVED = "somebody has removed it since"
GONE = "its control group has ended, and its limit with it"
NOT_WANTED = "nothing needs it any more"

MemoryKey = tuple[str, str]  # GPU and control group


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """Limit that a lease or a quota wants. `group`: a path below the root of cgroup v2."""

    gpu_uuid: str
    group: str
    limit_bytes: float
    holder: str

    @property
    def key(self) -> MemoryKey:
        return self.gpu_uuid, self.group


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """Control groups of this machine. `own`: that of the agent. `nests`: a limit holds for the
    groups inside too, whatever limit these have."""

    own: str
    nests: bool


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """Step to take. `limit`: as it is now known to be. `is_over`: nothing wants it any more."""

    do: Literal["keep", "set", "clear", "forget"]
    limit: GroupMemoryLimit
    why: str = ""
    is_over: bool = False


def is_inside(group: str, around: str) -> bool:
    return group == around or group.startswith(f"{around.rstrip('/')}/")


def agreed(targets: Iterable[MemoryTarget], groups: ControlGroups
           ) -> tuple[dict[MemoryKey, MemoryTarget], dict[MemoryKey, str]]:
    """Return the strictest target of each GPU and group, in whole MiB; and of those that may not
    be set, why."""
    strictest: dict[MemoryKey, MemoryTarget] = {}
    for target in sorted(targets, key=lambda target: (-target.limit_bytes, target.holder)):
        most = max(int(target.limit_bytes) // MEBIBYTE, 1) * MEBIBYTE
        strictest[target.key] = MemoryTarget(target.gpu_uuid, target.group, most, target.holder)
    return strictest, {key: why for key in strictest
                       if (why := _why_not(key, strictest, groups))}


def _why_not(key: MemoryKey, targets: Mapping[MemoryKey, MemoryTarget], groups: ControlGroups
             ) -> str:
    uuid, group = key
    if is_inside(groups.own, group):
        return HOLDS_AGENT
    if not groups.nests and any(other == uuid and around != group and is_inside(group, around)
                                for other, around in targets):
        return NESTED
    return ""


def step(limit: GroupMemoryLimit, target: MemoryTarget | None, refusal: str, current: GroupMemory,
         is_fresh: bool) -> MemoryStep:
    """Decide what to do about a limit that is kept. `target` None: nothing wants it any more.
    `refusal`: why it may not be set. `is_fresh`: the driver or this agent has restarted since."""
    if current.trouble:
        return MemoryStep("keep", _unread(limit, current.trouble))
    if target is None or refusal:
        return _not_to_be(limit, target is None, refusal or NOT_WANTED, current)
    updated = replace(limit, limit_bytes=target.limit_bytes, holder=target.holder)
    is_changed = target.limit_bytes != limit.limit_bytes
    if is_ours(limit, current):
        now = judged(updated, current)
        return MemoryStep("keep" if now.state == "in_force" and not is_changed else "set", now)
    was_set = limit.set_bytes is not None
    is_looser = current.is_inherited and (current.hard_bytes or 0) > target.limit_bytes
    if current.hard_bytes is not None and not is_looser:
        return MemoryStep("keep", replace(
            updated, state="drifted" if was_set else "not_in_force", words=_foreign_words(current)))
    if was_set and not is_changed and (not is_fresh or limit.state == "drifted"):
        return MemoryStep("keep", replace(updated, state="drifted", words=REMOVED))
    return MemoryStep("set", replace(updated, set_bytes=None))


def _unread(limit: GroupMemoryLimit, trouble: str) -> GroupMemoryLimit:
    if limit.state == "beginning":  # whether it was set is to be read still
        return replace(limit, words=trouble)
    return replace(limit, words=trouble,
                   state="not_in_force" if limit.set_bytes is None else "unknown")


def _not_to_be(limit: GroupMemoryLimit, is_over: bool, why: str, current: GroupMemory
               ) -> MemoryStep:
    if is_ours(limit, current):
        return MemoryStep("clear", limit, why, is_over)
    if is_over:
        return MemoryStep("forget", limit, why, is_over)
    return MemoryStep("keep", cleared(limit, why))


def cleared(limit: GroupMemoryLimit, why: str) -> GroupMemoryLimit:
    return replace(limit, set_bytes=None, state="not_in_force", words=why)


def is_ours(limit: GroupMemoryLimit, current: GroupMemory) -> bool:
    """Return whether the limit that is there was set here. Where it was begun and the outcome was
    never recorded, it is: nobody else's was there before."""
    if current.hard_bytes is None:
        return False
    if current.hard_bytes == limit.set_bytes:
        return True
    return limit.state == "beginning" and (
        not current.is_inherited or abs(current.hard_bytes - limit.limit_bytes) <= NEAR_BYTES)


def _foreign_words(current: GroupMemory) -> str:
    whose = "a control group around it has" if current.is_inherited else "somebody else has set"
    return f"{whose} a limit of {gibibytes(current.hard_bytes or 0)}, which is left alone"


def judged(limit: GroupMemoryLimit, current: GroupMemory) -> GroupMemoryLimit:
    """Return the limit with its proof, as it was read back after it had been set."""
    if current.trouble:
        return _unread(limit, current.trouble)
    if current.hard_bytes is None:
        return replace(limit, set_bytes=None, state="not_in_force",
                       words="the driver accepted it and reports no limit")
    words = f"the driver reports {gibibytes(current.hard_bytes)}"
    is_held = current.hard_bytes <= limit.limit_bytes + NEAR_BYTES
    return replace(limit, set_bytes=current.hard_bytes,
                   state="in_force" if is_held else "not_in_force",
                   words=words if is_held else f"{words}, more than was set")


def gibibytes(size: float) -> str:
    return f"{size / GIBIBYTE:.1f} GiB"
