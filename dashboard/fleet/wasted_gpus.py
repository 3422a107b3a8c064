"""GPUs that are wasted: a task holds memory on them, and for minutes nothing has run. Pure."""

from collections.abc import Iterable

import numpy as np

from gpudeck.metrics import HELD_AT_LEAST_BYTES, IDLE_AT_MOST_PCT, Absence

from .fleet import Fleet, GpuStatus
from .metric_table import Codes, Floats, Mask

WASTED_AFTER_S = 600.0


def note_idle(fleet: Fleet, mono: float) -> None:
    """Once a second. What is not read now is neither: it goes on as it was."""
    size = len(fleet)
    util, peak, mem = (fleet.column(key, mono)
                       for key in ("util_pct", "util_max_pct", "mem_used_bytes"))
    is_util, is_peak, is_mem = (each.absent == Absence.PRESENT for each in (util, peak, mem))
    is_read = (fleet.shown(mono) == GpuStatus.OK) & (is_util | is_peak) & is_mem
    is_idle = is_idle_at(np.where(is_peak, peak.values, util.values), mem.values)
    is_idle &= (fleet.task_count[:size] > 0) & ~fleet.is_paused[:size]
    since = fleet.idle_mono[:size]
    since[is_read & ~is_idle] = np.nan
    since[is_read & is_idle & np.isnan(since)] = mono


def is_idle_at(peak_pct: Floats, mem_bytes: Floats) -> Mask:
    found: Mask = (peak_pct <= IDLE_AT_MOST_PCT) & (mem_bytes >= HELD_AT_LEAST_BYTES)
    return found


def wasted(fleet: Fleet, show: Codes, mono: float) -> Mask:
    with np.errstate(invalid="ignore"):
        found: Mask = (show == GpuStatus.OK) & (
            mono - fleet.idle_mono[: len(fleet)] >= WASTED_AFTER_S)
    return found


def wasted_s(fleet: Fleet, slot: int, show: GpuStatus, mono: float) -> float | None:
    idle_s = mono - float(fleet.idle_mono[slot])
    return round(idle_s) if show is GpuStatus.OK and idle_s >= WASTED_AFTER_S else None


def idle_s(fleet: Fleet, slot: int, mono: float) -> float | None:
    """None: it works, or that is not known now."""
    since = float(fleet.idle_mono[slot])
    return None if since != since else round(mono - since)


def least(idle: Iterable[float | None]) -> float | None:
    """Of several GPUs together: they are idle where all are."""
    found = list(idle)
    known = [one for one in found if one is not None]
    return min(known) if known and len(known) == len(found) else None


def seconds_idle(is_idle: Mask) -> int:
    """Minutes, oldest first: how long the last of them have been idle without a break."""
    busy = np.flatnonzero(~is_idle)
    return 60 * (len(is_idle) - (int(busy[-1]) + 1 if len(busy) else 0))
