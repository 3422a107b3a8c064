"""Figures as Plotly takes them: the fleet's load, an owner's or a team's usage, a report's hours, a
rehearsal, the next day, the audit log. Pure."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Figure = dict[str, Any]
Item = Mapping[str, Any]
Word = Annotated[str, Meta(max_length=128)]

GIB = 2**30
HOUR_S = 3_600
JOULES_PER_KWH = 3.6e6
ROW_PX = (112, 240)
GAP_PX = 32
EDGES_PX = 70
SHORT_ROW_PX = 18
MOST_NAMED = 8
MOST_ROWS = 24
LONGEST, LONGEST_NOTE = 60, 160
OTHERS = "all others"
HoursShown = Literal["idle", "held"]
SHOWN_HOURS: dict[HoursShown, tuple[str, str]] = {
    "idle": ("idle_s", "idle GPU-hours"), "held": ("gpu_s", "GPU-hours")}
SMALL_KWH = 0.1
# Longest span, seconds of a bar in it, and the name of that time.
AUDIT_BUCKETS = ((2 * HOUR_S, 300, "5 min"), (48 * HOUR_S, HOUR_S, "hour"),
                 (float("inf"), 24 * HOUR_S, "day"))
# Outcomes in the audit log; any other outcome counts as done.
OUTCOMES: dict[str, tuple[str, ...]] = {
    "done": (), "in progress": ("requested", "queued", "sent", "accepted", "acting"),
    "refused": ("refused", "denied", "expired"),
    "failed": ("failed", "unkillable", "not_effective", "unknown")}
# Dates as the pages write them, by the milliseconds from tick to tick, below the first of each day.
TICK_FORMATS = [{"dtickrange": [least, most], "value": words} for least, most, words in (
    (None, 30_000, "%H:%M:%S\n%-d %b %Y"), (60_000, 43_200_000, "%H:%M\n%-d %b %Y"),
    (86_400_000, "M1", "%-d %b\n%Y"), ("M1", None, "%b %Y"))]
# Title, unit, factor.
FORECASTS = {"gpus_held": ("GPUs held", "", 1.0), "gpus_waited_for": ("GPUs waited for", "", 1.0),
             "power_w": ("Power", "kW", 1e-3)}


class Colours(Struct):
    """Colours of the requesting page in its current theme."""

    ground: Word
    raised: Word
    line: Word
    ink: Word
    soft: Word
    warn: Word
    bad: Word
    font: Annotated[str, Meta(max_length=256)]
    lines: Annotated[list[Word], Meta(min_length=8, max_length=8)]


class FigureStyle(Struct):
    """Look of a figure. `zone_s`: seconds east of UTC where it is viewed."""

    colours: Colours
    zone_s: Annotated[int, Meta(ge=-86_400, le=86_400)]
    height: Annotated[int, Meta(ge=0, le=4_000)]
    is_pan: bool = False
    text_px: Annotated[float, Meta(ge=6, le=40)] = 11

    def x(self, t: float) -> float:
        """Return a moment in milliseconds, which Plotly shows in the browser's zone."""
        return t * 1_000


@dataclass(frozen=True, slots=True)
class Row:
    """A chart of a figure. `values`: None where a value is unknown."""

    title: str
    unit: str
    x: Sequence[float]
    values: Sequence[float | None]
    highest: float | None = None
    metric: str = ""  # rules about it have their alerts marked in this chart
    is_from_zero: bool = True
    empty: str = ""  # words for a row without any value, if not those of the whole figure


@dataclass(frozen=True, slots=True)
class AlertBegin:
    """Start of an alert. `metrics`: those its rule is about."""

    at: float
    severity: str
    metrics: frozenset[str]


