"""The Quotas page: its frame; assets/quotas/quotas.mjs fills it."""

from dash import html
from dash.development.base_component import Component


def quotas_page() -> Component:
    return html.Div(
        id="quotas",
        className="quotas-page",
        hidden="hidden",
        children=[
            html.Header(
                [html.Div([html.H1("Quotas"), html.P("", id="quotas-words", role="status")]),
                 html.Button("New quota …", id="quotas-new", type="button", className="button",
                             hidden="hidden")],
                className="quotas-head",
            ),
            html.Div(id="quotas-problem", className="problem", hidden="hidden", role="alert"),
            html.P("Loading …", id="quotas-none", className="none", role="status"),
            html.Ul(id="quotas-place", className="quotas-place"),
            html.Details([html.Summary("What the nodes have to hold a quota by"),
                          html.Ul(id="quotas-means-list")],
                         id="quotas-means", className="quotas-means", hidden="hidden"),
        ],
    )
