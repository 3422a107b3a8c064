"""The time bar of the pages Fleet, Node, GPU and Compare, showing "live"; assets/fleet/time_bar.mjs
moves it."""

from dash.development.base_component import Component

from .parts import Options, choice, make

RANGES = (("3600", "1 hour"), ("21600", "6 hours"), ("86400", "24 hours"), ("604800", "7 days"))


def time_bar(ranges: Options = RANGES) -> Component:
    return make("section#time-bar.time-bar", [
        make("button#time-live.time-live", "Live", aria_pressed="true",
             title="Back to live (End)"),
        make("button#time-play.time-play", "Play", title="Play or pause (Space)"),
        choice("time-speed", "Speed", [("60", "60x")], ".time-choice", "label.unseen"),
        make("div.time-track", [
            make("canvas#time-load.time-load", aria_hidden="true"),
            make("div#time-marks.time-marks", aria_hidden="true"),
            # Dash has no plain input element; time_bar.mjs puts it here.
            make("div#time-slider-place.time-slider-place"),
            make("div#time-hover.time-hover", "", hidden=True, aria_hidden="true")]),
        make("p#time-words.time-words", ""),
        choice("time-range", "Span of the time bar", ranges, ".time-choice", "label.unseen"),
        make("div#time-spoken.unseen", "", aria_live="polite")], aria_label="Time")
