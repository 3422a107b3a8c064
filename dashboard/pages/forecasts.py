"""The Forecasts page: what is likely to come, and how right that would have been on this fleet's
own past."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from dash.development.base_component import Component

from gpudeck.client.hub import Client, typed
from gpudeck.markup import make, region

from ..insight.views import DemandForecastView, ForecastList
from .forecast_words import (
    HOUR_S,
    demand_test_words,
    demand_words,
    leases_table,
    memory_table,
    memory_test_words,
    memory_words,
    run_words,
    span_test_words,
    wait_words,
    waits_table,
)
from .graphs import FORECAST, AnsweredFigure
from .parts import READ_PAGE, Page, problem
from .reading import Parts, Reading, View
from .words import moment

EVERY_S = 30.0
HOURS_PX = 560
LEAST_HOURS = 2  # of the past, before there is a figure of it
DEMANDS = (("demand", "gpus_held"), ("queue", "gpus_waited_for"), ("power", "power_w"))


def frame() -> Component:
    return region("div#forecasts.forecasts-page", "Forecasts", [
        make("header.page-head", [make("div", [
            make("h1", "Forecasts"), make("p#forecasts-words", "Loading …", role="status")])]),
        problem("forecasts"),
        make("section#forecasts-hours.forecast", [
            make("h2", "The last days, and the next 24 hours"), AnsweredFigure(FORECAST),
            make("div#forecasts-hours-asked", hidden=True),
            make("p#forecasts-hours-problem.none", hidden=True)], hidden=True),
        _section("GPUs held in the next 24 hours", "demand"),
        _section("GPUs that claims wait for in the next 24 hours", "queue"),
        _section("Power of all GPUs in the next 24 hours", "power"),
        _section("Leases that end next", "runs", has_table=True),
        _section("How long claims wait", "waits", has_table=True),
        _section("Memory that grows", "memory", has_table=True)], hidden=True, data_unsettled="")


def _section(title: str, place: str, has_table: bool = False) -> Component:
    table = [make(f"div#forecasts-{place}.forecast-place")] if has_table else []
    return make("section.forecast", [
        make("h2", title), make(f"p#forecasts-{place}-words.forecast-words", ""), *table,
        make(f"p#forecasts-{place}-test.forecast-test", "")])


def answer(client: Client, view: View, now: float) -> Parts:
    return parts_of(typed(ForecastList, client.hub.get("forecasts")), view.zone, now)


def parts_of(forecasts: ForecastList, zone: str, now: float) -> Parts:
    """Return the parts of the page. Pure."""
    memory, runs, waits = forecasts.memory, forecasts.run_times, forecasts.waits
    demands = {demand.name: demand for demand in forecasts.demand}
    ahead = datetime.fromtimestamp(now, ZoneInfo(zone)).utcoffset()
    offset_h = 0 if ahead is None else round(ahead.total_seconds() / HOUR_S)
    request = figure_request(forecasts.demand)
    parts: Parts = {
        "forecasts-words": "History is being read." if memory.at is None
        else f"As of {moment(memory.at, zone)}",
        "forecasts-hours": request is not None, "forecasts-hours-asked": request,
        "forecasts-runs-words": run_words(runs), "forecasts-runs": leases_table(runs.items),
        "forecasts-runs-test": span_test_words(runs.test, "run"),
        "forecasts-waits-words": wait_words(waits), "forecasts-waits": waits_table(waits.items),
        "forecasts-waits-test": span_test_words(waits.test, "wait"),
        "forecasts-memory-words": memory_words(memory),
        "forecasts-memory": memory_table(memory.items),
        "forecasts-memory-test": memory_test_words(memory.test)}
    for place, name in DEMANDS:
        parts[f"forecasts-{place}-words"] = demand_words(demands.get(name), zone, offset_h)
        parts[f"forecasts-{place}-test"] = demand_test_words(demands.get(name))
    return parts


def figure_request(demands: Sequence[DemandForecastView]) -> Component | None:
    """Return the request for the figure, another one when an hour is over; None: no past of two
    hours is known yet. Pure."""
    if not any(sum(value is not None for value in demand.recent) >= LEAST_HOURS
               for demand in demands):
        return None
    hours = [f"{demand.name} {demand.starts_at:.0f}" for demand in demands]
    return make("span", data_figure=FORECAST, data_request={"hours": hours},
                data_height=str(HOURS_PX), data_at=f"{demands[0].starts_at:.0f}",
                data_problem="forecasts-hours-problem")


PAGE = Page(
    "forecasts", "Forecasts", READ_PAGE, frame,
    "GPUs held, GPUs waited for and power in the next 24 hours, when leases end, how long claims "
    "wait, and tasks whose memory grows. Numbers are shown only where they beat the best naive "
    "guess on this fleet's own past; each is shown with that test.",
    (), "/forecasts", ("o", "the forecasts"), reading=Reading(View, answer, EVERY_S, "forecast"))
