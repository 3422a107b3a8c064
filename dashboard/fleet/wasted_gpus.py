"""GPUs that are wasted: gpudeck.measures.waste over a fleet, second by second. Pure."""

from typing import Any

import numpy as np

from gpudeck.measures.metrics import Absence
from gpudeck.measures.waste import LOADS, WASTED_AFTER_S, is_idle

from .fleet import Fleet, GpuStatus
from .gpu_table import FleetMetricColumn
from .metric_table import Codes, Floats, Mask
from .mig import NO_PARENT
from .visibility import VisibleFleet


def note_idle(fleet: Fleet, mono: float) -> None:
    """Update, once a second, since when GPUs are idle. One that is not read now stays as it was."""
    size = len(fleet)
    peak, mem = highest_load(fleet, mono), _values_or_nan(fleet.column("mem_used_bytes", mono))
    is_read = (fleet.statuses(mono) == GpuStatus.OK) & ~np.isnan(peak) & ~np.isnan(mem)
    idle: Mask = is_idle(peak, mem) & (fleet.task_count[:size] > 0) & ~fleet.is_paused[:size]
    since = fleet.idle_mono[:size]
    since[is_read & ~idle] = np.nan
    since[is_read & idle & np.isnan(since)] = mono
    fleet.worked_mono[:size][is_read & ~idle] = mono


def highest_load(fleet: Fleet, mono: float) -> Floats:
    """Return the load of the interval, in percent. Of a MIG instance only SM activity is known."""
    peak, util, sm = (_values_or_nan(fleet.column(key, mono)) for key in LOADS)
    of_board = np.where(np.isnan(peak), util, peak)
    is_part = fleet.parent[:len(fleet)] != NO_PARENT
    return np.where(is_part & np.isnan(of_board), sm, of_board)


def _values_or_nan(column: FleetMetricColumn) -> Floats:
    return np.where(column.absent == Absence.PRESENT, column.values, np.nan)


def wasted(fleet: Fleet, show: Codes, mono: float) -> Mask:
    with np.errstate(invalid="ignore"):
        mask: Mask = (show == GpuStatus.OK) & (
            mono - fleet.idle_mono[: len(fleet)] >= WASTED_AFTER_S)
    return mask


def wasted_s(fleet: Fleet, slot: int, show: GpuStatus, mono: float) -> float | None:
    idle_s = mono - float(fleet.idle_mono[slot])
    return round(idle_s) if show is GpuStatus.OK and idle_s >= WASTED_AFTER_S else None


def seconds_idle(is_idle: Mask) -> int:
    """Return for how long the last of these minutes, oldest first, have been idle in a row."""
    busy = np.flatnonzero(~is_idle)
    return 60 * (len(is_idle) - (int(busy[-1]) + 1 if len(busy) else 0))


def wasted_now(fleet: Fleet, visible: VisibleFleet, now: float, mono: float) -> dict[str, Any]:
    """Return the GPUs wasted now, and the idle GPU-hours of this day as reports count them."""
    slots = visible.slots
    places = np.flatnonzero(wasted(fleet, fleet.statuses(mono), mono)[slots])
    at = slots[places]
    memory, today_s = fleet.column("mem_used_bytes", mono).values[at], fleet.idle_today_s[slots]
    known_s = today_s[~np.isnan(today_s)]
    return {"gpus": len(places), "mem_bytes": float(memory.sum()),
            "gpu_hours_today": float(known_s.sum()) / 3_600 if len(known_s) else None,
            "slots": places.astype("<u4").tobytes(),
            "since": (now - mono + fleet.idle_mono[at]).astype("<u4").tobytes(),
            "mem": memory.astype("<f4").tobytes()}
