"""Choice of how a GPU may be shared, by what was measured of it: alone, MPS, time slices or MIG.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpudeck.mig.boards import BOARDS, MigProfile, board_of

from .week import MeasuredWeek

Method = Literal["alone", "mps", "time slices", "mig"]
BUSY_PCT = 80.0
BANDWIDTH_PCT = 60.0
DUTY_LEAST_PCT = 5.0  # an hour below this is a gap
DUTY_MOST = 0.2
MEMORY_MARGIN = 1.15

# Speed that both of two jobs keep, by joint utilization: Lucid's 1,388 measured pairs. Share of
# pairs in which the slower one kept 90 %, and the 10th percentile of its speed.
PAIRS = ((40.0, 93, 0.91), (60.0, 69, 0.85), (80.0, 62, 0.80), (95.0, 35, 0.64),
         (float("inf"), 9, 0.56))


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """Load of a GPU: 95th percentiles of the hours in which it was held. `sm` and `bandwidth` None:
    not known. `duty`: share of those hours that were no gap."""

    util: float
    sm: float | None
    bandwidth: float | None
    memory: float
    duty: float

    @property
    def load(self) -> float:
        """SM activity where it is known; else utilization, which is never less."""
        return self.util if self.sm is None else self.sm


@dataclass(frozen=True, slots=True)
class SharingChoice:
    method: Method
    reason: str


def profile(week: MeasuredWeek, gpu: int) -> LoadProfile | None:
    """Return the load of a GPU; None: not measured enough."""
    if not week.is_measured(gpu, "util", "memory"):
        return None
    held = week.held[:, gpu] > 0
    return LoadProfile(
        week.high("util", gpu), week.high("sm", gpu) if week.is_measured(gpu, "sm") else None,
        week.high("bandwidth", gpu) if week.is_measured(gpu, "bandwidth") else None,
        week.high("memory", gpu), float(np.nanmean(week.util[held, gpu] >= DUTY_LEAST_PCT)))


def choose(of: LoadProfile, model: str, mem_bytes: float, wants_isolation: bool) -> SharingChoice:
    """Choose how to share. `wants_isolation`: it would be shared with another owner."""
    if of.load > BUSY_PCT:
        return SharingChoice("alone", f"its load is up to {of.load:.0f} %, and there is no room")
    if of.bandwidth is not None and of.bandwidth > BANDWIDTH_PCT:
        return SharingChoice("alone", f"its memory bandwidth is used up to {of.bandwidth:.0f} %: "
                                      "a job bound by it slows down next to any other")
    if of.memory * MEMORY_MARGIN > mem_bytes / 2:
        return SharingChoice("alone", "its memory leaves less than half of the board")
    board = board_of(model, mem_bytes) if wants_isolation else None
    if board is not None and (instance := mig_profile(of, mem_bytes, BOARDS[board])) is not None:
        return SharingChoice("mig", f"it fits an instance {instance.name}, and another owner must "
                                    "not be able to take it down")
    if wants_isolation:
        return SharingChoice("alone", "another owner's fault would take it down, and this board "
                                      "has no instance that fits")
    if of.duty < DUTY_MOST:
        return SharingChoice("time slices", f"it works in {of.duty:.0%} of its hours, with long "
                                            "gaps")
    if of.bandwidth is None:
        return SharingChoice("alone", "its memory bandwidth is not known: two that are bound by it "
                                      "may lose a third of their speed")
    return SharingChoice("mps", f"load up to {of.load:.0f} %, bandwidth up to {of.bandwidth:.0f} %")


def mig_profile(of: LoadProfile, mem_bytes: float, profiles: Sequence[MigProfile]
                ) -> MigProfile | None:
    """Return the smallest instance with room for its load, and for its memory with a margin; not
    the whole board."""
    slices = max(option.slices for option in profiles)
    size = max(option.size for option in profiles)
    return min((option for option in profiles if not option.has_media and option.slices < slices
                and of.load <= 100 * option.slices / slices
                and of.memory * MEMORY_MARGIN <= mem_bytes * option.size / size),
               key=lambda option: (option.size, option.slices), default=None)


def kept_speed(joint_pct: float) -> tuple[int, float]:
    """Return in how many of 100 pairs both kept 90 % of their speed, and what the slower one kept
    at the 10th percentile."""
    return next((share, speed) for most, share, speed in PAIRS if joint_pct < most)
