"""The Reports page: controls and an empty table, filled by assets/reports/reports.mjs."""

from dash import html
from dash.development.base_component import Component

from .fleet import choice
from .history import moments
from .parts import marks

PERIODS = (("today", "today"), ("7d", "the last 7 days"), ("30d", "the last 30 days"),
           ("month", "this month"), ("before", "last month"), ("custom", "from … to …"))
BYS = (("user", "Owner"), ("node", "Node"))


def reports_page() -> Component:
    return html.Div(
        id="reports",
        className="reports-page",
        hidden="hidden",
        children=[
            html.Header(
                [
                    html.Div([html.H1("Reports"), html.P("", id="reports-words")]),
                    html.Div(
                        [html.A("CSV", id="reports-csv", className="button", download=""),
                         html.A("Parquet", id="reports-parquet", className="button", download=""),
                         html.Button("Print", id="reports-print", type="button",
                                     className="button")],
                        className="record-acts"),
                ],
                className="record-head",
            ),
            html.Div(
                [
                    choice("reports-period", "Time", PERIODS),
                    html.Div(moments("reports"), id="reports-custom", hidden="hidden"),
                    html.Div([html.Button(words, type="button",
                                          **marks(data_by=key, aria_pressed="false"))
                              for key, words in BYS],
                             id="reports-by", className="switch", role="group",
                             **marks(aria_label="By")),
                    *(html.Div([html.Label(words, htmlFor=f"reports-{name}"),
                                html.Span(className="price", **marks(data_price=name))],
                               className="choice") for name, words in (
                        ("price_gpu_hour", "Price per GPU-hour"), ("price_kwh", "per kWh"),
                        ("currency", "in"))),
                ],
                className="tools reports-tools", role="search",
            ),
            html.Div(id="reports-problem", className="problem", hidden="hidden", role="alert"),
            html.Div(id="reports-top", className="reports-top", hidden="hidden"),
            html.Div(id="reports-place", className="record-place reports-place"),
            html.P("", id="reports-notes", className="reports-notes"),
        ],
    )
