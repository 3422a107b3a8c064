"""The Reports page: controls and an empty table, filled by assets/reports/reports.mjs."""

from dash.development.base_component import Component

from .parts import Page, choice, labelled, make, moments, problem, switch

PERIODS = (("today", "today"), ("7d", "the last 7 days"), ("30d", "the last 30 days"),
           ("month", "this month"), ("before", "last month"), ("custom", "from … to …"))
PRICES = (("price_gpu_hour", "Price per GPU-hour"), ("price_kwh", "per kWh"), ("currency", "in"))


def frame() -> Component:
    return make("div#reports.reports-page", [
        make("header.record-head", [
            make("div", [make("h1", "Reports"), make("p#reports-words", "")]),
            make("div.record-acts", [
                make("a#reports-csv.button", "CSV", download=""),
                make("a#reports-parquet.button", "Parquet", download=""),
                make("button#reports-print.button", "Print")])]),
        make("div.tools.reports-tools", [
            choice("reports-period", "Time range", PERIODS),
            make("div#reports-custom", moments("reports"), hidden=True),
            switch("reports-by", "By", "by", [("user", "Owner"), ("node", "Node")]),
            *(labelled(f"reports-{name}", words, make("span.price", data_price=name))
              for name, words in PRICES)], role="search"),
        problem("reports"),
        make("div#reports-top.reports-top", hidden=True),
        make("div#reports-place.record-place.reports-place"),
        make("p#reports-notes.reports-notes", "")], hidden=True, data_unsettled="")


PAGE = Page(
    "reports", "Reports", "reports/reports.mjs", frame,
    "GPU-hours, utilization, energy and cost per owner or node over a time. Hover a column header "
    "to see what it means.", (), "/reports", ("p", "the reports"))
