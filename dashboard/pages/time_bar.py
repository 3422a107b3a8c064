"""The time bar of the Fleet page, showing "live"; assets/fleet/time_bar.mjs moves it."""

from dash.development.base_component import Component

from .parts import Options, make

RANGES = (("3600", "1 hour"), ("21600", "6 hours"), ("86400", "24 hours"), ("604800", "7 days"))


def time_bar() -> Component:
    return make("section#time-bar.time-bar", [
        make("button#time-live.time-live", "Live", aria_pressed="true",
             title="The fleet as it is now (End)"),
        make("button#time-play.time-play", "Play", title="Play the past, or pause (Space)"),
        _choice("time-speed", "Speed", [("60", "60x")]),
        make("div.time-track", [
            make("div#time-marks.time-marks", aria_hidden="true"),
            # Dash has no plain input element; time_bar.mjs puts it here.
            make("div#time-slider-place.time-slider-place")]),
        make("p#time-words.time-words", ""),
        _choice("time-range", "Span of the time bar", RANGES),
        make("div#time-spoken.unseen", "", aria_live="polite")], aria_label="Time")


def _choice(ident: str, label: str, options: Options) -> Component:
    return make("div.time-choice", [
        make("label.unseen", label, htmlFor=ident),
        make(f"select#{ident}", [make("option", words, value=value) for value, words in options])])
