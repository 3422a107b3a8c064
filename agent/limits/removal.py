"""Timed limits when gpudeck is removed: each that is still as it was set is undone at once, because
nothing would undo it at its end."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from gpudeck.contract.limits import TimedLimit

from ..readings import GpuLimits
from . import mps_shares
from .apply import LimitApplier, clock_now, not_undone, undo
from .mps import LocalMpsDaemons
from .stores import TimedLimitStore
from .timed_limits import LimitStep, is_silent_lock, step

WORDS = {"power": "power cap", "clocks": "clock lock", "mps_share": "share of MPS"}


@dataclass(frozen=True, slots=True)
class TimedRemoval:
    """Machine that gpudeck leaves."""

    store: TimedLimitStore
    applier: LimitApplier
    mps: LocalMpsDaemons
    boot_id: str

    def undo_all(self) -> tuple[list[str], list[str]]:
        """Undo all timed limits; return a sentence for each that is undone or cannot be read, and
        one for each that stays. Raises JournalError."""
        lines, remaining = list[str](), list[str]()
        limits = self.store.all()
        uuids = sorted({limit.gpu_uuid for limit in limits if limit.what != "mps_share"})
        current = self.applier.read(uuids) if uuids else {}
        for limit in limits:
            name = f"the {WORDS[limit.what]} of {limit.gpu_uuid}"
            last = self._last_step(limit, current)
            if last.do == "keep":
                lines.append(f"{name} may still be in force: {last.limit.words}")
                continue
            trouble = self._undo(limit) if last.do == "undo" else ""
            if trouble:
                remaining.append(f"{name}, which gpudeck had set, is still in force: {trouble}")
                continue
            self.store.end(limit, "gpudeck is removed")
            lines.append(f"undid {name}, which gpudeck had set" if last.do == "undo" else
                         f"left {name} alone: {last.limit.words}")
        return lines, remaining

    def _last_step(self, limit: TimedLimit, current: Mapping[str, GpuLimits]) -> LimitStep:
        """Return the step that is due at the end of a limit. A lock that no driver reports is
        undone all the same: nobody would look again."""
        clock = clock_now(self.boot_id)
        if limit.what == "mps_share":
            return mps_shares.step(_over(limit), mps_shares.read(self.mps, limit), clock)
        limits = current.get(limit.gpu_uuid)
        last = step(_over(limit), limits, clock, is_fresh=False)
        return LimitStep("undo", last.limit) if is_silent_lock(last.limit, limits) else last

    def _undo(self, limit: TimedLimit) -> str:
        if limit.what == "mps_share":
            return mps_shares.undo(self.mps, limit)
        return undo(self.applier, limit) or not_undone(self.applier, limit)


def _over(limit: TimedLimit) -> TimedLimit:
    return replace(limit, ends_at=0.0, ends_boottime_s=0.0)
