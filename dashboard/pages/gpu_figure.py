"""Figure of single GPUs in the past: a chart for each metric, a line for each GPU, the range of
each step as a band, events as marks. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

from msgspec import Meta, Struct

from gpudeck.measures.metrics import Metric

from .figures import (
    GIB,
    JOULES_PER_KWH,
    LONGEST_NOTE,
    AlertBegin,
    Figure,
    FigureStyle,
    Item,
    Row,
    Rows,
    Word,
    axis_name,
    hairlines,
    plain,
    severity_colour,
    translucent,
)

# Unit of a metric in a figure, factor, format.
UNITS = {"B": ("GiB", 1 / GIB, ".1f"), "B/s": ("MB/s", 1e-6, ".1f"),
         "J": ("kWh", 1 / JOULES_PER_KWH, ".2f")}
ABSENCES = {"unsupported": "Not supported here",
            "denied": "Denied by the driver (agent lacks permission)"}
# Symbol and size of an event's mark.
MARKS = {"critical": ("diamond", 11), "warning": ("triangle-up", 10), "info": ("circle", 6)}
COLOUR_KEYS = {"critical": "crit", "warning": "warn", "info": "info"}
MARKS_AT = 0.03  # share of the lowest chart's height
LONE_PX = 3
DIGITS = 3

Numbers = Sequence[float | None]


class PastGpu(Struct):
    """GPU of a figure. `label`: its name there; `node`: None once no node reports it. `missing`:
    reasons why metrics are missing now, by key."""

    uuid: Word
    label: Annotated[str, Meta(max_length=256)]
    node: Word | None = None
    missing: Annotated[dict[Word, Word], Meta(max_length=64)] = {}


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """Series of GPUs: steps of `step` seconds that begin at `start`. `bands`: mean, min and max of
    each step by UUID, then by metric; None where nothing is known."""

    start: int
    step: int
    bands: Mapping[str, Mapping[str, Item]]

    def data_span(self) -> tuple[int, int] | None:
        """Return the span from the first to the last step with data."""
        places = [at for metrics in self.bands.values() for band in metrics.values()
                  for at, value in enumerate(band["mean"]) if value is not None]
        if not places:
            return None
        return self.start + min(places) * self.step, self.start + (max(places) + 1) * self.step


def series_of(answer: Item) -> GpuSeries:
    """Convert the answer of `GET series`."""
    bands = {answer["gpu"]: {answer["metric"]: answer, **answer["also"]}, **answer["beside"]}
    return GpuSeries(answer["start"], answer["step"], bands)


def gpu_figure(series: GpuSeries, gpus: Sequence[PastGpu], metrics: Sequence[Metric],
               bounds: tuple[float, float], style: FigureStyle, *, has_band: bool = True,
               events: Sequence[Item] = (), begins: Sequence[AlertBegin] = ()) -> Figure:
    rows = [_row(series, gpus, metric) for metric in metrics]
    layout = Rows(style, rows, bounds, "No data").layout()
    layout["shapes"] = hairlines(rows, begins, style)
    bands: list[Figure] = []
    lines: list[Figure] = []
    for row, metric in enumerate(metrics):
        for at, gpu in enumerate(gpus):
            band = series.bands.get(gpu.uuid, {}).get(metric.key)
            if band is None or all(value is None for value in band["mean"]):
                continue
            colour = style.colours.lines[at % len(style.colours.lines)]
            trace = _GpuTrace(series, band, metric, style, colour,
                              {"type": "scatter", "xaxis": "x", "yaxis": axis_name(row, "y"),
                               "legendgroup": gpu.uuid})
            if has_band and series.step > 1:
                bands.append(trace.outline())
            lines.append(trace.line() | {
                "name": plain(gpu.label), "showlegend": row == 0,
                "meta": {"gpu": gpu.uuid, "metric": metric.key}})
            lines += trace.lone_steps()
    data = [*bands, *lines]
    if events:
        layout[axis_name(len(rows), "yaxis")] = {
            "overlaying": axis_name(len(rows) - 1, "y"), "range": [0, 1], "visible": False,
            "fixedrange": True}
        data.append(_event_marks(events, axis_name(len(rows), "y"), style))
    return {"layout": layout, "data": data}


def _row(series: GpuSeries, gpus: Sequence[PastGpu], metric: Metric) -> Row:
    values = [value for gpu in gpus
              for value in series.bands.get(gpu.uuid, {}).get(metric.key, {"mean": ()})["mean"]]
    reasons = {gpu.missing.get(metric.key) for gpu in gpus}
    reason = reasons.pop() if len(reasons) == 1 else None  # the same of all of them
    return Row(metric.label, _unit(metric)[0], (), values,
               highest=101 if metric.unit == "%" else None, metric=metric.key,
               is_from_zero=metric.unit != "°C", empty=ABSENCES.get(reason or "", ""))


def _unit(metric: Metric) -> tuple[str, float, str]:
    return UNITS.get(metric.unit, (metric.unit, 1.0, ".1f"))


@dataclass(frozen=True, slots=True)
class _GpuTrace:
    """A metric of one GPU, as Plotly's traces. `base`: traits that they share."""

    series: GpuSeries
    band: Item
    metric: Metric
    style: FigureStyle
    colour: str
    base: Figure

    def line(self) -> Figure:
        """Trace of the means, a point in the middle of each step; a gap is a gap."""
        step, (_, by, form) = self.series.step, _unit(self.metric)
        template = f"%{{y:{form}}}"
        trace = self.base | {
            "mode": "lines", "connectgaps": False, "x0": self._x(0.5),
            "dx": step * 1_000, "y": _numbers(self.band["mean"], by),
            "line": {"color": self.colour, "width": 1.5}, "hovertemplate": template}
        if step == 1:
            return trace
        pairs = zip(_numbers(self.band["min"], by), _numbers(self.band["max"], by), strict=True)
        return trace | {"customdata": [*pairs], "hovertemplate": (
            f"{template}  (%{{customdata[0]:{form}}} to %{{customdata[1]:{form}}})")}

    def lone_steps(self) -> list[Figure]:
        """Traces of steps between two gaps, from start to end: no line goes through one point. The
        marks show them where a step is thinner than a pixel."""
        values, x, y = _numbers(self.band["mean"], _unit(self.metric)[1]), [], []
        for run in runs_of(values):
            if len(run) == 1:
                x += [self._x(run[0]), self._x(run[0] + 1), None]
                y += [values[run[0]], values[run[0]], None]
        return [self.base | {
            "mode": "lines+markers", "x": x, "y": y, "line": {"color": self.colour, "width": 1.5},
            "marker": {"color": self.colour, "size": LONE_PX}, "hoverinfo": "skip",
            "showlegend": False}] if x else []

    def outline(self) -> Figure:
        """Area from minimum to maximum, an outline for each run without a gap."""
        by = _unit(self.metric)[1]
        low, high = _numbers(self.band["min"], by), _numbers(self.band["max"], by)
        x: list[float | None] = []
        y: list[float | None] = []
        for run in runs_of(low):
            there = ([(run[0], run[0]), (run[0] + 1, run[0])] if len(run) == 1
                     else [(at + 0.5, at) for at in run])
            x += [*(self._x(spot) for spot, _ in (*there, *reversed(there))), None]
            y += [*(high[at] for _, at in there), *(low[at] for _, at in reversed(there)), None]
        return self.base | {
            "mode": "lines", "x": x, "y": y, "fill": "toself",
            "fillcolor": translucent(self.colour), "line": {"width": 0}, "hoverinfo": "skip",
            "showlegend": False}

    def _x(self, steps: float) -> int:
        return int(self.style.x(self.series.start + steps * self.series.step))