@dataclass(slots=True)
class Rows:
    """Rows of one height, one below the other, on one time axis."""

    style: FigureStyle
    rows: Sequence[Row]
    bounds: tuple[float, float]
    empty: str
    titles: list[Figure] = field(default_factory=list)
    notes: list[Figure] = field(default_factory=list)  # where a row is empty

    def layout(self) -> Figure:
        style, count = self.style, len(self.rows)
        low, high = ROW_PX
        row = min(high, max(low, (style.height - EDGES_PX + GAP_PX) / count - GAP_PX))
        inner = count * (row + GAP_PX) - GAP_PX
        layout = base_layout(style) | {
            "height": inner + EDGES_PX, "margin": {"l": 62, "r": 14, "t": 30, "b": 40, "pad": 0},
            "hovermode": "x unified", "dragmode": "pan" if style.is_pan else "zoom",
            # Below all rows. Anchored to the lowest, it rises to the first where that is empty.
            "xaxis": time_axis(style, self.bounds) | {"anchor": "free", "position": 0}}
        for at, chart in enumerate(self.rows):
            top = 1 - at * (row + GAP_PX) / inner
            domain = (max(0.0, top - row / inner), top)
            layout[axis_name(at, "yaxis")] = self._axis_of(chart, domain)
        return layout | {"annotations": [*self.titles, *self.notes]}

    def _axis_of(self, row: Row, domain: tuple[float, float]) -> Figure:
        colours = self.style.colours
        unit = f"  {plain(row.unit)}" if row.unit else ""
        self.titles.append({
            "text": f"<b>{plain(row.title)}</b>{unit}", "xref": "paper", "yref": "paper", "x": 0,
            "xanchor": "left", "y": domain[1], "yanchor": "bottom", "yshift": 4,
            "showarrow": False, "font": {"color": colours.ink, "size": self.style.text_px + 1}})
        axis: Figure = {"domain": domain, "gridcolor": colours.line, "zeroline": False,
                        "fixedrange": True, "nticks": 5, "tickfont": {"color": colours.soft},
                        "rangemode": "tozero" if row.is_from_zero else "normal"}
        if not has_any(row):
            # In the middle of the chart, without numbers on its axis.
            self.notes.append({
                "text": plain(row.empty or self.empty), "xref": "paper", "yref": "paper", "x": 0.5,
                "y": sum(domain) / 2, "showarrow": False,
                "font": {"color": colours.soft, "size": self.style.text_px + 1}})
            return axis | {"range": [0, 1], "showticklabels": False, "showgrid": False}
        return axis if row.highest is None else axis | {"range": [0, row.highest]}


def hairlines(rows: Sequence[Row], begins: Iterable[AlertBegin], style: FigureStyle
              ) -> list[Figure]:
    """A line at the start of each alert, in the chart of the metric that its rule reads."""
    return [{"type": "line", "xref": "x", "yref": f"{axis_name(at, 'y')} domain", "x0": style.x(
                 begin.at), "x1": style.x(begin.at), "y0": 0, "y1": 1, "opacity": 0.7,
             "line": {"width": 1, "color": severity_colour(begin.severity, style.colours)}}
            for at, row in enumerate(rows) for begin in begins if row.metric in begin.metrics]


def severity_colour(severity: str, colours: Colours) -> str:
    return {"crit": colours.bad, "warn": colours.warn}.get(severity, colours.soft)


def load_figure(load: Item, bounds: tuple[float, float], style: FigureStyle,
                begins: Sequence[AlertBegin] = ()) -> Figure:
    """Figure of a fleet or a part of it: utilization, memory and power, GPUs that reported."""
    rows = [Row(title, unit, *_steps(load, values, style), highest, metric)
            for title, unit, values, highest, metric in (
                ("Average utilization", "%", load["util_mean_pct"], 101, "util_pct"),
                ("Memory used", "GiB", scaled(load["mem_used_bytes"], 1 / GIB), None,
                 "mem_used_bytes"),
                ("Power", "kW", scaled(load["power_w"], 1e-3), None, "power_w"),
                ("GPUs that reported", "", load["gpus"], None, ""))]
    layout = Rows(style, rows, bounds, "No data").layout()
    layout["shapes"] = hairlines(rows, begins, style)
    if load["busiest"] is not None:
        layout["shapes"] += [{
            "type": "rect", "xref": "x", "yref": "paper", "x0": style.x(load["busiest"]["start"]),
            "x1": style.x(load["busiest"]["end"]), "y0": 0, "y1": 1, "layer": "below",
            "line": {"width": 0}, "fillcolor": style.colours.ink, "opacity": 0.08}]
    return {"layout": layout, "data": [
        {"type": "scatter", "mode": "lines", "xaxis": "x", "yaxis": axis_name(at, "y"), "x": row.x,
         "y": row.values, "name": row.title, "connectgaps": False, "hovertemplate": "%{y:.1f}",
         "line": {"color": style.colours.lines[at], "width": 1.5}}
        for at, row in enumerate(rows) if has_any(row)] + [
        {"type": "scatter", "mode": "lines", "xaxis": "x", "yaxis": axis_name(at, "y"),
         "x": x, "y": y, "fill": "toself", "line": {"width": 0}, "hoverinfo": "skip",
         "fillcolor": translucent(style.colours.lines[at])}
        for at, row in enumerate(rows) for x, y in [_area(row)] if x]}


