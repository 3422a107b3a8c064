"""What the API says of the past."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gpudeck.metrics import metric as metric_of

if TYPE_CHECKING:
    import pandas as pd

Numbers = list[float | None]


class Band(Struct):
    mean: Numbers
    min: Numbers
    max: Numbers


class Series(Struct):
    """Columns: the buckets of `step` seconds that begin at `t`; null where there is nothing."""

    gpu: str
    metric: str
    unit: str
    start: int
    end: int
    step: int
    t: list[int]
    mean: Numbers
    min: Numbers
    max: Numbers
    also: dict[str, Band] = {}  # of further metrics, on the same `t`


class InstantItem(Struct):
    """A value, or why there is none."""

    gpu: str
    node: str
    t: int | None
    value: float | None
    missing: str | None = None


class Instant(Struct):
    metric: str
    unit: str
    at: int
    items: list[InstantItem]


class UsageItem(Struct):
    """What one owner, Node or Gpu held within one bucket. `gpu_s`: seconds in which a Task was on a
    Gpu; `idle_s`: of these, in minutes in which nothing ran; null: not known."""

    t: int
    of: str | None
    gpu_s: float
    idle_s: float
    util_pct: float | None
    mem_used_bytes: float | None
    energy_j: float | None


class UsageList(Struct):
    by: str
    bucket: int
    start: int
    end: int
    items: list[UsageItem]


def series_view(frame: "pd.DataFrame", gpu: str, metrics: Sequence[str], span: tuple[int, int],
                step: int) -> Series:
    """Of the first metric; the others stand in `also`."""
    grid = range(span[0], span[1], step)
    rows = {int(t): at for at, t in enumerate(frame["t"].tolist())}
    bands = {metric: _band(frame, metric, [rows.get(t) for t in grid]) for metric in metrics}
    first = metrics[0]
    own = bands.pop(first)
    return Series(gpu, first, metric_of(first).unit, span[0], span[1], step, list(grid),
                  own.mean, own.min, own.max, bands)


def _band(frame: "pd.DataFrame", metric: str, rows: list[int | None]) -> Band:
    columns: list[Numbers] = []
    for agg in ("mean", "min", "max"):
        values = numbers(frame[f"{metric}_{agg}"]) if f"{metric}_{agg}" in frame else []
        columns.append([values[at] if at is not None and values else None for at in rows])
    return Band(*columns)


def instant_view(frame: "pd.DataFrame", metric: str, at: int, known: Iterable[tuple[str, str]]
                 ) -> Instant:
    """`known`: the Gpus that are there now, with their Nodes."""
    rows = zip(frame["gpu"].tolist(), frame["node"].tolist(), frame["t"].tolist(),
               numbers(frame["value"]), frame["missing"].tolist(), strict=True)
    items = {(gpu, node): InstantItem(gpu, node, int(t), value,
                                      missing if value is None else None)
             for gpu, node, t, value, missing in rows}
    for gpu, node in known:
        items.setdefault((gpu, node), InstantItem(gpu, node, None, None, "unknown"))
    return Instant(metric, metric_of(metric).unit, at, [items[key] for key in sorted(items)])


def usage_view(frame: "pd.DataFrame", by: str, bucket: int, span: tuple[int, int]) -> UsageList:
    items = []
    for row in frame.to_dict("records"):
        of: Any = row[by]
        items.append(UsageItem(
            int(row["t"]), of if isinstance(of, str) else None, row["gpu_s"], row["idle_s"],
            _per(row["util_pct_s"], row["util_s"]), _per(row["mem_byte_s"], row["mem_s"]),
            row["energy_j"] if row["energy_s"] else None))
    return UsageList(by, bucket, *span, items)


def _per(total: float, seconds: float) -> float | None:
    return total / seconds if seconds else None


def numbers(column: "pd.Series[Any]") -> Numbers:
    """Nothing but numbers and null goes out."""
    return [None if value is None or not math.isfinite(value) else value
            for value in column.astype("float64").tolist()]
