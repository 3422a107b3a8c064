"""The History page: controls and an empty figure, filled by assets/history/history.mjs."""

from pathlib import Path

import plotly
from dash.development.base_component import Component
from dash.fingerprint import build_fingerprint

from gpudeck.components import AlertLane
from gpudeck.markup import labelled, make, region

from .graphs import PAST, AnsweredFigure
from .parts import Page, moments, problem, switch

RANGES = (("15m", "15 min"), ("1h", "1 h"), ("6h", "6 h"), ("24h", "24 h"), ("7d", "7 d"),
          ("30d", "30 d"), ("90d", "90 d"))
SCRIPT = "package_data/plotly.min.js"


def plotly_address() -> str:
    """Return the address at which Dash serves Plotly; only pages that need it load it."""
    made_at = int((Path(plotly.__file__).parent / SCRIPT).stat().st_mtime)
    name: str = build_fingerprint(SCRIPT, plotly.__version__, made_at)
    return f"/_dash-component-suites/plotly/{name}"


def frame() -> Component:
    return make("div#history.past-page", [
        make("header.past-head", [
            make("div.past-name", [make("h1#past-title", "History"),
                                   make("p#past-subtitle", "")]),
            labelled("past-what", "Show", make("span#past-what-place"),
                     ".choice.past-what"),
            switch("past-ranges", "Time range", "last", RANGES),
            moments("past")]),
        make("div.past-choices", [
            make("div#past-metrics.chips", role="group", aria_label="Metrics"),
            make("div#past-gpus.chips", role="group", hidden=True, aria_label="GPUs")]),
        problem("past"),
        make("div.past-line", [
            make("output#past-words.past-words", ""),
            make("div.past-acts", [
                make("button#past-back.button.small", "Whole span", hidden=True),
                make("button#past-fit.button.small", "Fit to data", hidden=True,
                     title="Zoom in to the part of this span that has data (f)"),
                make("button#past-busiest.button.small", "Busiest hour", hidden=True,
                     title="Zoom in to the busiest hour of this span (u)"),
                make("button#past-pan.button.small", "Pan", aria_pressed="false",
                     title="Drag to pan instead of zooming in (p)"),
                make("button#past-band.button.small", "Min to max", aria_pressed="true",
                     title="Show minimum to maximum of each step as a band (b)"),
                make("a#past-live.button.small", "Live", hidden=True),
                make("a#past-csv.button.small", "CSV", download=""),
                make("a#past-parquet.button.small", "Parquet", download=""),
                make("button#past-png.button.small", "PNG")])]),
        AlertLane("past-lane", driver="page", hidden=True),
        # Shown in place of the figure if there is none: what to do.
        make("p#past-none.past-none", "", hidden=True, role="status"),
        region("div#past-place.past-place", "Figure",
               [make("div#past-lines", hidden=True), AnsweredFigure(PAST)])],
        hidden=True, data_unsettled="")


PAGE = Page(
    "history", "History", "history/history.mjs", frame,
    "History of the fleet, a group, a model, a node, GPUs or an owner: the average of each step as "
    "a line, minimum to maximum as a band, events as marks; alerts are in the lane above. Drag to "
    "zoom in.", (
        ("← →  +  -", "earlier, later, zoom in, zoom out"),
        ("p", "drag to pan instead of zooming in"),
        ("b", "minimum to maximum as a band"),
        ("f", "the part of the span that has data"),
        ("u", "the busiest hour, of a fleet"),
        ("Esc", "whole span")), "/history", ("h", "history"))
