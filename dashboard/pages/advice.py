"""The Advice page: its frame; assets/insight/advice.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page, problem


def frame() -> Component:
    return make("div#advice.advice-page", [
        make("header.advice-head", [make("div", [
            make("h1", "Advice"), make("p#advice-words", "", role="status")])]),
        problem("advice"),
        make("p#advice-now.advice-now", "", hidden=True),
        make("p#advice-none.none", "Loading …", role="status"),
        make("ul#advice-place.advice-place"),
        make("details#advice-dismissed.advice-dismissed", [
            make("summary", "Dismissed"), make("ul.advice-place")], hidden=True)],
        hidden=True, data_unsettled="")


PAGE = Page(
    "advice", "Advice", "insight/advice.mjs", frame,
    "What would free GPU-hours, by the measurements of the last days. Nothing is done "
    "automatically: each item has the command, and the one that undoes it.", (), "/advice",
    ("v", "the advice"))
