"""Past cells and totals of the Fleet page. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.measures.metrics import Absence, Metric
from gpudeck.measures.metrics import metric as metric_of

from ..history.columns.instants import NO_SAMPLE, InstantMatrix, Pair
from . import mig
from .colour_scales import RETIRED, exact, levels
from .filters import Mask
from .fleet import Fleet, GpuStatus
from .gpu_table import FleetMetricColumn
from .views import MAX_EXACT, TOTALLED, sums
from .visibility import Slots, VisibleFleet

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


class PastBlockView(msgspec.Struct):
    """`count` moments, `step` seconds apart. `cells`: as the live picture has them, a byte for each
    GPU of the layout of this epoch, moment after moment; `exact`: the numbers, as little-endian
    float32, of a fleet small enough to write them. `seen`: how many GPUs have a sample at each
    moment; `gone`: how many more had one that this layout does not have."""

    metric: str
    unit: str
    epoch: int
    start: int
    step: int
    count: int
    n: int
    grain_s: int
    seen: list[int]
    gone: list[int]
    cells: bytes
    exact: bytes | None


class PastTotalsView(msgspec.Struct):
    """Totals of a past moment. Null: no GPU reported it then."""

    at: int
    nodes: int  # with a sample
    gpus_seen: int
    gpus_ok: int
    util_mean_pct: float | None
    power_w: float | None
    mem_used_bytes: float | None
    mem_total_bytes: float | None
    throttled: int | None


class BusiestHourView(msgspec.Struct):
    """The hour in which most GPU time was used; with longer steps, the step. `util_mean_pct`: the
    average of the GPUs that reported in it."""

    start: int
    end: int
    util_mean_pct: float


class FleetLoadView(msgspec.Struct):
    """The whole fleet or a part of it over a span, in steps that begin at `start`; null: no
    GPU reported in that step. `gpus`: how many reported on average. `power_w`: their total.
    `busiest`: null where no GPU reported in the span. `groups`, `models`: the choices."""

    start: int
    step: int
    busiest: BusiestHourView | None
    groups: list[str]
    models: list[str]
    gpus: list[float | None]
    util_mean_pct: list[float | None]
    power_w: list[float | None]
    mem_used_bytes: list[float | None]


@dataclass(frozen=True, slots=True)
class LayoutSnapshot:
    """Copy of the present fleet's layout, to which past samples are mapped, for any thread."""

    epoch: int
    slots: Slots  # of visible GPUs
    slot_of: Mapping[Pair, int]
    retired: Mask
    full: dict[str, Floats]  # by metric
    parent: npt.NDArray[np.int32]
    shares_memory: Mask
    node_at: Slots


def ground(fleet: Fleet, visible: VisibleFleet, metrics: tuple[str, ...],
           mono: float) -> LayoutSnapshot:
    size = len(fleet)
    slot_of = {(fleet.uuids[slot], fleet.node_ids[at]): slot for slot, at in zip(
        visible.slots.tolist(), fleet.node_at[visible.slots].tolist(), strict=True)}
    return LayoutSnapshot(
        visible.epoch, visible.slots, slot_of, fleet.retired[:size].copy(),
        {key: fleet.column(key, mono).full.copy() for key in metrics},
        fleet.parent[:size].copy(), fleet.shares_memory[:size].copy(),
        fleet.node_at[:size].astype(np.intp))


def block_view(matrix: InstantMatrix, on: LayoutSnapshot, key: str, start: int,
               step: int) -> PastBlockView:
    metric, slots = metric_of(key), _slots(matrix, on)
    here, count = slots >= 0, len(matrix.why)
    sampled = matrix.why != NO_SAMPLE
    columns = [_column_at(matrix, slots, on, metric, at) for at in range(count)]
    show = np.full(len(on.retired), GpuStatus.OK, np.uint8)
    cells = [_cells(*column, show, on).tobytes() for column in columns]
    numbers = None if len(on.slots) > MAX_EXACT else b"".join(
        exact(column, show)[on.slots].tobytes() for column, _ in columns)
    return PastBlockView(key, metric.unit, on.epoch, start, step, count, len(on.slots),
                         matrix.grain_s,
                         sampled[:, here].sum(axis=1).tolist(),
                         sampled[:, ~here].sum(axis=1).tolist(),
                         b"".join(cells), numbers)


def _slots(matrix: InstantMatrix, on: LayoutSnapshot) -> Slots:
    """Return the slot of each pair; -1: it is not on the map now."""
    return np.array([on.slot_of.get(pair, -1) for pair in matrix.pairs], np.intp)


