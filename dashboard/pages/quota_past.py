"""Figure and summary of a holder's past usage of a quota, next to what it gave then. Pure."""

from .figures import Figure, FigureStyle, Item, base_layout, time_axis
from .quota_cards import LIMITS, short, unit_of
from .words import moment

PALE = 0.45
HEADROOM = 1.12  # above the highest bar, for the words of the line


def quota_past_figure(past: Item, now_most: float, style: FigureStyle) -> Figure:
    """Figure of a past that is not empty. `now_most`: what the quota gives now. Where it gave
    nothing yet, bars are compared with that, and paler above it."""
    limit, (_, words) = past["limit"], LIMITS[past["limit"]]
    step, t = past["step_s"], past["t"]
    usage = past["used"]
    limits = [now_most if most is None else most for most in past["most"]]
    highest = max([1e-9, now_most, *(most for most in past["most"] if most is not None),
                   *(value for value in usage if value is not None)])
    span = [style.x(t[0]), style.x(t[-1] + step)]
    colours = style.colours
    layout = base_layout(style) | {
        "height": style.height, "margin": {"l": 12, "r": 12, "t": 8, "b": 34}, "bargap": 0,
        "barmode": "stack", "hovermode": "x", "dragmode": False,
        "xaxis": time_axis(style, (t[0], t[-1] + step)) | {"fixedrange": True, "nticks": 6},
        "yaxis": {"visible": False, "fixedrange": True, "range": [0, highest * HEADROOM]},
        "shapes": [{"type": "line", "xref": "x", "yref": "y", "x0": span[0], "x1": span[1],
                    "y0": now_most, "y1": now_most,
                    "line": {"color": colours.soft, "width": 1, "dash": "dot"}}],
        "annotations": [{"text": f"{words(now_most)} {unit_of(limit, now_most)}", "xref": "x",
                         "yref": "y", "x": span[0], "y": now_most,
                         "xanchor": "left", "yanchor": "bottom", "showarrow": False}]}
    bars = {"type": "bar", "x": [style.x(start + step / 2) for start in t], "width": step * 1_000}
    excess = [None if value is None else max(0.0, value - most)
              for value, most in zip(usage, limits, strict=True)]
    return {"layout": layout, "data": [
        bars | {"name": "within", "marker": {"color": colours.lines[0], "line": {"width": 0}},
                "y": [None if value is None else min(value, most)
                      for value, most in zip(usage, limits, strict=True)],
                "customdata": [_hover(past, at, limits[at]) for at in range(len(t))],
                "hovertemplate": "%{customdata}<extra></extra>"},
        bars | {"name": "over", "y": excess, "hoverinfo": "skip",
                "marker": {"line": {"width": 0}, "color": colours.bad, "opacity": [
                    PALE if most is None else 1.0 for most in past["most"]]}},
        {"type": "scatter", "mode": "lines", "name": "quota", "hoverinfo": "skip",
         "x": [x for start in t for x in (style.x(start), style.x(start + step))],
         "y": [most for most in past["most"] for _ in range(2)], "connectgaps": False,
         "line": {"color": colours.ink, "width": 1.5, "dash": "dash"}}]}


def _hover(past: Item, at: int, most: float) -> str:
    limit, (_, words) = past["limit"], LIMITS[past["limit"]]
    if past["used"][at] is None:
        return ""
    is_set = past["most"][at] is not None
    return (f"{words(past['used'][at])} of {words(most)} {unit_of(limit, most)}"
            f"{'' if is_set else ' (quota not set yet)'}")


def past_words(past: Item, now_most: float, zone_s: float) -> str:
    """Summarize when it was over and what the most was. `zone_s`: seconds east of UTC."""
    limit, (_, words) = past["limit"], LIMITS[past["limit"]]
    step, count = past["step_s"], len(past["t"])
    measured = [(start, value, most) for start, value, most in zip(
        past["t"], past["used"], past["most"], strict=True) if value is not None]
    if not measured:
        return "No data for this time."
    limited = [(value, most) for _, value, most in measured if most is not None]
    before = [value for _, value, most in measured if most is None]
    over_s = sum(value > most for value, most in limited) * step
    would_s = sum(value > now_most for value in before) * step
    at, highest, _ = max(measured, key=lambda row: row[1])
    sentences = []
    if limited:
        sentences.append(f"Over for {_span(over_s)} of {_span(len(limited) * step)}." if over_s
                         else "Never over since the quota was set.")
    if before:
        sentences.append("Before the quota was set: would have been over for "
                         f"{_span(would_s)} of {_span(len(before) * step)}.")
    sentences.append(f"Most: {words(highest)} {unit_of(limit, highest)}, "
                     f"{moment(at + zone_s, 'UTC')}.")
    sentences.append("Each hour shows the usage at its end." if past["limit"] == "gpu_hours"
                     else f"Averages over {_span(step)}.")
    if len(measured) < count:
        sentences.append("Gaps: no data.")
    return " ".join(sentences)


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{round(seconds / 60)} min"
    return f"{short(round(seconds / 360) / 10)} h"