def _area(row: Row) -> tuple[list[float | None], list[float | None]]:
    """Return the area below the line, an outline for each run without a gap: Plotly's `tozeroy`
    would fill across unknown values."""
    x: list[float | None] = []
    y: list[float | None] = []
    points = zip(row.x, row.values, strict=True)
    for is_hole, run in groupby(points, key=lambda point: point[1] is None):
        if is_hole:
            continue
        times, values = zip(*run, strict=True)
        x += [times[0], *times, times[-1], None]
        y += [0.0, *values, 0.0, None]
    return x, y


def _steps(load: Item, values: Sequence[float | None], style: FigureStyle
           ) -> tuple[list[float], list[float | None]]:
    """Return x and y of the steps, each at its middle. A single step between gaps would be no line,
    so it is drawn from its start to its end."""
    step, x, y = load["step"], [], []
    for at, value in enumerate(values):
        start = load["start"] + at * step
        is_alone = value is not None and not any(
            0 <= near < len(values) and values[near] is not None for near in (at - 1, at + 1))
        for t in (start, start + step) if is_alone else (start + step / 2,):
            x.append(style.x(t))
            y.append(value)
    return x, y


def usage_figure(usage: Item, bounds: tuple[float, float], now: float, style: FigureStyle,
                 begins: Sequence[AlertBegin] = ()) -> Figure:
    """Figure of an owner's or team's usage: GPUs, utilization, memory, energy."""
    items, step = usage["items"], usage["bucket"]
    kwh = scaled([item["energy_j"] for item in items], 1 / JOULES_PER_KWH)
    is_little = max((amount for amount in kwh if amount is not None), default=0.0) < SMALL_KWH
    x = [style.x(item["t"] + step / 2) for item in items]
    # The last bucket may not be over yet: only its elapsed part counts.
    gpus = [item["gpu_s"] / max(1.0, min(step, now - item["t"])) for item in items]
    rows = [Row("GPUs held", "", x, gpus),
            Row("Average utilization", "%", x, [item["util_pct"] for item in items], 101,
                "util_pct"),
            Row("Memory held per GPU", "GiB", x,
                scaled([item["mem_used_bytes"] for item in items], 1 / GIB),
                metric="mem_used_bytes"),
            Row("Energy per step", "Wh" if is_little else "kWh", x,
                scaled(kwh, 1_000 if is_little else 1), metric="power_w")]
    return {"layout": Rows(style, rows, bounds, "No GPU held, or no data").layout()
            | {"bargap": 0.1, "shapes": hairlines(rows, begins, style)}, "data": [
        {"type": "bar", "xaxis": "x", "yaxis": axis_name(at, "y"), "x": row.x, "y": row.values,
         "width": step * 1_000 * 0.92, "name": row.title, "hovertemplate": "%{y:.1f}",
         "marker": {"color": style.colours.lines[at], "line": {"width": 0}}}
        for at, row in enumerate(rows) if has_any(row)]}


