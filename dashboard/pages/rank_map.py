"""Ranks of a job over time, as data for its map (assets/jobs/job.mjs): for each metric the values,
what is full, and what the map shows, in words. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ..jobs.views import JobPage, JobRankView
from .words import amount, bytes_words, clock

Series = Sequence[Sequence[float | None]]
Full = Callable[[JobRankView, Series], float | None]

PER_PROCESSOR = 100.0  # percent
EMPTY = "Empty: the rank was not running, or its value is unknown."
NEW_JOB = "A new job: this page shows its history from its first full minute on."
NO_HISTORY = "No history of this job in this time."


@dataclass(frozen=True, slots=True)
class RankMetric:
    """A metric of ranks. `label`: on its button; `words`: its meaning; `per`: what a value is
    divided by before it is shown in its `unit`."""

    label: str
    words: str
    unit: str
    full: Full
    per: float = 1.0
    digits: int = 0


class RankMetricData(TypedDict):
    """A metric as assets/jobs/job.mjs paints it. `full`: the end of each rank's scale."""

    label: str
    legend: str
    unit: str
    per: float
    digits: int
    rows: list[list[float | None]]
    full: list[float | None]


class RankMapData(TypedDict):
    t: list[int]
    names: list[str]
    metrics: dict[str, RankMetricData]


def _at(full: float) -> Full:
    return lambda rank, rows: full


def _highest(rank: JobRankView, rows: Series) -> float:
    return max((value for row in rows for value in row if value is not None), default=0.0) or 1.0


METRICS = {
    "util_pct": RankMetric("Utilization", "GPU utilization", "%", _at(100)),
    "power_w": RankMetric("Power", "Power", "W", lambda rank, rows: rank.power_limit_w),
    "mem_used_bytes": RankMetric("Memory", "Memory of the rank", "B",
                                 lambda rank, rows: rank.mem_total_bytes),
    "mem_util_pct": RankMetric(
        "Memory traffic", "Memory utilization: share of time in which memory was read or written",
        "%", _at(100)),
    "sm_active_pct": RankMetric(
        "SM active", "SM active: share of the multiprocessors that were active", "%", _at(100)),
    "nvlink_tx_bytes_per_s": RankMetric(
        "NVLink", "NVLink: bytes sent per second over all links; the scale ends at the highest "
        "shown", "B/s", _highest),
    "temp_c": RankMetric("Temperature", "Temperature", "°C", _at(100)),
    "host_cpu_pct": RankMetric(
        "Host CPU", "Host CPU of the rank and its child processes, in CPU cores", "processors",
        _at(800), PER_PROCESSOR, 1),
    "io_pressure_pct": RankMetric(
        "Disk pressure", "Disk pressure of the host: share of time in which a process waited for a "
        "disk", "%", _at(100)),
}
# Of findings alone.
MORE = {
    "util_max_pct": RankMetric("Peak utilization", "", "%", _at(100)),
    "cpu_pressure_pct": RankMetric("CPU pressure", "", "%", _at(100)),
    "sm_clock_mhz": RankMetric("SM clock", "", "MHz", _at(100)),
}


def label_of(key: str) -> str:
    metric = (METRICS | MORE).get(key)
    return key if metric is None else metric.label


def value_words(key: str, value: float) -> str:
    metric = (METRICS | MORE).get(key)
    if metric is None:
        return amount(value, 1)
    if metric.unit.startswith("B"):
        return f"{bytes_words(value)}{metric.unit[1:]}"
    return f"{amount(value / metric.per, metric.digits)} {metric.unit}"


def rank_name(rank: JobRankView) -> str:
    number = "" if rank.number is None else f"rank {rank.number} · "
    return f"{number}{rank.host}:{rank.place}"


def is_reported(page: JobPage, key: str) -> bool:
    """Check whether any rank has the metric; before there is any history, that is not known."""
    return not page.ranks or any(
        value is not None for row in page.series.get(key, ()) for value in row)


def map_data(page: JobPage, zone: str, now: float) -> RankMapData:
    return {"t": page.t, "names": [rank_name(rank) for rank in page.ranks],
            "metrics": {key: _metric_data(page, key, zone, now) for key in METRICS}}


def _metric_data(page: JobPage, key: str, zone: str, now: float) -> RankMetricData:
    metric, rows = METRICS[key], page.series.get(key, [])
    return {"label": f"{metric.words}, {len(page.ranks)} ranks over time",
            "legend": _legend(page, metric, zone, now), "unit": metric.unit, "per": metric.per,
            "digits": metric.digits, "rows": rows,
            "full": [metric.full(rank, rows) for rank in page.ranks]}


def _legend(page: JobPage, metric: RankMetric, zone: str, now: float) -> str:
    if not page.ranks:
        return NEW_JOB if page.is_running else NO_HISTORY
    step = page.step
    column = f"{step / 60:g} min" if step < 3_600 else f"{step / 3_600:g} h"
    column = {60: "minute", 3_600: "hour"}.get(step, column)
    return (f"{metric.words}. {clock(page.start, now, zone)} to {clock(page.end, now, zone)}, a "
            f"column for each {column}. {EMPTY}")
