"""A series as a DataFrame: its parts, and how they add up."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns.arrays import concat_rows, take_rows
from ..columns.layout import NO_MEAN
from ..columns.rollup import Rollup, coarser, rollup_of
from ..columns.usage import USAGE_SUMS, USAGE_TOPS
from .coverage import HoursSeen
from .protocol import Agg

if TYPE_CHECKING:
    import pandas as pd


def sums_in(frame: "pd.DataFrame", number: Mapping[str, int], metrics: Sequence[str]) -> Rollup:
    """Return the sums as DuckDB adds them up: of nothing, there is no sum."""
    gpu, t, *sums = frame
    rows = Rollup(frame[gpu].map(number).to_numpy(np.intp), frame[t].to_numpy(np.int64),
                  np.ones(len(frame), np.int64))
    return rollup_of("sums", rows, {name: frame[name].to_numpy(np.float64) for name in sums},
                     metrics)


def add_up(parts: Sequence[Rollup], gpus: Sequence[str], aggs: Sequence[Agg], step: int
             ) -> "pd.DataFrame":
    """Join parts, by GPU, then by time. `gpus`: by slot."""
    import pandas as pd

    whole = concat_rows(parts)
    whole = coarser(take_rows(whole, np.lexsort((whole.t, whole.slot))), step)
    columns: dict[str, Any] = {"gpu": pd.array(gpus, dtype="str").take(whole.slot), "t": whole.t}
    for key, n in whole.n.items():
        for agg in aggs:
            values = {"min": whole.low[key], "max": whole.high[key], "n": n,
                      "mean": np.full(len(n), np.nan) if key in NO_MEAN else whole.mean(key)}[agg]
            columns[f"{key}_{agg}"] = n if agg == "n" else np.where(n > 0, values, np.nan)
    return pd.DataFrame(columns)


def usage_by(usage: "pd.DataFrame", by: str) -> "pd.DataFrame":
    """Add up rows of usage with the same time and the same `by`."""
    how = dict.fromkeys(USAGE_SUMS, "sum") | dict.fromkeys(USAGE_TOPS, "max")
    return usage.groupby(["t", by], dropna=False, as_index=False, sort=True).agg(how)


def no_hours() -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(columns=[*HoursSeen._fields])
