"""The Quality of service page: its frame; assets/insight/qos.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page, problem


def frame() -> Component:
    return make("div#qos.advice-page", [
        make("header.advice-head.qos-head", [
            make("div", [make("h1", "Quality of service"),
                         make("p#qos-words", "", role="status")]),
            make("div#qos-acts.page-acts", "")]),
        problem("qos"),
        make("p#qos-none.none", "Loading …", role="status"),
        make("ul#qos-place.advice-place"),
        make("section#qos-past.qos-past", [
            make("h2", "Violations"), make("ul#qos-violations.qos-violations")], hidden=True)],
        hidden=True, data_unsettled="")


PAGE = Page(
    "qos", "QoS", "insight/qos.mjs", frame,
    "What each user or team was promised (GPUs, longest wait, most throttling), what it gets now, "
    "and how often that was not kept in the last seven days.", (), "/qos",
    ("y", "quality of service"))
