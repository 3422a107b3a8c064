"""The GPU, Node and Compare pages: one frame, filled by assets/charts/timelines.mjs."""

from dash import html
from dash.development.base_component import Component

from .parts import marks


def lines_page() -> Component:
    return html.Div(
        id="lines",
        className="lines-page",
        hidden="hidden",
        children=[
            html.Header(
                [
                    html.Nav([html.A("Fleet", id="lines-back", href="/"),
                              html.A("", id="lines-node", hidden="hidden")],
                             className="crumbs", **marks(aria_label="Where this is")),
                    html.Div([html.H1("…", id="lines-title"), html.P("", id="lines-subtitle")],
                             className="lines-name"),
                    html.Div("", id="lines-state", className="lines-state", role="status"),
                    html.Button("Back to live", id="lines-live", type="button",
                                className="button small", hidden="hidden"),
                    html.A("Past", id="lines-past", href="/history", className="button small",
                           title="Further back than an hour: up to 90 days (h)"),
                    html.Div(id="lines-spans", className="switch", role="group",
                             **marks(aria_label="How far back")),
                ],
                className="lines-head",
            ),
            html.Div(id="lines-problem", className="problem", hidden="hidden", role="alert"),
            html.Div(
                [
                    html.Div(
                        [html.Div(id="lines-gpus", className="lines-gpus", hidden="hidden"),
                         html.Div(id="lines-charts", className="lines-charts"),
                         html.P("", id="lines-never", className="lines-never")],
                        className="lines-main", tabIndex="0", role="region",
                        **marks(aria_label="Timelines")),
                    html.Aside(id="lines-side", className="lines-side", tabIndex="0",
                               **marks(aria_label="Tasks, health and facts")),
                ],
                className="lines-floor",
            ),
        ],
    )
