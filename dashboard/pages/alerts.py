"""The Alerts page: what fires, what fired, the rules behind it, and what is silenced."""

from dash import html
from dash.development.base_component import Component

from .parts import marks

SECTIONS = (
    ("firing", "Firing", "Of these a rule is true, and has been for long enough."),
    ("silences", "Silences", "While one is in force, matching alerts tell nobody."),
    ("rules", "Rules", "Each only observes: nothing acts on an alert in this version."),
    ("ended", "Over", "The last seven days."),
)


def alerts_page() -> Component:
    return html.Div(
        id="alerts",
        className="alerts-page",
        hidden="hidden",
        children=[
            html.Header(
                [
                    html.Div([html.H1("Alerts"), html.P("", id="alerts-words", role="status")]),
                    html.Div(
                        [html.Button("Silence …", id="alerts-silence", type="button",
                                     className="button", hidden="hidden"),
                         html.Button("New rule …", id="alerts-new", type="button",
                                     className="button", hidden="hidden")],
                        className="alerts-acts"),
                ],
                className="alerts-head",
            ),
            html.Div(id="alerts-problem", className="problem", hidden="hidden", role="alert"),
            *(_section(*each) for each in SECTIONS),
        ],
    )


def _section(key: str, title: str, lead: str) -> Component:
    return html.Section(
        [html.H2(title, id=f"alerts-{key}-title"), html.P(lead, className="alerts-lead"),
         html.Div(id=f"alerts-{key}", className="alerts-place")],
        **marks(aria_labelledby=f"alerts-{key}-title"),
    )
