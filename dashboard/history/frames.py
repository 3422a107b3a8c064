"""Parts of an answer as DataFrames, and how they add up."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpudeck.metrics import Absence

from .columns import AT, MASKS, NO_MEAN, SLOW_KEYS, STORED, missing_at, reason
from .feed import SlowRows
from .head import Rows
from .protocol import Agg
from .tally import runs

if TYPE_CHECKING:
    import pandas as pd


def slow_reason(metric: str, why: int) -> str:
    return f"{metric}={Absence(why).word}" if why else ""


def slow_frame(part: SlowRows, slots: set[int], gpus: list[str], metrics: Sequence[str], step: int
                ) -> "pd.DataFrame":
    import pandas as pd

    rows = [row for row, slot in enumerate(part.slot.tolist()) if slot in slots]
    found: dict[str, Any] = {"gpu": [gpus[part.slot[row]] for row in rows],
                             "t": np.full(len(rows), part.t - part.t % step)}
    for metric in metrics:
        if metric in SLOW_KEYS:
            at = SLOW_KEYS.index(metric)
            there = part.absent[rows, at] == 0
            values = np.where(there, part.values[rows, at], np.nan)
            found |= {f"{metric}_min": values, f"{metric}_max": values,
                      f"{metric}_sum": np.where(there, values, 0.0),
                      f"{metric}_n": there.astype(np.int64)}
    return pd.DataFrame(found)


def by_step(parts: Iterable[dict[str, Any]], metrics: Sequence[str], step: int
            ) -> "pd.DataFrame":
    """Seconds of Gpus (`gpu`, `t`, and values by metric, NaN for none) in buckets of `step`."""
    import pandas as pd

    of_gpu: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        of_gpu.setdefault(part["gpu"], []).append(part)
    found: dict[str, list[Any]] = {}
    gpus: list[str] = []
    for gpu, ours in of_gpu.items():
        t = np.concatenate([part["t"] for part in ours])
        order = np.argsort(t, kind="stable")
        bucket = t[order] - t[order] % step
        starts = runs(bucket)
        gpus += [gpu] * len(starts)
        found.setdefault("t", []).append(bucket[starts])
        for metric in metrics:
            values = np.concatenate([part[metric] for part in ours])[order]
            for name, column in _bucket(metric, values, starts).items():
                found.setdefault(f"{metric}_{name}", []).append(column)
    return pd.DataFrame({"gpu": gpus} | {name: np.concatenate(column)
                                         for name, column in found.items()})


def _bucket(metric: str, values: npt.NDArray[np.float64], starts: npt.NDArray[np.intp]
            ) -> dict[str, Any]:
    there = ~np.isnan(values)
    low: Any = np.fmin.reduceat(values, starts)
    high: Any = np.fmax.reduceat(values, starts)
    n = np.add.reduceat(there.astype(np.int64), starts)
    if metric in MASKS:
        bits = np.where(there, values, 0.0).astype(np.int64)
        low = np.where(n > 0, np.bitwise_and.reduceat(np.where(there, bits, -1), starts), np.nan)
        high = np.where(n > 0, np.bitwise_or.reduceat(bits, starts), np.nan)
    return {"min": low, "max": high, "n": n,
            "sum": np.add.reduceat(np.where(there, values, 0.0), starts)}


def newest_of(files: "pd.DataFrame | None", memory: "pd.DataFrame | None", metric: str
               ) -> "pd.DataFrame":
    import pandas as pd

    parts = [part for part in (files, memory) if part is not None and len(part)]
    if not parts:
        return pd.DataFrame({"gpu": [], "node": [], "t": [], "value": [], "missing": []})
    found = parts[0]
    if len(parts) > 1:
        found = pd.concat(parts, ignore_index=True).sort_values("t").drop_duplicates(
            ["gpu", "node"], keep="last")
    found = found.sort_values(["gpu", "node"], ignore_index=True)
    none = found["value"].isna()
    why = {words: reason(words, metric) or "unknown"
           for words in found["missing"][none].unique().tolist()}
    found["missing"] = [why[words] if is_none else None for words, is_none in zip(
        found["missing"].tolist(), none.tolist(), strict=True)]
    return found[["gpu", "node", "t", "value", "missing"]]


def fill(columns: dict[str, Any], gpu: str, values: Any) -> None:
    """Parts of the same Gpu have different seconds."""
    had = columns.get(gpu)
    columns[gpu] = values if had is None else np.where(np.isnan(had), values, had)


def plain(rows: Rows, metric: str, gpus: list[str]) -> "pd.DataFrame":
    import pandas as pd

    at = AT[metric]
    values = np.where(missing_at(rows.missing, at) != 0, np.nan, rows.units[at] * STORED[at].step)
    return pd.DataFrame({"gpu": [gpus[slot] for slot in rows.slot.tolist()], "t": rows.t,
                         "value": values})


def added_up(parts: "list[pd.DataFrame]", metrics: Sequence[str], aggs: Sequence[Agg]
              ) -> "pd.DataFrame":
    import pandas as pd

    parts = [part for part in parts if len(part)] or parts[-1:]
    whole = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    how = {f"{metric}_{part}": verb for metric in metrics
           for part, verb in (("min", "min"), ("max", "max"), ("sum", "sum"), ("n", "sum"))
           if f"{metric}_{part}" in whole}
    if whole.duplicated(["gpu", "t"]).any():
        whole = whole.groupby(["gpu", "t"], as_index=False, sort=False).agg(how)
    whole = whole.sort_values(["gpu", "t"], ignore_index=True)
    found: dict[str, Any] = {"gpu": whole["gpu"], "t": whole["t"]}
    for metric in metrics:
        n = whole.get(f"{metric}_n", pd.Series(np.zeros(len(whole)))).fillna(0)
        for agg in aggs:
            if agg == "n":
                found[f"{metric}_n"] = n.astype(np.int64)
            elif agg == "mean" and metric in NO_MEAN:
                found[f"{metric}_mean"] = np.full(len(whole), np.nan)
            elif agg == "mean":
                sums = whole.get(f"{metric}_sum", pd.Series(np.full(len(whole), np.nan)))
                found[f"{metric}_mean"] = (sums / n).where(n > 0)
            else:
                ends = whole.get(f"{metric}_{agg}", pd.Series(np.full(len(whole), np.nan)))
                found[f"{metric}_{agg}"] = ends.where(n > 0)
    return pd.DataFrame(found)
