"""GPUs wasted now, as sent to the Fleet page. Pure."""

from typing import Any

import numpy as np

from .fleet import Fleet
from .visibility import VisibleFleet
from .wasted_gpus import wasted


def wasted_now(fleet: Fleet, visible: VisibleFleet, now: float, mono: float) -> dict[str, Any]:
    """Return the GPUs wasted now, and the idle GPU-hours of this day as reports count them."""
    slots = visible.slots
    places = np.flatnonzero(wasted(fleet, fleet.shown(mono), mono)[slots])
    at = slots[places]
    memory, today_s = fleet.column("mem_used_bytes", mono).values[at], fleet.idle_today_s[slots]
    known_s = today_s[~np.isnan(today_s)]
    return {"gpus": len(places), "mem_bytes": float(memory.sum()),
            "gpu_hours_today": float(known_s.sum()) / 3_600 if len(known_s) else None,
            "slots": places.astype("<u4").tobytes(),
            "since": (now - mono + fleet.idle_mono[at]).astype("<u4").tobytes(),
            "mem": memory.astype("<f4").tobytes()}
