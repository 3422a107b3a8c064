"""The Reports page: controls and an empty table, filled by assets/reports/reports.mjs."""

from dash.development.base_component import Component

from gpudeck.markup import choice, labelled, make

from .graphs import REPORT, AnsweredFigure
from .parts import Page, moments, problem, switch

PERIODS = (("today", "today"), ("7d", "the last 7 days"), ("30d", "the last 30 days"),
           ("month", "this month"), ("before", "last month"), ("custom", "from … to …"))
BYS = (("user", "owner"), ("team", "team"), ("job", "job"), ("launch", "launch"),
       ("slurm_job", "Slurm job"), ("container", "container"), ("pod", "pod"),
       ("namespace", "namespace"), ("unit", "systemd unit"), ("node", "node"),
       ("model", "GPU model"), ("gpu", "GPU"))
PRICES = (("price_gpu_hour", "Price per GPU-hour"), ("price_kwh", "per kWh"), ("currency", "in"),
          ("co2_g_per_kwh", "g CO₂ per kWh"))
MEASURES = (("idle", "Idle GPU-hours"), ("held", "All GPU-hours"))
LEADS = (
    ("idle", "Idle GPU-hours", "Hours held in minutes in which utilization never exceeded 5 %"),
    ("cost", "Idle cost", "The idle GPU-hours at the price per GPU-hour"),
    ("most", "Most idle GPU-hours", "Who or what has the most of them"))


def frame() -> Component:
    return make("div#reports.reports-page", [
        make("header.page-head", [
            make("div", [make("h1", "Reports"), make("p#reports-words", ""),
                         make("p#reports-coverage.reports-coverage", "", hidden=True)]),
            make("div.page-acts", [
                make("a#reports-csv.button", "CSV", download=""),
                make("a#reports-parquet.button", "Parquet", download=""),
                make("button#reports-print.button", "Print")])]),
        make("div.tools.reports-tools", [
            choice("reports-period", "Time range", PERIODS),
            make("div#reports-custom", moments("reports"), hidden=True),
            choice("reports-by", "By", BYS),
            *(labelled(f"reports-{name}", words, make("span.price", data_price=name))
              for name, words in PRICES)], role="search"),
        problem("reports"),
        make("div#reports-lead.strip.reports-lead", [_lead(*row) for row in LEADS], role="group",
             aria_label="What was wasted"),
        make("div.reports-figures", [
            make("div#reports-top.reports-top"),
            make("div.reports-time", [make("header", [make("h2#reports-time-title", ""),
                                                      switch("reports-show", "Shown in both",
                                                             "show", MEASURES)]),
                                      AnsweredFigure(REPORT),
                                      make("p#reports-time-problem.none", hidden=True)])]),
        make("div#reports-place.page-place.reports-place"),
        make("p#reports-notes.reports-notes", "")], hidden=True, data_unsettled="")


def _lead(key: str, label: str, meaning: str) -> Component:
    return make(f"div#reports-{key}.card", [
        make("span.card-label", label), make("span.card-figure", "…"),
        make("span.card-detail", "")], title=meaning)


PAGE = Page(
    "reports", "Reports", "reports/reports.mjs", frame,
    "Idle GPU-hours and what they cost first, then GPU-hours, utilization, energy and cost over a "
    "time, per owner, team, job, pod, node and more; the parts always add up to the same whole. "
    "Hover a column header to see what it means.",
    (), "/reports", ("p", "the reports"))
