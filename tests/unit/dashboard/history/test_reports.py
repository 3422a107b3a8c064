"""Reports and cells: what is not known is not made up, and no cell is a formula."""

import random

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.history.columns.usage import USAGE_SUMS, USAGE_TOPS
from dashboard.history.reads.file_responses import STARTS, defuse
from dashboard.history.report_views import ReportPrices, report_columns, report_view
from dashboard.history.views import ItemPlaces

SPAN = (0, 7_200)


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([dict.fromkeys((*USAGE_SUMS, *USAGE_TOPS), 0.0) | {"t": 0} | row
                         for row in rows], columns=["t", "user", *USAGE_SUMS, *USAGE_TOPS])


def test_nothing_is_known_of_what_nobody_measured() -> None:
    report = report_view(frame({"user": "a", "gpu_s": 3_600.0}), "user", SPAN,
                         ReportPrices(kwh=random.uniform(0.1, 1)), {}, None)
    [item] = report.items
    assert item.gpu_hours == 1.0
    assert [item.util_pct, item.sm_pct, item.idle_hours, item.energy_kwh] == [None] * 4
    assert item.cost is None
    assert report.total.cost is None
    by_hour = report_view(frame({"user": "a", "gpu_s": 3_600.0}), "user", SPAN, ReportPrices(3.0),
                          {}, 0)
    assert by_hour.items[0].cost == 3.0
    assert by_hour.items[0].idle_cost is None, "nobody knows how much of it was idle"


def test_idle_hours_cost_what_their_team_pays() -> None:
    idle = {"gpu_s": 7_200.0, "load_s": 7_200.0, "idle_s": 1_800.0}
    rows = frame({"user": "a", **idle}, {"user": "b", **idle})
    report = report_view(rows, "user", SPAN, ReportPrices(4.0, teams={"t": 10.0}), {}, 0,
                         {"a": "t"})
    assert {item.of: item.idle_cost for item in report.items} == {"a": 5.0, "b": 2.0}
    assert report.total.idle_cost == 7.0
    assert report_view(rows, "user", SPAN, ReportPrices(kwh=1.0), {}, 0).total.idle_cost is None


def test_shares_are_of_the_part_that_was_measured() -> None:
    gpu_s, util_s = 7_200.0, 1_800.0
    report = report_view(frame({
        "user": None, "gpu_s": gpu_s, "util_s": util_s, "load_s": 3_600.0, "idle_s": 900.0,
        "util_pct_s": util_s * 40, "energy_j": 3.6e6, "energy_s": 3_600.0, "sm_s": 900.0,
        "sm_pct_s": 900.0 * 30}),
        "user", SPAN, ReportPrices(), {}, 0)
    [item] = report.items
    assert (item.of, item.name, item.util_pct) == (None, None, 40.0)
    assert (item.idle_share, item.util_share, item.energy_share) == (0.25, 0.25, 0.5)
    assert (item.sm_pct, item.sm_share) == (30.0, 0.125)
    assert report.total.energy_kwh == 1.0
    assert (item.co2_kg, report.total.co2_kg) == (None, None), "nobody gave a factor"
    of_site = report_view(frame({"user": "a", "gpu_s": 3_600.0, "energy_j": 7.2e6,
                                 "energy_s": 3_600.0}, {"user": "b", "gpu_s": 3_600.0}), "user",
                          SPAN, ReportPrices(1.0, teams={"t": 2.0}, co2_g_per_kwh=400.0), {}, 0,
                          {"a": "t"})
    assert {item.of: item.co2_kg for item in of_site.items} == {"a": 0.8, "b": None}
    assert of_site.total.co2_kg == 0.8


def test_a_report_of_nothing_is_empty_and_whole() -> None:
    report = report_view(frame(), "user", SPAN, ReportPrices(1.0, 1.0), {}, None)
    assert (report.items, report.total.gpu_hours, report.total.cost) == ([], 0.0, 0.0)
    assert all(values == [] for values in report_columns(report, ItemPlaces("here", {})).values())


@given(st.text())
def test_no_cell_begins_like_a_formula_and_what_it_was_can_be_told(text: str) -> None:
    cell = defuse(text)
    assert not cell.startswith(STARTS)
    assert cell.removeprefix("'") == text or cell == text
    assert (cell[1:] if cell.startswith("'") else cell) == text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\uff1d1"])
def test_what_spreadsheets_run_has_a_quote_before_it(text: str) -> None:
    assert defuse(text) == f"'{text}"