def _numbers(values: Numbers, by: float) -> list[float | None]:
    """Return values in the unit of the figure. Digits that nobody sees would double its size."""
    return [None if value is None else round(value * by, DIGITS) for value in values]


def runs_of(values: Numbers) -> Iterator[list[int]]:
    """Yield the places of values that stand together without a gap."""
    for is_gap, run in groupby(range(len(values)), key=lambda at: values[at] is None):
        if not is_gap:
            yield [*run]


def _event_marks(events: Sequence[Item], axis: str, style: FigureStyle) -> Figure:
    """Marks at the lower edge of the lowest chart, by severity."""
    events = sorted(events, key=lambda event: float(event["at"]))
    marks = [MARKS.get(event["severity"], MARKS["info"]) for event in events]
    colours = [severity_colour(COLOUR_KEYS.get(event["severity"], "info"), style.colours)
               for event in events]
    return {"type": "scatter", "mode": "markers", "xaxis": "x", "yaxis": axis, "name": "Events",
            "showlegend": False, "cliponaxis": False,
            "x": [style.x(event["at"]) for event in events], "y": [MARKS_AT] * len(events),
            "marker": {"symbol": [symbol for symbol, _ in marks], "size": [px for _, px in marks],
                       "color": colours, "line": {"width": 1, "color": style.colours.ground}},
            "text": [plain(_event_words(event), LONGEST_NOTE) for event in events],
            "hovertemplate": "%{text}<extra></extra>"}


def _event_words(event: Item) -> str:
    place = "" if event["index"] is None else f":{event['place'] or event['index']}"
    return " · ".join(filter(None, (event["label"], f"{event['host']}{place}", event["text"])))
