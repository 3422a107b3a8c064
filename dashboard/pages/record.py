"""The Record page: what was asked, by whom, and what came of it."""

from dash import html
from dash.development.base_component import Component

from .fleet import choice
from .parts import marks

# What people look for first; the API takes any kind.
SPANS = (("", "any time"), ("3600", "the last hour"), ("86400", "the last day"),
         ("604800", "the last week"))


def record_page() -> Component:
    return html.Div(
        id="record",
        className="record-page",
        hidden="hidden",
        children=[
            html.Header(
                [
                    html.Div([html.H1("Record"), html.P(
                        "Every attempt, refusals too, each chained to the one before by its hash. "
                        "Nothing is done that cannot be recorded.")]),
                    html.Div(
                        [html.Button("Verify", id="record-verify", type="button",
                                     className="button"),
                         html.A("Export", id="record-export", className="button",
                                href="/api/v1/audit/export", download="gpudeck-audit.jsonl")],
                        className="record-acts"),
                ],
                className="record-head",
            ),
            html.Div(
                [
                    html.Div([html.Label("Who", htmlFor="record-actor"),
                              html.Span(className="record-field", **marks(data_name="actor"))],
                             className="choice"),
                    html.Div([html.Label("Node", htmlFor="record-node"),
                              html.Span(className="record-field", **marks(data_name="node"))],
                             className="choice"),
                    choice("record-kind", "What", (("", "anything"),)),
                    choice("record-outcome", "Outcome", (("", "any"),)),
                    choice("record-span", "When", SPANS),
                    html.Output("", id="record-words", className="filter-words"),
                ],
                className="tools record-tools", role="search",
            ),
            html.Div(id="record-verdict", className="verdict", hidden="hidden", role="status"),
            html.Div(id="record-problem", className="problem", hidden="hidden", role="alert"),
            html.Div(id="record-place", className="record-place"),
        ],
    )
