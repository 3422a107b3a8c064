"""Numbers of the live picture for the views of the resource manager. Pure."""

import numpy as np

from gpudeck.measures.metrics import Absence

from ..fleet.fleet import Fleet, GpuStatus
from .source_views import LiveNumbers, Number


def live_numbers(fleet: Fleet, mono: float) -> LiveNumbers:
    return LiveNumbers(_number(fleet, "util_pct", mono), _number(fleet, "mem_used_bytes", mono))


def _number(fleet: Fleet, key: str, mono: float) -> Number:
    """Return what reads a metric of a GPU; a GPU that is stale has none."""
    column = fleet.column(key, mono)
    is_known = (fleet.statuses(mono) == GpuStatus.OK) & (column.absent == Absence.PRESENT)
    values: list[float] = np.where(is_known, column.values, np.nan).tolist()

    def number(node_id: str, uuid: str) -> float | None:
        slot = fleet.slot_on(node_id, uuid)
        return None if slot is None or values[slot] != values[slot] else values[slot]

    return number
