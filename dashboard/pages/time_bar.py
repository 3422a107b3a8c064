"""The time bar of the Fleet page, showing "live"; assets/fleet/time_bar.mjs moves it."""

from dash import html
from dash.development.base_component import Component

from .parts import marks

RANGES = (("3600", "1 hour"), ("21600", "6 hours"), ("86400", "24 hours"), ("604800", "7 days"))


def time_bar() -> Component:
    return html.Section(
        id="time-bar",
        className="time-bar",
        **marks(aria_label="Time"),
        children=[
            html.Button("Live", id="time-live", className="time-live", type="button",
                        **marks(aria_pressed="true"), title="The fleet as it is now (End)"),
            html.Button("Play", id="time-play", className="time-play", type="button",
                        title="Play the past, or pause (Space)"),
            html.Div([html.Label("Speed", htmlFor="time-speed", className="unseen"),
                      html.Select([html.Option("60x", value="60")], id="time-speed")],
                     className="time-choice"),
            html.Div([
                html.Div(id="time-marks", className="time-marks", **marks(aria_hidden="true")),
                # Dash has no plain input element; time_bar.mjs puts it here.
                html.Div(id="time-slider-place", className="time-slider-place"),
            ], className="time-track"),
            html.P("", id="time-words", className="time-words"),
            html.Div([html.Label("Span of the time bar", htmlFor="time-range", className="unseen"),
                      html.Select([html.Option(words, value=value) for value, words in RANGES],
                                  id="time-range")], className="time-choice"),
            html.Div("", id="time-spoken", className="unseen", **marks(aria_live="polite")),
        ],
    )
