"""Words of the Forecasts page, from the hub's forecasts alone."""

import re
from typing import Any

import pytest
from dash.development.base_component import Component

from dashboard.insight.pool_outlook_views import (
    LeaseRunTimeView,
    RunTimeList,
    RunTimeTestView,
    SpanView,
    WaitList,
    WaitView,
)
from dashboard.insight.views import (
    DemandForecastView,
    DemandTestView,
    ForecastList,
    GrowingMemoryView,
    IntervalView,
    MemoryForecastList,
    MemoryTestView,
)
from dashboard.pages.forecasts import PAGE, parts_of
from gpudeck.markup import markup

from .read_parts import wire_parts

NOON = 1_764_417_600.0  # Saturday 29 November 2025, 12:00 UTC
GIB = 2.0**30
EVIL = "<img src=x onerror=alert(1)>"
SPAN = SpanView(600.0, 1_200.0, 2_400.0, 7_200.0, 31, "of ann's runs")
DAYS = DemandTestView(14, {"ours": 2.0, "yesterday": 4.0}, "ours", "yesterday", 0.5, 81.0)


def a_demand(name: str = "gpus_held", **fields: Any) -> DemandForecastView:
    usual = [10.0] * 9 + [40.0] * 3 + [10.0] * 12
    p50 = [20.0] * 24
    p50[3] = 60.0
    return DemandForecastView(**{
        "name": name, "recent_from": NOON - 3_600 * 72, "recent": [5.0] * 72, "starts_at": NOON,
        "p10": [value - 10 for value in p50], "p50": p50, "p90": [value + 20 for value in p50],
        "gpus": 64, "usual_day": usual, "test": DAYS, "why": "", **fields})


def forecasts(*demands: DemandForecastView, growing: tuple[GrowingMemoryView, ...] = (),
              runs: RunTimeList | None = None, waits: WaitList | None = None,
              at: float | None = NOON, checked: int = 0) -> ForecastList:
    return ForecastList(
        MemoryForecastList(at, [*growing], MemoryTestView(checked, GIB, 2 * GIB)), [*demands],
        runs or RunTimeList([], None, ""), waits or WaitList([], None, ""))


def parts(page: ForecastList, zone: str = "UTC") -> dict[str, str]:
    """Return the parts as markup; those that are not texts or elements stay out."""
    return {name: markup(part) for name, part in parts_of(page, zone, NOON).items()
            if part is None or isinstance(part, str | Component)}


def test_a_hub_that_has_read_no_history_says_that() -> None:
    page = parts_of(forecasts(at=None), "UTC", NOON)
    assert page["forecasts-words"] == "History is being read."
    assert "once history has been read" in page["forecasts-demand-words"]
    assert page["forecasts-hours"] is False
    assert page["forecasts-hours-asked"] is None
    assert page["forecasts-memory"] is page["forecasts-runs"] is page["forecasts-waits"] is None
    assert page["forecasts-memory-words"] == "No task's memory grew in all of the last 48 minutes."
    assert page["forecasts-memory-test"] == page["forecasts-demand-test"] == ""


@pytest.mark.parametrize(("recent", "is_drawn"), [
    ([], False), ([None, None, 4.0], False), ([None] * 71 + [4.0], False), ([4.0, 0.0], True)])
def test_a_young_hub_has_no_figure_before_two_hours_of_its_past(
        recent: list[float | None], is_drawn: bool) -> None:
    young = a_demand(recent=recent, p10=[], p50=[], p90=[], usual_day=[], test=None,
                     why="14 days are needed")
    page = parts_of(forecasts(young), "UTC", NOON)
    assert page["forecasts-hours"] is is_drawn
    assert (page["forecasts-hours-asked"] is not None) is is_drawn
    assert page["forecasts-demand-words"] == "Not known: 14 days are needed."
    assert page["forecasts-demand-test"] == ""


def test_the_figure_is_another_one_when_an_hour_is_over() -> None:
    requests = [getattr(parts_of(forecasts(a_demand(starts_at=at)), "UTC", at)[
        "forecasts-hours-asked"], "data-request") for at in (NOON, NOON, NOON + 3_600)]
    assert requests[0] == requests[1] != requests[2]
    assert requests[0] == {"hours": [f"gpus_held {NOON:.0f}"]}


