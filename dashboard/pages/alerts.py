"""The Alerts page: what fires, waits, is held or silenced, what fired, and the rules behind it."""

from dash import html
from dash.development.base_component import Component

from .parts import marks

VIEWS = (
    ("firing", "Firing", "A rule is true of these, and has been for long enough."),
    ("pending", "Pending", "It is so, and not for long enough yet."),
    ("held", "Held", "These fire, and something holds what would be done about it."),
    ("silenced", "Silenced",
     "These fire; while the silence lasts, nobody is told and nothing is done."),
    ("ended", "Over", "What fired in the last seven days and is over."),
)
SECTIONS = (
    ("silences", "Silences", "While one is in force, nobody is told of matching alerts, and "
     "nothing is done about them."),
    ("rules", "Rules", "What is watched, on whom, and of how many it is so now."),
    ("brakes", "Brakes", "What bounds all that rules do by themselves."),
    ("maintenance", "Maintenance", "On these nodes nothing is done by itself."),
)
ACTS = {"maintenance": ("alerts-maintain", "Maintenance …")}


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
            html.Div(id="alerts-stopped", className="problem", hidden="hidden", role="status"),
            html.Div([_choice(*each) for each in VIEWS], id="alerts-views", className="switch",
                     role="group", **marks(aria_label="Which alerts")),
            html.Div([_view(*each) for each in VIEWS]),
            *(_section(*each) for each in SECTIONS),
        ],
    )


def _choice(key: str, title: str, lead: str) -> Component:
    is_chosen = str(key == "firing").lower()
    return html.Button([title, html.Span("", className="alerts-count")], type="button",
                       title=lead, **marks(data_view=key, aria_pressed=is_chosen))


def _view(key: str, title: str, lead: str) -> Component:
    return html.Section(
        [html.H2(title, id=f"alerts-{key}-title", className="unseen"),
         html.P(lead, className="alerts-lead"),
         html.Div(id=f"alerts-{key}", className="alerts-place")],
        id=f"alerts-view-{key}",
        className="alerts-view",
        hidden=None if key == "firing" else "hidden",
        **marks(aria_labelledby=f"alerts-{key}-title"),
    )


def _section(key: str, title: str, lead: str) -> Component:
    ident, words = ACTS.get(key, ("", ""))
    act = [html.Button(words, id=ident, type="button", className="button small",
                       hidden="hidden")] if ident else []
    return html.Section(
        [html.Div([html.H2(title, id=f"alerts-{key}-title"), *act], className="alerts-title"),
         html.P(lead, className="alerts-lead"),
         html.Div(id=f"alerts-{key}", className="alerts-place")],
        **marks(aria_labelledby=f"alerts-{key}-title"),
    )