def _column_at(matrix: InstantMatrix, slots: Slots, on: LayoutSnapshot, metric: Metric, at: int
          ) -> tuple[FleetMetricColumn, Mask]:
    """Return a moment as a column of the fleet, and which slots have a sample in it."""
    size = len(on.retired)
    hit = (slots >= 0) & (matrix.why[at] != NO_SAMPLE)
    values, absent = np.zeros(size), np.full(size, Absence.UNKNOWN, np.uint8)
    values[slots[hit]] = np.nan_to_num(matrix.value[at][hit])
    absent[slots[hit]] = matrix.why[at][hit]
    sampled = np.zeros(size, bool)
    sampled[slots[hit]] = True
    return FleetMetricColumn(metric, values, absent, on.full[metric.key]), sampled


def _cells(column: FleetMetricColumn, sampled: Mask, show: Bytes, on: LayoutSnapshot) -> Bytes:
    """Return the cells. A GPU that is gone now and had no sample then is left out of the map."""
    level = np.where(on.retired & ~sampled, RETIRED, levels(column, show))
    return level.astype(np.uint8)[on.slots]


def cells_at(matrix: InstantMatrix, on: LayoutSnapshot, key: str) -> Bytes:
    """Return the cells of the only moment in it."""
    column, sampled = _column_at(matrix, _slots(matrix, on), on, metric_of(key), 0)
    return _cells(column, sampled, np.full(len(on.retired), GpuStatus.OK, np.uint8), on)


def totals_view(matrices: Mapping[str, InstantMatrix], on: LayoutSnapshot, at: int
                ) -> PastTotalsView:
    """`matrices`: one moment of each of TOTALLED."""
    columns = {key: _column_at(matrices[key], _slots(matrices[key], on), on, metric_of(key), 0)
               for key in TOTALLED}
    util, sampled = columns["util_pct"]
    # A board that is split into instances does not count besides them.
    unit = sampled & ~mig.split(on.parent, sampled)
    is_bad = np.isin(util.absent, (Absence.LOST, Absence.STALE))
    everywhere = np.ones(len(on.retired), bool)
    return PastTotalsView(
        at, len(np.unique(on.node_at[sampled])), int(unit.sum()), int((unit & ~is_bad).sum()),
        **sums({key: column for key, (column, _) in columns.items()}, everywhere, on.parent,
               on.shares_memory))


HOUR_S = 3_600
LOAD_METRICS = ("util_pct", "power_w", "mem_used_bytes")


def load_view(frame: "pd.DataFrame", start: int, end: int, step: int, now: float,
              groups: list[str], models: list[str]) -> FleetLoadView:
    """`frame`: mean and n of LOAD_METRICS by `t`; a sample is a second of a GPU."""
    by_t = frame.set_index("t").reindex(range(start, end, step))
    seconds = np.clip(now - np.arange(start, end, step), 1, step)

    def listed(values: "pd.Series[float]") -> list[float | None]:
        return [None if value != value else round(value, 3) for value in values.tolist()]

    def summed(key: str) -> list[float | None]:
        return listed(by_t[f"{key}_mean"] * by_t[f"{key}_n"] / seconds)

    busiest = busiest_hour(by_t["util_pct_mean"].to_numpy(float),
                           by_t["util_pct_n"].to_numpy(float), start, step)
    return FleetLoadView(start, step, busiest, groups, models,
                         listed(by_t["util_pct_n"] / seconds),
                         listed(by_t["util_pct_mean"]), summed("power_w"),
                         summed("mem_used_bytes"))


def busiest_hour(mean_pct: Floats, samples: Floats, start: int, step: int
                 ) -> BusiestHourView | None:
    """Return the hour with the most GPU time, not the highest average: one busy GPU while all
    others are silent is no busy hour. The earliest of several."""
    counts = np.nan_to_num(samples)
    if not counts.any():
        return None
    width = min(max(1, HOUR_S // step), len(counts))
    work, reported = (np.convolve(values, np.ones(width), "valid")
                      for values in (np.nan_to_num(mean_pct) * counts, counts))
    # Sums that differ by rounding alone are equal.
    at = int(np.argmax(work >= work.max() * (1 - 1e-9)))
    if not reported[at]:
        at = int(np.argmax(reported > 0))
    return BusiestHourView(start + at * step, start + (at + width) * step,
                           round(float(work[at] / reported[at]), 3))


def load_columns(load: FleetLoadView) -> Mapping[str, Sequence[object]]:
    """Return a row for each step, for CSV and Parquet."""
    return {"t": [load.start + at * load.step for at in range(len(load.gpus))],
            "gpus": load.gpus, "util_mean_pct": load.util_mean_pct, "power_w": load.power_w,
            "mem_used_bytes": load.mem_used_bytes}
