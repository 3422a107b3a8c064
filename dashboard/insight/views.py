"""Forecasts as the API and the page show them. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from .core.demand import OURS, Backtest, DemandOutlook, Floats, by_hour_of_day
from .core.outlook import GrowingMemory, MemoryTrackRecord
from .pool_outlook_views import RunTimeList, WaitList

HOUR_S = 3_600
RECENT_H = 72


class IntervalView(Struct):
    low: float
    mid: float
    high: float


class GrowingMemoryView(Struct):
    """A task whose memory on a GPU grew in all of the last 48 minutes. `full_in_s`: until the GPU
    is 95 % full, 30 days at most; null with `why`."""

    task_id: str
    node: str
    host: str
    gpu: str
    place: str
    user: str | None
    bytes_per_s: IntervalView
    full_in_s: IntervalView | None
    why: str


class MemoryTestView(Struct):
    """Test of forecasts over 64 minutes that came to their end within a week: absolute errors in
    bytes, and those of the guess that memory stays as it is."""

    forecasts: int
    error_bytes: float
    naive_error_bytes: float


class MemoryForecastList(Struct):
    """Forecasts of memory. `at`: the end of the minutes that they cover; null: history was not read
    yet."""

    at: float | None
    items: list[GrowingMemoryView]
    test: MemoryTestView


class DemandTestView(Struct):
    """Test on days of the past, forecast as if they were not known. `errors`: mean absolute error
    of each method. `ratio`: of ours to the best of the others. `covered_pct`: how many hours lay
    within p10 and p90."""

    days: int
    errors: dict[str, float]
    method: str
    best_naive: str
    ratio: float
    covered_pct: float | None


class DemandForecastView(Struct):
    """Demand by the hour: `gpus_held` by tasks (of `gpus`: the others are free), `power_w` of all
    boards together, or `gpus_waited_for` by claims. `recent`: null where it is not known; `p10` and
    so on: of the hours from `starts_at` on, empty with `why`. `usual_day`: at each hour of a day of
    UTC, the median of the last two weeks; empty before a week is known."""

    name: str
    recent_from: float
    recent: list[float | None]
    starts_at: float
    p10: list[float]
    p50: list[float]
    p90: list[float]
    gpus: int
    usual_day: list[float]
    test: DemandTestView | None
    why: str


class ForecastList(Struct):
    memory: MemoryForecastList
    demand: list[DemandForecastView]
    run_times: RunTimeList
    waits: WaitList


Place = Callable[[str, str], tuple[str, str] | None]  # node and GPU -> host and place, if seen
Room = Callable[[str, str], tuple[float, float] | None]  # -> memory of the GPU, and used of it


def memory_view(items: Iterable[GrowingMemory], at: int | None, record: MemoryTrackRecord,
                place: Place, room: Room) -> MemoryForecastList:
    why_not = record.why_not()
    views = [view for growing in items if (view := _growing_view(growing, why_not, place, room))]
    forecasts = record.forecasts
    return MemoryForecastList(at, views, MemoryTestView(
        forecasts, record.error / max(1, forecasts), record.stays_error / max(1, forecasts)))


def _growing_view(growing: GrowingMemory, why_not: str, place: Place, room: Room
                  ) -> GrowingMemoryView | None:
    where = place(growing.node_id, growing.gpu)
    if where is None:
        return None
    sizes = room(growing.node_id, growing.gpu)
    why = why_not or ("" if sizes else "the memory of its GPU is currently unknown")
    full = None if sizes is None or why else IntervalView(*growing.full_in_s(*sizes))
    return GrowingMemoryView(
        growing.task_id, growing.node_id, where[0], growing.gpu, where[1], growing.user,
        IntervalView(growing.low_per_s, growing.per_s, growing.high_per_s), full, why)


def demand_view(outlooks: Mapping[str, DemandOutlook], gpus: int, is_whole: bool
                ) -> list[DemandForecastView]:
    """Show the demand of the whole fleet, only to a user who sees all of it."""
    return [_demand_view(name, outlook, gpus) for name, outlook in outlooks.items()] \
        if is_whole else []


def _demand_view(name: str, outlook: DemandOutlook, gpus: int) -> DemandForecastView:
    most = float(gpus) if name == "gpus_held" else math.inf
    recent = outlook.recent[-RECENT_H:]
    ends = (outlook.first + len(outlook.recent)) * HOUR_S
    forecast = outlook.forecast
    return DemandForecastView(
        name, float(ends - len(recent) * HOUR_S),
        [None if value != value else round(value, 2) for value in recent.tolist()], float(ends),
        _capped(forecast.p10, most), _capped(forecast.p50, most), _capped(forecast.p90, most), gpus,
        _capped(by_hour_of_day(outlook.recent, outlook.first), most),
        None if forecast.test is None else _test_view(forecast.test), forecast.why)


def _capped(quantile: Floats, most: float) -> list[float]:
    return [round(min(value, most), 2) for value in quantile.tolist()]


def _test_view(test: Backtest) -> DemandTestView:
    return DemandTestView(
        test.folds, {name: round(error, 3) for name, error in test.errors.items()}, OURS,
        test.best_naive, round(test.ratio, 3),
        None if test.covered is None else round(100 * test.covered, 1))
