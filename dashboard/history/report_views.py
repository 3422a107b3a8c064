"""Reports: what each owner, job, Node or GPU held over a time, and what that cost. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .usage_names import NONE_WORDS
from .views import ItemPlaces, finite, item_columns, mem_s_of, per

if TYPE_CHECKING:
    import pandas as pd

HOUR_S, KWH_J = 3_600.0, 3.6e6


@dataclass(frozen=True, slots=True)
class ReportPrices:
    """Prices, in whatever currency the client has in mind."""

    gpu_hour: float | None = None
    kwh: float | None = None
    teams: Mapping[str, float] = field(default_factory=dict)  # of a GPU-hour, where it differs
    co2_g_per_kwh: float | None = None  # of the site's electricity

    def of(self, team: str | None) -> "ReportPrices":
        price = None if team is None else self.teams.get(team)
        return self if price is None else replace(self, gpu_hour=price, teams={})


class ReportItem(Struct):
    """Null: not known. `util_share`, `sm_share` and `energy_share`: for which part of the GPU-hours
    that was measured; `idle_share`: idle, of the part whose load was. `of` is "" where it is known
    to be of none, such as no pod. `idle_cost`: of the idle hours, at the price of a GPU-hour."""

    of: str | None
    name: str | None
    gpu_hours: float
    util_pct: float | None
    util_share: float
    idle_hours: float | None
    idle_share: float | None
    mem_used_bytes: float | None
    energy_kwh: float | None
    energy_share: float
    cost: float | None
    mem_max_bytes: float | None = None  # the most that one job held on one GPU
    co2_kg: float | None = None  # null too where the report has no factor
    idle_cost: float | None = None
    sm_pct: float | None = None  # the average SM activity, where the boards report it
    sm_share: float = 0.0


class Report(Struct):
    by: str
    start: int  # whole hours
    end: int
    since: int | None  # of what history knows at all, as far as it is in files
    price_gpu_hour: float | None
    price_kwh: float | None
    items: list[ReportItem]  # those who held most first
    total: ReportItem
    coverage: float | None = None  # of the span, the share that history has; None: not known
    co2_g_per_kwh: float | None = None
    backfilling: int = 0  # nodes that still send what they measured while the hub was away
    joining: bool = False  # what the archive has of before this hub took over is not there yet


def report_view(frame: "pd.DataFrame", by: str, span: tuple[int, int], prices: ReportPrices,
                names: Mapping[str, str], since: int | None, teams: Mapping[str, str] | None = None
                ) -> Report:
    """`teams`: of owners, for the price of their team."""
    items = []
    for row in frame.to_dict("records"):
        of = row[by] if isinstance(row[by], str) else None
        team = of if by == "team" else (teams or {}).get(of or "")
        items.append(_item((of, _name(of, by, names)), row, prices.of(team), mem_s_of(by)))
    items.sort(key=lambda item: (-item.gpu_hours, item.name or ""))
    sums: dict[str, float] = {
        str(name): math.fsum(frame[name].tolist()) for name in frame.columns
        if name not in ("t", by, "mem_max_bytes")}
    sums["mem_max_bytes"] = max((item.mem_max_bytes for item in items
                                 if item.mem_max_bytes is not None), default=math.nan)
    total = _item((None, None), sums, prices, "mem_s")
    if prices.teams and by in ("user", "team"):
        total.cost = _sum(item.cost for item in items)
        total.idle_cost = _sum(item.idle_cost for item in items)
    return Report(by, *span, since, prices.gpu_hour, prices.kwh, items, total,
                  co2_g_per_kwh=prices.co2_g_per_kwh)


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) if numbers else None


def _name(of: str | None, by: str, names: Mapping[str, str]) -> str | None:
    if of == "":
        return NONE_WORDS.get(by, "")
    return of if of is None else names.get(of, of)


def _item(what: tuple[str | None, str | None], sums: Mapping[Any, Any],
          prices: ReportPrices, mem_s: str) -> ReportItem:
    gpu_s, util_s, energy_s = sums["gpu_s"], sums["util_s"], sums["energy_s"]
    load_s = sums["load_s"]
    gpu_hours = gpu_s / HOUR_S
    energy_kwh = sums["energy_j"] / KWH_J if energy_s else None
    factor = prices.co2_g_per_kwh
    idle_hours = sums["idle_s"] / HOUR_S if load_s else None
    return ReportItem(
        *what, gpu_hours, per(sums["util_pct_s"], util_s), per(util_s, gpu_s) or 0.0,
        idle_hours, per(sums["idle_s"], load_s),
        per(sums["mem_byte_s"], sums[mem_s]), energy_kwh, per(energy_s, gpu_s) or 0.0,
        _cost(gpu_hours, energy_kwh, prices), finite(sums["mem_max_bytes"]),
        None if factor is None or energy_kwh is None else energy_kwh * factor / 1_000,
        None if prices.gpu_hour is None or idle_hours is None else prices.gpu_hour * idle_hours,
        per(sums["sm_pct_s"], sums["sm_s"]), per(sums["sm_s"], gpu_s) or 0.0)


def _cost(gpu_hours: float, energy_kwh: float | None, prices: ReportPrices) -> float | None:
    """Return the cost. Energy that nobody measured has no price, not one that is too low."""
    if prices.gpu_hour is None and prices.kwh is None:
        return None
    if prices.kwh is not None and energy_kwh is None and gpu_hours > 0:
        return None
    return (prices.gpu_hour or 0.0) * gpu_hours + (prices.kwh or 0.0) * (energy_kwh or 0.0)


def report_columns(report: Report, where: ItemPlaces) -> dict[str, list[Any]]:
    """Return the columns without the sum, which would look like one more owner in the file."""
    columns = item_columns(ReportItem, report.items, report.by, where)
    if report.by == "user":
        del columns["name"]
    count = len(report.items)
    return columns | {"start": [report.start] * count, "end": [report.end] * count}