def test_a_peak_is_told_in_the_viewers_time_and_the_units_of_the_page() -> None:
    page = parts(forecasts(a_demand(), a_demand("gpus_waited_for"), a_demand(
        "power_w", **{of: [value * 1_000 for value in getattr(a_demand(), of)]
                      for of in ("p10", "p50", "p90", "usual_day")})), "Asia/Kolkata")
    demand = page["forecasts-demand-words"]
    assert "20:30" in demand  # 15:00 UTC
    assert "about 60 of 64 GPUs held (50 to 80 in 8 of 10 cases), 4 free (0 to 14)." in demand
    assert "Busiest on a usual day of the last two weeks: 15:00 to 18:00, with 40 GPUs." in demand
    assert "claims for about 60 GPUs wait (50 to 80" in page["forecasts-queue-words"]
    power = page["forecasts-power-words"]
    assert "about 60.0 kW (50.0 to 80.0" in power
    assert "with 40.0 kW." in power


def test_hours_that_hardly_differ_are_not_called_busy() -> None:
    words = parts(forecasts(a_demand(usual_day=[10.0] * 23 + [10.5])))["forecasts-demand-words"]
    assert "Busiest" not in words


def test_each_number_comes_with_its_test() -> None:
    spans = RunTimeTestView(300, 1.5, {"the median": 2.25}, 48.0)
    page = parts(forecasts(
        a_demand(), runs=RunTimeList([], spans, ""), waits=WaitList([], spans, ""), checked=1))
    assert ("off by 2.0 GPUs on average, the best naive guess (yesterday) by 4.0, which makes 50 % "
            "of its error. 81 % of the hours") in page["forecasts-demand-test"]
    assert "300 runs of the past" in page["forecasts-runs-test"]
    assert "by a factor of 1.50 on average; the median by 2.25. 48 %" in page[
        "forecasts-waits-test"]
    assert page["forecasts-memory-test"].startswith("Test: 1 forecast of 64 minutes")


def test_what_is_not_known_is_said_and_no_number() -> None:
    leases = RunTimeList([], None, "fewer than 20 runs are known")
    waits = WaitList([WaitView("8 GPUs", 2, None)], None, "")
    full = GrowingMemoryView("t", "n1", "gpu01", "GPU-1", "0", None, IntervalView(GIB, GIB, GIB),
                             None, "its GPU is silent")
    page = parts(forecasts(a_demand(test=None), growing=(full,), runs=leases, waits=waits))
    assert page["forecasts-runs-words"] == "Not known: fewer than 20 runs are known."
    assert "not known" in page["forecasts-waits"]
    assert "2 waits" in page["forecasts-waits"]
    assert "unknown owner" in page["forecasts-memory"]
    assert 'title="its GPU is silent"' in page["forecasts-memory"]
    assert page["forecasts-demand-test"] == ""


def test_what_lies_far_ahead_is_no_number_either() -> None:
    def full(*days: float) -> str:
        growing = GrowingMemoryView(
            "t", "n1", "gpu01", "GPU-1", "0", "ann", IntervalView(1, 2, 3),
            IntervalView(*(day * 86_400 for day in days)), "")
        return parts(forecasts(growing=(growing,)))["forecasts-memory"]

    assert "more than 30 d" in full(20, 30, 30)
    assert "(2 d to more than 30 d)" in re.sub(r"\s+", " ", full(2, 5, 30))


def test_names_of_others_are_text() -> None:
    growing = GrowingMemoryView("t", "n1", EVIL, "GPU-1", "0/1", EVIL, IntervalView(1, 2, 3), None,
                                EVIL)
    lease = LeaseRunTimeView("l1", EVIL, "n1", EVIL, 2, NOON, SPAN)
    page = parts(forecasts(growing=(growing,), runs=RunTimeList([lease], None, "")))
    for name in ("forecasts-memory", "forecasts-runs"):
        assert "<img" not in page[name]
        assert "&lt;img" in page[name]
    assert "/gpu/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E/0%2F1" in page["forecasts-memory"]


def test_all_parts_have_a_place_in_the_frame() -> None:
    assert wire_parts(PAGE, parts_of(forecasts(a_demand()), "UTC", NOON))["forecasts-hours"] is True
