"""API views of the past."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gpudeck.measures.metrics import metric as metric_of

from .columns.usage import PARTS

if TYPE_CHECKING:
    import pandas as pd

Numbers = list[float | None]


class SeriesBand(Struct):
    mean: Numbers
    min: Numbers
    max: Numbers


class SeriesView(Struct):
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
    also: dict[str, SeriesBand] = {}  # of further metrics, on the same `t`
    beside: dict[str, dict[str, SeriesBand]] = {}  # of further GPUs: by UUID, then by metric


class InstantItem(Struct):
    """A value, or why there is none."""

    gpu: str
    node: str
    t: int | None
    value: float | None
    missing: str | None = None


class InstantView(Struct):
    metric: str
    unit: str
    at: int
    items: list[InstantItem]


class UsageItem(Struct):
    """Usage by one owner, job, Node or whatever is asked for, within one bucket. `of`: null where
    it is not known, "" where it is known to be of none. `gpu_s`: seconds in which a Task was on a
    GPU; `idle_s`: of these, in minutes in which its utilization stayed at 5 % or less; null: not
    known."""

    t: int
    of: str | None
    gpu_s: float
    idle_s: float
    util_pct: float | None
    mem_used_bytes: float | None
    mem_max_bytes: float | None
    energy_j: float | None
    sm_pct: float | None = None  # the average SM activity, where the boards report it


@dataclass(frozen=True, slots=True)
class ItemPlaces:
    """Places of items. `hosts`: host names by item, if each of it is on one."""

    cluster: str
    hosts: Mapping[str, str]


class UsageList(Struct):
    by: str
    bucket: int
    start: int
    end: int
    items: list[UsageItem]


def series_view(frame: "pd.DataFrame", gpus: Sequence[str], metrics: Sequence[str],
                span: tuple[int, int], step: int) -> SeriesView:
    """Return the series of the first GPU and metric; others are in `beside` and `also`."""
    grid = range(span[0], span[1], step)
    first, metric = gpus[0], metrics[0]
    bands = {gpu: _bands(frame[frame["gpu"] == gpu], metrics, grid) for gpu in gpus}
    also = bands.pop(first)
    own = also.pop(metric)
    return SeriesView(first, metric, metric_of(metric).unit, span[0], span[1], step, list(grid),
                      own.mean, own.min, own.max, also, bands)


def _bands(frame: "pd.DataFrame", metrics: Sequence[str], grid: range) -> dict[str, SeriesBand]:
    rows = {int(t): at for at, t in enumerate(frame["t"].tolist())}
    places = [rows.get(t) for t in grid]
    return {metric: _band(frame, metric, places) for metric in metrics}


def series_columns(series: SeriesView, cluster: str,
                   places: Mapping[str, tuple[str | None, str | None]]) -> dict[str, list[Any]]:
    """Return a table: GPU by GPU, a row per bucket, holes empty. `places`: host and place."""
    gpus = {series.gpu: {series.metric: SeriesBand(series.mean, series.min, series.max)}
            | series.also,
            **series.beside}
    times = [rfc_3339(t) for t in series.t]
    columns: dict[str, list[Any]] = {
        name: [] for name in ("time", "t", "gpu", "cluster", "host", "place")}
    for gpu, bands in gpus.items():
        host, place = places.get(gpu, (None, None))
        for name, values in (("time", times), ("t", series.t)):
            columns[name] += values
        for name, word in (("gpu", gpu), ("cluster", cluster), ("host", host), ("place", place)):
            columns[name] += [word] * len(times)
        for metric, band in bands.items():
            for agg in ("mean", "min", "max"):
                columns.setdefault(f"{metric}_{agg}", []).extend(getattr(band, agg))
    return columns


def usage_columns(usage: UsageList, where: ItemPlaces) -> dict[str, list[Any]]:
    return {"time": [rfc_3339(item.t) for item in usage.items]} | item_columns(
        UsageItem, usage.items, usage.by, where)


def item_columns(kind: type[Struct], items: Sequence[Any], by: str, where: ItemPlaces
                 ) -> dict[str, list[Any]]:
    columns = {by if name == "of" else name: [getattr(item, name) for item in items]
               for name in kind.__struct_fields__}
    return columns | {"cluster": [where.cluster] * len(items),
                      "host": [where.hosts.get(item.of) for item in items]}


def _band(frame: "pd.DataFrame", metric: str, rows: list[int | None]) -> SeriesBand:
    columns: list[Numbers] = []
    for agg in ("mean", "min", "max"):
        values = numbers(frame[f"{metric}_{agg}"]) if f"{metric}_{agg}" in frame else []
        columns.append([values[at] if at is not None and values else None for at in rows])
    return SeriesBand(*columns)


def instant_view(frame: "pd.DataFrame", metric: str, at: int, gpus: Iterable[tuple[str, str]]
                 ) -> InstantView:
    """`gpus`: those that are there now, with their Nodes."""
    rows = zip(frame["gpu"].tolist(), frame["node"].tolist(), frame["t"].tolist(),
               numbers(frame["value"]), frame["missing"].tolist(), strict=True)
    items = {(gpu, node): InstantItem(gpu, node, int(t), value,
                                      missing if value is None else None)
             for gpu, node, t, value, missing in rows}
    for gpu, node in gpus:
        items.setdefault((gpu, node), InstantItem(gpu, node, None, None, "unknown"))
    return InstantView(metric, metric_of(metric).unit, at, [items[key] for key in sorted(items)])


def usage_view(frame: "pd.DataFrame", by: str, bucket: int, span: tuple[int, int]) -> UsageList:
    items = []
    for row in frame.to_dict("records"):
        of: Any = row[by]
        items.append(UsageItem(
            int(row["t"]), of if isinstance(of, str) else None, row["gpu_s"], row["idle_s"],
            per(row["util_pct_s"], row["util_s"]), per(row["mem_byte_s"], row[mem_s_of(by)]),
            finite(row["mem_max_bytes"]), row["energy_j"] if row["energy_s"] else None,
            per(row["sm_pct_s"], row["sm_s"])))
    return UsageList(by, bucket, *span, items)


def rfc_3339(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).isoformat().replace("+00:00", "Z")


def per(total: float, seconds: float) -> float | None:
    return total / seconds if seconds else None


def mem_s_of(by: str) -> str:
    """Return what divides memory for its average: jobs of one owner on one GPU each have theirs."""
    return "mem_own_s" if by in PARTS else "mem_s"


def finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def numbers(column: "pd.Series[Any]") -> Numbers:
    """Return finite numbers; all else becomes null."""
    return [None if value is None or not math.isfinite(value) else value
            for value in column.astype("float64").tolist()]
