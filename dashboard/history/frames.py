"""Parts of an answer as DataFrames, and how they add up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import Absence

from .columns import AT, MASKS, NO_MEAN, SLOW_KEYS, STORED, Ints, missing_at, reason
from .memory import BLOCK_S, SampleRows
from .point_reads import NewestSamples, SelectedRows
from .protocol import Agg
from .rollup import Rollup
from .rows import SlowMetricRows

if TYPE_CHECKING:
    import pandas as pd


def slow_reason(metric: str, why: int) -> str:
    return f"{metric}={Absence(why).word}" if why else ""


@dataclass(slots=True)
class BucketSums:
    """What adds up, of buckets of time. `gpu`: its number; columns: METRIC_min, _max, _sum, _n."""

    gpu: npt.NDArray[np.intp]
    t: Ints
    columns: dict[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.t)


def columns_of(kind: str, metrics: Sequence[str]) -> list[str]:
    """Those of a file of this kind that say all of these metrics."""
    if kind == "raw":
        return list(metrics)
    return [f"{metric}_{part}" for metric in metrics for part in ("min", "mean", "max", "n")]


def of_files(kind: str, some: SelectedRows, metrics: Sequence[str]) -> BucketSums:
    columns: dict[str, npt.NDArray[Any]] = {}
    for metric in metrics:
        columns |= _of_second(metric, some.values[metric]) if kind == "raw" else (
            _of_rollup(metric, some.values))
    return BucketSums(some.gpu, some.t, columns)


def _of_second(metric: str, values: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
    there = ~np.isnan(values)
    return {f"{metric}_min": values, f"{metric}_max": values, f"{metric}_n": there,
            f"{metric}_sum": np.where(there, values, 0.0)}


def _of_rollup(metric: str, values: Mapping[str, npt.NDArray[np.float64]]
               ) -> dict[str, npt.NDArray[Any]]:
    n = np.nan_to_num(values[f"{metric}_n"])
    total = np.where(n > 0, np.nan_to_num(values[f"{metric}_mean"]) * n, 0.0)
    return {f"{metric}_min": values[f"{metric}_min"], f"{metric}_max": values[f"{metric}_max"],
            f"{metric}_n": n, f"{metric}_sum": total}


def of_memory(rolled: Rollup, number: Mapping[int, int], metrics: Sequence[str]) -> BucketSums:
    """`number`: of the Gpu in each slot."""
    columns: dict[str, npt.NDArray[Any]] = {}
    for metric in metrics:
        if metric in AT:
            at = AT[metric]
            none = rolled.n[at] == 0
            columns |= {f"{metric}_min": np.where(none, np.nan, rolled.low[at]),
                        f"{metric}_max": np.where(none, np.nan, rolled.high[at]),
                        f"{metric}_sum": rolled.total[at], f"{metric}_n": rolled.n[at]}
    return BucketSums(np.array([number[slot] for slot in rolled.slot.tolist()], np.intp), rolled.t,
                      columns)


def of_slow(part: SlowMetricRows, number: Mapping[int, int], metrics: Sequence[str]) -> BucketSums:
    """`number`: of the Gpu in each slot that is asked for."""
    rows = [row for row, slot in enumerate(part.slot.tolist()) if slot in number]
    columns: dict[str, npt.NDArray[Any]] = {}
    for metric in metrics:
        if metric in SLOW_KEYS:
            at = SLOW_KEYS.index(metric)
            there = part.absent[rows, at] == 0
            columns |= _of_second(metric, np.where(there, part.values[rows, at], np.nan))
    return BucketSums(np.array([number[slot] for slot in part.slot[rows].tolist()], np.intp),
                      np.full(len(rows), part.t), columns)


def of_frame(frame: "pd.DataFrame", gpus: Sequence[str]) -> BucketSums:
    number = {gpu: at for at, gpu in enumerate(gpus)}
    return BucketSums(frame["gpu"].map(number).to_numpy(np.intp), frame["t"].to_numpy(np.int64),
                      {str(name): _plain(frame[name].to_numpy(np.float64), str(name))
                       for name in frame.columns if name not in ("gpu", "t")})


def _plain(values: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float64]:
    """What DuckDB adds up of nothing is nothing; here it is none."""
    return np.nan_to_num(values) if name.endswith(("_n", "_sum")) else values


def added_up(parts: Iterable[BucketSums], gpus: Sequence[str], metrics: Sequence[str],
             aggs: Sequence[Agg], step: int) -> "pd.DataFrame":
    """By the names of the Gpus, then by time."""
    import pandas as pd

    parts = [part for part in parts if len(part)]
    order = np.array(sorted(range(len(gpus)), key=gpus.__getitem__), np.intp)
    rank = np.empty(len(gpus), np.intp)
    rank[order] = np.arange(len(gpus))
    gpu = np.concatenate([np.zeros(0, np.intp), *(rank[part.gpu] for part in parts)])
    t = np.concatenate([np.zeros(0, np.int64), *(part.t - part.t % step for part in parts)])
    by = np.lexsort((t, gpu))
    gpu, t = gpu[by], t[by]
    starts = np.flatnonzero(np.append(True, (np.diff(gpu) != 0) | (np.diff(t) != 0))[:len(t)])
    found: dict[str, Any] = {
        "gpu": pd.array([gpus[at] for at in order.tolist()], dtype="str").take(gpu[starts]),
        "t": t[starts]}
    for metric in metrics:
        found |= _ends(metric, parts, by, starts, aggs)
    return pd.DataFrame(found)


def _ends(metric: str, parts: Sequence[BucketSums], by: npt.NDArray[np.intp],
          starts: npt.NDArray[np.intp], aggs: Sequence[Agg]) -> dict[str, Any]:
    """Of one metric, what was asked for."""
    def joined(end: str, nothing: float) -> npt.NDArray[np.float64]:
        name = f"{metric}_{end}"
        return np.concatenate([np.zeros(0), *(
            part.columns[name].astype(np.float64) if name in part.columns
            else np.full(len(part), nothing) for part in parts)])[by]

    def total(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return values if len(starts) == len(by) else np.add.reduceat(values, starts)

    each_n = joined("n", 0.0)
    n, found = total(each_n), {}
    for agg in aggs:
        if agg == "n":
            found[f"{metric}_n"] = n.astype(np.int64)
        elif agg == "mean":
            sums = np.full(len(n), np.nan) if metric in NO_MEAN else total(joined("sum", 0.0))
            found[f"{metric}_mean"] = np.where(n > 0, sums / np.maximum(n, 1), np.nan)
        else:
            ends = _joined_ends(metric, agg, joined(agg, np.nan), each_n > 0, starts)
            found[f"{metric}_{agg}"] = np.where(n > 0, ends, np.nan)
    return found


def _joined_ends(metric: str, agg: str, values: npt.NDArray[np.float64],
                 there: npt.NDArray[np.bool_], starts: npt.NDArray[np.intp]
                 ) -> npt.NDArray[np.float64]:
    if len(starts) == len(values):
        return values
    if metric in MASKS:
        join, nothing = (np.bitwise_and, -1) if agg == "min" else (np.bitwise_or, 0)
        return join.reduceat(np.where(there, values, nothing).astype(np.int64), starts).astype(
            np.float64)
    return (np.fmin if agg == "min" else np.fmax).reduceat(values, starts)


def newest_of(parts: Iterable[NewestSamples], metric: str) -> "pd.DataFrame":
    import pandas as pd

    parts = [part for part in parts if len(part.t)]
    if not parts:
        return pd.DataFrame({"gpu": [], "node": [], "t": [], "value": [], "missing": []})
    found = parts[0] if len(parts) == 1 and parts[0].is_sorted else _newest_of_each(parts)
    none = np.isnan(found.value)
    why: dict[str, str] = {}
    missing = np.full(len(none), None, object)
    for at in np.flatnonzero(none).tolist():
        words = found.missing[at]
        if words not in why:
            why[words] = reason(words, metric) or "unknown"
        missing[at] = why[words]
    return pd.DataFrame({"gpu": found.gpu, "node": found.node, "t": found.t, "value": found.value,
                         "missing": missing})


def _newest_of_each(parts: Sequence[NewestSamples]) -> NewestSamples:
    gpu, node, t, value, missing = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("gpu", "node", "t", "value", "missing"))
    keys = list(zip(gpu.tolist(), node.tolist(), t.tolist(), strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    by = np.array([at for at, after in zip(order, [*order[1:], None], strict=True)
                   if after is None or keys[at][:2] != keys[after][:2]], np.intp)
    return NewestSamples(gpu[by], node[by], t[by], value[by], missing[by], True)


def newest_in(frame: "pd.DataFrame") -> NewestSamples:
    gpu, node, missing = (frame[name].to_numpy(object) for name in ("gpu", "node", "missing"))
    return NewestSamples(gpu, node, frame["t"].to_numpy(np.int64),
                         frame["value"].to_numpy(np.float64),
                         missing, False)


def side_by_side(parts: Sequence[tuple[Sequence[str], npt.NDArray[np.float64]]], start: int
                 ) -> "pd.DataFrame":
    """Of each part: Gpus, and seconds x Gpus. Parts of the same Gpu have different seconds."""
    import pandas as pd

    number: dict[str, int] = {}
    at_of = [np.array([number.setdefault(gpu, len(number)) for gpu in gpus], np.intp)
             for gpus, _ in parts]
    if len(parts) == 1 and len(number) == len(parts[0][0]):
        wide = parts[0][1]
    else:
        wide = np.full((BLOCK_S, len(number)), np.nan)
        for at, (_, values) in zip(at_of, parts, strict=True):
            for column, target in enumerate(at.tolist()):
                wide[:, target] = np.fmax(wide[:, target], values[:, column])
    return pd.DataFrame(wide, columns=list(number), index=range(start, start + BLOCK_S))


def in_memory(rows: SampleRows, metric: str, gpus: Sequence[str], start: int
              ) -> tuple[list[str], npt.NDArray[np.float64]]:
    at = AT[metric]
    slots, column = np.unique(rows.slot, return_inverse=True)
    wide = np.full((BLOCK_S, len(slots)), np.nan)
    wide[rows.t - start, column] = np.where(missing_at(rows.missing, at) != 0, np.nan,
                                            rows.units[at] * STORED[at].step)
    return [gpus[slot] for slot in slots.tolist()], wide
