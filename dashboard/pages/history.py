"""The History page: controls and an empty figure, filled by assets/history/history.mjs."""

from pathlib import Path

import plotly
from dash import html
from dash.development.base_component import Component
from dash.fingerprint import build_fingerprint

from .parts import marks

RANGES = (("15m", "15 min"), ("1h", "1 h"), ("6h", "6 h"), ("24h", "24 h"), ("7d", "7 d"),
          ("30d", "30 d"), ("90d", "90 d"))
SCRIPT = "package_data/plotly.min.js"


def plotly_address() -> str:
    """Where Dash serves Plotly from this hub. A page that needs it asks for it; no other does."""
    made_at = int((Path(plotly.__file__).parent / SCRIPT).stat().st_mtime)
    name: str = build_fingerprint(SCRIPT, plotly.__version__, made_at)
    return f"/_dash-component-suites/plotly/{name}"


def history_page() -> Component:
    return html.Div(
        id="history",
        className="past-page",
        hidden="hidden",
        children=[
            html.Header(
                [
                    html.Div([html.H1("History", id="past-title"),
                              html.P("", id="past-subtitle")], className="past-name"),
                    html.Div([html.Label("Of", htmlFor="past-what"),
                              html.Span(id="past-what-place")], className="choice past-what"),
                    html.Div([html.Button(words, type="button",
                                          **marks(data_last=key, aria_pressed="false"))
                              for key, words in RANGES],
                             id="past-ranges", className="switch", role="group",
                             **marks(aria_label="The last")),
                    moments("past"),
                ],
                className="past-head",
            ),
            html.Div(
                [
                    html.Div(id="past-metrics", className="chips", role="group",
                             **marks(aria_label="Metrics")),
                    html.Div(id="past-gpus", className="chips", role="group", hidden="hidden",
                             **marks(aria_label="Gpus")),
                ],
                className="past-choices",
            ),
            html.Div(id="past-problem", className="problem", hidden="hidden", role="alert"),
            html.Div(
                [
                    html.Output("", id="past-words", className="past-words"),
                    html.Div(
                        [html.Button("Whole span", id="past-back", type="button",
                                     className="button small", hidden="hidden"),
                         html.Button("Pan", id="past-pan", type="button", className="button small",
                                     title="Drag moves the span instead of looking closer (p)",
                                     **marks(aria_pressed="false")),
                         html.Button("Min to max", id="past-band", type="button",
                                     className="button small",
                                     title="The range within each step, as a band (b)",
                                     **marks(aria_pressed="true")),
                         html.A("Live", id="past-live", className="button small",
                                hidden="hidden"),
                         html.A("CSV", id="past-csv", className="button small", download=""),
                         html.A("Parquet", id="past-parquet", className="button small",
                                download=""),
                         html.Button("PNG", id="past-png", type="button",
                                     className="button small")],
                        className="past-acts"),
                ],
                className="past-line",
            ),
            *_figure(),
        ],
    )


def _figure() -> list[Component]:
    """Or, where there is none, what to do."""
    return [html.P("", id="past-none", className="past-none", hidden="hidden", role="status"),
            html.Div(html.Div(id="past-figure", **marks(data_plotly=plotly_address())),
                     id="past-place", className="past-place", tabIndex="0", role="region",
                     **marks(aria_label="Figure"))]


def moments(name: str) -> Component:
    """From and to, in the browser's own time zone; the fields are made by the page's module."""
    return html.Div(
        [html.Label("From", htmlFor=f"{name}-from"), html.Span(**marks(data_moment=f"{name}-from")),
         html.Label("to", htmlFor=f"{name}-to"), html.Span(**marks(data_moment=f"{name}-to")),
         html.Span("", id=f"{name}-zone", className="zone")],
        className="moments")
