"""Colour level and figure that a heatmap cell shows of a metric."""

from typing import Any

import numpy as np
import numpy.typing as npt

from gpudeck.measures.metrics import HARMFUL_THROTTLE, Absence, Metric

from .fleet import GpuStatus
from .gpu_table import FleetMetricColumn

LEVELS = 239
(ERROR, RETIRED, NO_FULL, DENIED, UNSUPPORTED, STALE, LOST, OFFLINE, UNKNOWN) = range(247, 256)

POWER_CAP = 0x4
# Of these, 0 is fine and anything else needs attention.
ALARMS = frozenset(("rows_pending", "rows_failed", "pages_pending", "recovery_action"))
MANY_DIGITS = 6.0  # a million errors is the full colour

OF_ABSENCE = np.full(len(Absence), UNKNOWN, np.uint8)
OF_ABSENCE[[Absence.DENIED, Absence.UNSUPPORTED, Absence.STALE, Absence.LOST]] = (
    DENIED, UNSUPPORTED, STALE, LOST)
OF_SHOW = np.array([0, STALE, LOST, OFFLINE, RETIRED, ERROR], np.uint8)

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.float64]


def has_scale(metric: Metric) -> bool:
    return (metric.key in ALARMS or metric.key == "throttle_bits" or is_count(metric)
            or metric.full is not None or metric.full_fact is not None)


def is_count(metric: Metric) -> bool:
    """Return whether it counts errors and the like, of which nobody can say how many are all."""
    return metric.aggregate == "counter" and metric.unit == ""


def levels(column: FleetMetricColumn, show: Bytes) -> Bytes:
    level = np.where(column.absent == Absence.PRESENT, _levels(column), OF_ABSENCE[column.absent])
    return np.where(show == GpuStatus.OK, level, OF_SHOW[show]).astype(np.uint8)


def _levels(column: FleetMetricColumn) -> Bytes:
    """Return levels. What is absent gets some level too: the caller replaces it by the reason."""
    values = np.nan_to_num(column.values)
    if column.metric.key == "throttle_bits":
        return throttle_levels(values)
    if column.metric.key in ALARMS:
        return _rounded(values > 0)
    if is_count(column.metric):
        return count_levels(values)
    has_full = ~np.isnan(column.full)
    level = _rounded(values / np.where(has_full, column.full, 1.0))
    level[~has_full] = NO_FULL
    return level


def throttle_levels(bits: Numbers) -> Bytes:
    """Scale reasons, which are not an amount, in three steps, by how much they ought to worry."""
    reasons = bits.astype(np.int64)
    level = np.where(reasons & POWER_CAP, LEVELS // 2, 0)
    return np.where(reasons & HARMFUL_THROTTLE, LEVELS, level).astype(np.uint8)


def count_levels(counts: Numbers) -> Bytes:
    """Scale counts: 1 error is far from none, a thousand not far from two thousand. So the first
    one takes a third of the scale, the number of digits the rest."""
    digits = np.log10(np.maximum(counts, 1.0))
    share = np.where(counts > 0, (1 + 2 * np.minimum(digits / MANY_DIGITS, 1.0)) / 3, 0.0)
    return _rounded(share)


def _rounded(share: npt.NDArray[Any]) -> Bytes:
    level: Bytes = np.rint(np.clip(share, 0.0, 1.0) * LEVELS).astype(np.uint8)
    return level


def exact(column: FleetMetricColumn, show: Bytes) -> npt.NDArray[Any]:
    """Return the figures of cells: memory in percent of the board, the rest in its own unit."""
    values = column.values
    if column.metric.key == "mem_used_bytes":
        values = values / column.full * 100
    there = (show == GpuStatus.OK) & (column.absent == Absence.PRESENT)
    return np.where(there, values, np.nan).astype("<f4")