def hours_figure(usage: Item, names: Mapping[str, str], show: HoursShown, style: FigureStyle
                 ) -> Figure:
    """Figure of GPU-hours per bucket, stacked: those of `names`, then all others."""
    step = usage["bucket"]
    seconds, words = SHOWN_HOURS[show]
    times = range(usage["start"], usage["end"], step)
    hours = {of: dict.fromkeys(times, 0.0) for of in (*names, None)}
    for item in usage["items"]:
        of = item["of"] if item["of"] in names else None
        if item["t"] in hours[of]:
            hours[of][item["t"]] += item[seconds] / HOUR_S
    x = [style.x(t + step / 2) for t in times]
    colours = [*style.colours.lines[:MOST_NAMED], style.colours.line]
    bars = [(plain(names.get(of or "", OTHERS)) if of is not None else OTHERS, series)
            for of, series in hours.items() if of is not None or any(series.values())]
    layout = base_layout(style) | {
        "height": style.height, "margin": {"l": 46, "r": 10, "t": 8, "b": 34}, "barmode": "stack",
        "bargap": 0.12, "hovermode": "x unified", "dragmode": False,
        "xaxis": time_axis(style, (usage["start"], usage["end"])) | {"fixedrange": True},
        "yaxis": {"gridcolor": style.colours.line, "zeroline": False, "rangemode": "tozero",
                  "nticks": 5, "fixedrange": True, "tickfont": {"color": style.colours.soft}}}
    return {"layout": layout, "data": [
        {"type": "bar", "x": x, "y": [*series.values()], "name": name,
         "hovertemplate": f"%{{y:.1f}} {words}", "marker": {
             "color": colours[-1] if name == OTHERS else colours[at], "line": {"width": 0}}}
        for at, (name, series) in enumerate(bars)]}


