"""The Forecasts page: its frame; assets/forecasts/forecasts.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make, region

from .graphs import FORECAST, AnsweredFigure
from .parts import Page, problem


def frame() -> Component:
    return region("div#forecasts.forecasts-page", "Forecasts", [
        make("header.page-head", [make("div", [
            make("h1", "Forecasts"), make("p#forecasts-words", "Loading …", role="status")])]),
        problem("forecasts"),
        make("section#forecasts-hours.forecast", [
            make("h2", "The last days, and the next 24 hours"), AnsweredFigure(FORECAST),
            make("p#forecasts-hours-problem.none", hidden=True)], hidden=True),
        make("section.forecast", [
            make("h2", "GPUs held in the next 24 hours"),
            make("p#forecasts-demand-words.forecast-words", ""),
            make("p#forecasts-demand-test.forecast-test", "")]),
        make("section.forecast", [
            make("h2", "GPUs that claims wait for in the next 24 hours"),
            make("p#forecasts-queue-words.forecast-words", ""),
            make("p#forecasts-queue-test.forecast-test", "")]),
        make("section.forecast", [
            make("h2", "Power of all GPUs in the next 24 hours"),
            make("p#forecasts-power-words.forecast-words", ""),
            make("p#forecasts-power-test.forecast-test", "")]),
        make("section.forecast", [
            make("h2", "Leases that end next"),
            make("p#forecasts-runs-words.forecast-words", ""),
            make("div#forecasts-runs.forecast-place"),
            make("p#forecasts-runs-test.forecast-test", "")]),
        make("section.forecast", [
            make("h2", "How long claims wait"),
            make("p#forecasts-waits-words.forecast-words", ""),
            make("div#forecasts-waits.forecast-place"),
            make("p#forecasts-waits-test.forecast-test", "")]),
        make("section.forecast", [
            make("h2", "Memory that grows"),
            make("p#forecasts-memory-words.forecast-words", ""),
            make("div#forecasts-memory.forecast-place"),
            make("p#forecasts-memory-test.forecast-test", "")])], hidden=True, data_unsettled="")


PAGE = Page(
    "forecasts", "Forecasts", "forecasts/forecasts.mjs", frame,
    "GPUs held, GPUs waited for and power in the next 24 hours, when leases end, how long claims "
    "wait, and tasks whose memory grows. Numbers are shown only where they beat the best naive "
    "guess on this fleet's own past; each is shown with that test.",
    (), "/forecasts", ("o", "the forecasts"))