def audit_figure(entries: Sequence[Item], bounds: tuple[float, float], style: FigureStyle
                 ) -> Figure:
    """Figure of audit log entries per five minutes, hour or local day, stacked by outcome."""
    start, end = bounds
    bucket, per = next((bucket, per) for longest, bucket, per in AUDIT_BUCKETS
                       if end - start <= longest)
    counts = {name: Counter[float]() for name in OUTCOMES}
    for entry in entries:
        if entry["at"] is not None:
            local = (entry["at"] + style.zone_s) // bucket * bucket
            counts[outcome_group(entry["outcome"])][local] += 1
    whole = [(start + style.zone_s) // bucket * bucket - style.zone_s,
             -(-(end + style.zone_s) // bucket) * bucket - style.zone_s]
    colours = (style.colours.lines[0], style.colours.soft, style.colours.warn, style.colours.bad)
    layout = base_layout(style) | {
        "showlegend": True, "legend": {"orientation": "h", "y": 1, "yanchor": "bottom"},
        "height": style.height, "margin": {"l": 46, "r": 10, "t": 26, "b": 34},
        "barmode": "stack", "bargap": 0.12, "hovermode": "x unified", "dragmode": False,
        "xaxis": time_axis(style, (whole[0], whole[1])) | {"fixedrange": True},
        "yaxis": {"gridcolor": style.colours.line, "zeroline": False, "rangemode": "tozero",
                  "nticks": 4, "fixedrange": True, "tickformat": ",d",
                  "tickfont": {"color": style.colours.soft}}}
    highest = max(sum(map(Counter, counts.values()), Counter[float]()).values(), default=0)
    if 0 < highest < 4:  # between whole entries there is nothing to read
        layout["yaxis"] |= {"dtick": 1}
    if not any(counts.values()):
        layout |= {"annotations": [{
            "text": "No entry in this time", "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5,
            "showarrow": False, "font": {"color": style.colours.soft, "size": style.text_px + 1}}]}
        layout["yaxis"] |= {"range": [0, 1], "showticklabels": False, "showgrid": False}
    return {"layout": layout, "data": [
        {"type": "bar", "name": name,
         "x": [style.x(at + bucket / 2 - style.zone_s) for at in sorted(tally)],
         "y": [tally[at] for at in sorted(tally)], "width": bucket * 1_000 * 0.88,
         "hovertemplate": f"%{{y}} per {per}", "marker": {"color": colour, "line": {"width": 0}}}
        for (name, tally), colour in zip(counts.items(), colours, strict=True) if tally]}


def outcome_group(word: str | None) -> str:
    """Return the name in OUTCOMES of an outcome."""
    return next((name for name, words in OUTCOMES.items() if word in words), "done")


def forecast_figure(demand: Sequence[Item], style: FigureStyle) -> Figure:
    """Figure of each forecast's last days by the hour, then the next day: the expected value, and
    the range in which it lies in 8 of 10 cases. `demand` must not be empty."""
    rows: list[Row] = []
    traces: list[Figure] = []
    colour = style.colours.lines[0]
    for at, forecast in enumerate(demand):
        title, unit, by = FORECASTS[forecast["name"]]
        begin, next_day = forecast["recent_from"], forecast["starts_at"]
        rows.append(Row(title, unit, _hours(style, begin, len(forecast["recent"])),
                        scaled(forecast["recent"], by)))
        low, middle, high = (scaled(forecast[name], by) for name in ("p10", "p50", "p90"))
        ahead = _hours(style, next_day, len(middle))
        line = {"type": "scatter", "mode": "lines", "xaxis": "x", "yaxis": axis_name(at, "y")}
        traces += [
            line | {"x": rows[-1].x, "y": rows[-1].values, "name": title, "connectgaps": False,
                    "hovertemplate": "%{y:.1f}", "line": {"color": colour, "width": 1.5}},
            line | {"x": ahead + ahead[::-1], "y": high + low[::-1], "fill": "toself",
                    "fillcolor": translucent(colour), "line": {"width": 0}, "hoverinfo": "skip"},
            line | {"x": ahead, "y": middle, "name": f"{title}, expected",
                    "customdata": [*zip(low, high, strict=True)],
                    "hovertemplate": "%{y:.1f} (%{customdata[0]:.1f} to %{customdata[1]:.1f})",
                    "line": {"color": colour, "width": 1.5, "dash": "dash"}}]
    first = min(forecast["recent_from"] for forecast in demand)
    now = max(forecast["starts_at"] for forecast in demand)
    last = max(forecast["starts_at"] + HOUR_S * len(forecast["p50"]) for forecast in demand)
    layout = Rows(style, rows, (first, last), "No data").layout()
    layout["shapes"] = [{"type": "line", "xref": "x", "yref": "paper", "x0": style.x(now),
                         "x1": style.x(now), "y0": 0, "y1": 1, "layer": "below",
                         "line": {"color": style.colours.soft, "width": 1, "dash": "dot"}}]
    return {"layout": layout | {"dragmode": False}, "data": traces}


def _hours(style: FigureStyle, start: float, count: int) -> list[float]:
    """Return x of `count` hours, each at its middle."""
    return [style.x(start + HOUR_S * (hour + 0.5)) for hour in range(count)]


def rehearsal_figure(rehearsal: Item, fired: Sequence[Item], style: FigureStyle) -> Figure:
    """Figure of a rehearsal, a row for each target with a rehearsed alert or one of `fired`: when
    it would have fired, below that when it did, and when actions would run."""
    alerts = rehearsal["alerts"]
    targets = list(dict.fromkeys(_target(alert) for alert in (*alerts, *fired)))
    rows = targets[:MOST_ROWS]
    colour = style.colours.bad if rehearsal["severity"] == "crit" else style.colours.warn
    row_of = {alert["target"]: _target(alert) for alert in alerts if _target(alert) in rows}
    victims = [victim for victim in rehearsal["victims"] if victim["target"] in row_of]
    margin = {"l": 10, "r": 14, "t": 30 if fired else 8, "b": 40}
    layout = base_layout(style) | {
        "showlegend": bool(fired), "legend": {"orientation": "h", "y": 1, "yanchor": "bottom"},
        "height": EDGES_PX + SHORT_ROW_PX * max(2, len(rows)), "barmode": "overlay",
        "margin": margin, "dragmode": "zoom", "hovermode": "closest",
        "xaxis": time_axis(style, (rehearsal["start"], rehearsal["end"])),
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": rows[::-1],
                  "automargin": True, "fixedrange": True, "gridcolor": style.colours.line,
                  "tickfont": {"color": style.colours.soft}}}
    span = rehearsal["start"], rehearsal["end"]
    would = _alert_bars("would have fired", alerts, rows, span, style) | {
        "marker": {"color": colour, "line": {"width": 1, "color": colour}}}
    did = _alert_bars("fired", fired, rows, span, style) | {
        "marker": {"color": style.colours.ground, "line": {"width": 1.5, "color": colour}}}
    if fired:  # side by side
        would, did = ({**bar, "width": 0.36, "offset": at} for bar, at in (
            (would, 0.02), (did, -0.38)))
    return {"layout": layout, "data": [would, *([did] if fired else []),
        {"type": "scatter", "mode": "markers", "name": "action", "showlegend": False,
         "x": [style.x(victim["at"]) for victim in victims],
         "y": [row_of[victim["target"]] for victim in victims],
         "marker": {"symbol": "x", "size": 8, "color": style.colours.ink},
         "text": [plain(victim["do"]) for victim in victims],
         "hovertemplate": "%{y}: %{text}<extra>would run</extra>"}]}


def _alert_bars(name: str, alerts: Sequence[Item], rows: Sequence[str],
                span: tuple[float, float], style: FigureStyle) -> Figure:
    """Return bars of the alerts in these rows, cut to the span."""
    bars = [alert for alert in alerts if _target(alert) in rows]
    starts = [max(span[0], alert["fired_at"]) for alert in bars]
    ends = [span[1] if alert["ended_at"] is None else min(span[1], alert["ended_at"])
            for alert in bars]
    return {"type": "bar", "orientation": "h", "name": name,
            "y": [_target(alert) for alert in bars],
            "base": [style.x(at) for at in starts],
            "x": [max(1.0, end - at) * 1_000 for at, end in zip(starts, ends, strict=True)],
            "text": [", ".join(map(plain, alert["users"][:3])) for alert in bars],
            "textposition": "none", "hovertemplate": f"%{{y}}  %{{text}}<extra>{name}</extra>"}


def blank_figure(words: str, style: FigureStyle) -> Figure:
    """Figure of nothing, with words in its middle."""
    return {"data": [], "layout": base_layout(style) | {
        "height": max(ROW_PX[0], style.height), "dragmode": False, "xaxis": {"visible": False},
        "yaxis": {"visible": False}, "annotations": [{
            "text": plain(words, LONGEST_NOTE), "xref": "paper", "yref": "paper", "x": 0.5,
            "y": 0.5, "showarrow": False, "font": {
                "color": style.colours.soft, "size": style.text_px + 1}}]}}


def base_layout(style: FigureStyle) -> Figure:
    colours = style.colours
    return {"autosize": True, "showlegend": False, "paper_bgcolor": colours.ground,
            "plot_bgcolor": colours.ground, "uirevision": "same",
            "font": {"family": colours.font, "size": style.text_px, "color": colours.soft},
            "hoverlabel": {"bgcolor": colours.raised, "bordercolor": colours.line,
                           "font": {"color": colours.ink, "size": style.text_px + 1},
                           "namelength": 40}}


def plain(text: object, longest: int = LONGEST) -> str:
    """Escape and shorten a text: Plotly interprets markup in names, and names come from nodes."""
    return html.escape(str(text)[:longest], quote=False)


def translucent(colour: str) -> str:
    """Return a line's colour, made transparent for the area below it."""
    try:
        red, green, blue = (int(colour[at:at + 2], 16) for at in (1, 3, 5))
    except ValueError:
        return "rgba(128, 128, 128, 0.18)"
    return f"rgba({red}, {green}, {blue}, 0.18)"


def _target(alert: Item) -> str:
    place = alert["place"]
    return plain((f"{alert['host']} GPU {place}" if place else alert["host"])
                 or ", ".join(alert["users"]) or alert["target"])


def time_axis(style: FigureStyle, bounds: tuple[float, float]) -> Figure:
    return {"type": "date", "range": [style.x(bound) for bound in bounds], "zeroline": False,
            "gridcolor": style.colours.line, "linecolor": style.colours.line,
            "hoverformat": "%a %-d %b %Y, %H:%M:%S", "tickformatstops": TICK_FORMATS,
            "tickfont": {"color": style.colours.soft}}


def axis_name(at: int, kind: str) -> str:
    return kind if at == 0 else f"{kind}{at + 1}"


def has_any(row: Row) -> bool:
    return any(value is not None for value in row.values)


def scaled(values: Iterable[float | None], by: float) -> list[float | None]:
    return [None if value is None else value * by for value in values]
