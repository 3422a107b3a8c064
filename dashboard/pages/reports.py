"""The Reports page: idle GPU-hours and their cost first, then a table of what was held."""

import math
from typing import Any, Literal

from dash.development.base_component import Component

from gpudeck.client.hub import Client
from gpudeck.markup import choice, labelled, make

from .graphs import REPORT, AnsweredFigure
from .parts import READ_PAGE, Page, problem
from .reading import Parts, Reading, View
from .reports_table import (
    MEASURES,
    By,
    Item,
    Measure,
    Order,
    ReportPart,
    SortKey,
    cards,
    coverage_words,
    largest,
    notes,
    shown_measure,
    table,
    top_list,
)
from .time_ranges import Bounds, Period, period_bounds, seconds_in
from .words import capital, moment, zone_words

PERIODS: tuple[tuple[Period, str], ...] = (
    ("today", "today"), ("yesterday", "yesterday"), ("7d", "the last 7 days"),
    ("30d", "the last 30 days"), ("month", "this month"), ("before", "last month"),
    ("custom", "from … to …"))
BYS = (("user", "owner"), ("team", "team"), ("job", "job"), ("launch", "launch"),
       ("slurm_job", "Slurm job"), ("container", "container"), ("pod", "pod"),
       ("namespace", "namespace"), ("unit", "systemd unit"), ("node", "node"),
       ("model", "GPU model"), ("gpu", "GPU"))
PRICE: dict[str, Any] = {
    "type": "number", "min": "0", "max": "999999999", "step": "any", "inputMode": "decimal",
    "placeholder": "none"}
CURRENCY_LENGTH = 8
CURRENCY: dict[str, Any] = {"type": "text", "maxLength": str(CURRENCY_LENGTH),
                            "placeholder": "EUR", "autoComplete": "off"}
FACTORS = (("price_gpu_hour", "Price per GPU-hour", PRICE), ("price_kwh", "per kWh", PRICE),
           ("currency", "in", CURRENCY), ("co2_g_per_kwh", "g CO₂ per kWh", PRICE))
SWITCH: tuple[tuple[Measure, str], ...] = (("idle", "Idle GPU-hours"), ("held", "All GPU-hours"))
LEADS = (
    ("idle", "Idle GPU-hours", "Hours held in minutes in which utilization never exceeded 5 %"),
    ("cost", "Idle cost", "The idle GPU-hours at the price per GPU-hour"),
    ("most", "Most idle GPU-hours", "Who or what has the most of them"))
# Not `datetime-local`: that shows 12-hour times to some, next to axes of 24 hours.
MOMENT: dict[str, Any] = {
    "type": "text", "maxLength": "19", "autoComplete": "off", "spellCheck": "false",
    "placeholder": "2026-01-31 14:00:00", "data_as": "moment",
    "title": "Date and time of 24 hours, such as 2026-01-31 14:00"}
NO_SPAN = "The report's end must be after its start."
FIGURE_PX = 216  # as in the style sheet


class ReportView(View):
    """View of a report. `start` and `end`: of `custom`, which they mean without a period as well;
    prices as they were typed."""

    period: Period = "7d"
    by: By = "user"
    price_gpu_hour: str = ""
    price_kwh: str = ""
    co2_g_per_kwh: str = ""
    currency: str = ""
    sort: SortKey = "idle_hours"
    order: Order = "desc"
    show: Measure = "idle"
    start: str = ""
    end: str = ""
    rows: Literal["first", "all"] = "first"

    def __post_init__(self) -> None:
        self.currency = self.currency[:CURRENCY_LENGTH]


def frame() -> Component:
    return make("div#reports.reports-page", [
        make("header.page-head", [
            make("div", [make("h1", "Reports"), make("p#reports-words", ""),
                         make("p#reports-coverage.reports-coverage", "", hidden=True)]),
            make("div.page-acts", [
                make("a#reports-csv.button", "CSV", download=""),
                make("a#reports-parquet.button", "Parquet", download=""),
                make("button#reports-print.button", "Print", data_print="")])]),
        make("div.tools.reports-tools", [
            choice("reports-period", "Time range", PERIODS, data_view="period"),
            make("div#reports-custom", hidden=True),
            choice("reports-by", "By", BYS, data_view="by"),
            *(labelled(f"reports-{name}", words, make("span.price", make(
                f"input#reports-{name}", data_view=name, **traits)))
              for name, words, traits in FACTORS)], role="search"),
        problem("reports"),
        make("div#reports-lead.strip.reports-lead",
             [_card(key, "", "…", "") for key, *_ in LEADS], role="group",
             aria_label="What was wasted"),
        make("div#reports-figures.reports-figures", [
            make("div#reports-top.reports-top"),
            make("div.reports-time", [
                make("header", [make("h2#reports-time-title", ""),
                                make("div#reports-show.switch", role="group",
                                     aria_label="Shown in both")]),
                AnsweredFigure(REPORT),
                make("p#reports-time-problem.none", hidden=True)])]),
        make("div#reports-place.page-place.reports-place",
             make("p.none", "Loading …", role="status")),
        make("p#reports-notes.reports-notes", "")], hidden=True, data_unsettled="")


def answer(client: Client, view: ReportView, now: float) -> Parts:
    bounds = settle_bounds(view, now)
    if bounds is None:
        return no_span_parts(view)
    query = query_of(view, bounds)
    return report_parts(client.hub.get("reports", **query), view, query, now)


def settle_bounds(view: ReportView, now: float) -> Bounds | None:
    """Return the bounds of the view, and write them into it where they are chosen. None: it ends
    before it starts. Pure."""
    start, end = (seconds_in(text, view.zone) for text in (view.start, view.end))
    if start is None or end is None:
        start, end = period_bounds(view.period, now, view.zone)
        if view.period != "custom":
            view.start = view.end = ""
            return start, end
    view.period, view.start, view.end = "custom", str(math.floor(start)), str(math.ceil(end))
    return (start, end) if start < end else None


def query_of(view: ReportView, bounds: Bounds) -> dict[str, str]:
    """Return the query of `GET reports`. Pure."""
    query = {"by": view.by, "start": str(math.floor(bounds[0])), "end": str(math.ceil(bounds[1]))}
    for name, text in (("price_gpu_hour", view.price_gpu_hour), ("price_kwh", view.price_kwh),
                       ("co2_g_per_kwh", view.co2_g_per_kwh)):
        if (price := decimal_of(text)) is not None:
            query[name] = price
    return query


def decimal_of(text: str) -> str | None:
    """Return a price as the hub reads it: people type `1e3` and `2.` as well. None: it is none.
    Pure."""
    try:
        price = float(text)
    except ValueError:
        return None
    if not 0 <= price < 1e9:
        return None
    return f"{price:.9f}".rstrip("0").rstrip(".")


def report_parts(report: Item, view: ReportView, query: dict[str, str], now: float) -> Parts:
    """Return the parts of the page. Pure."""
    part = ReportPart(report, view.by, view.sort, view.order, view.currency, view.rows == "all",
                      view.zone)
    start, end, zone = report["start"], report["end"], view.zone
    return {
        "reports-words": f"{moment(start, zone)} to {moment(min(end, now), zone)} "
                         f"({zone_words(end, zone)}), in whole hours",
        "reports-coverage": coverage_words(report, now),
        "reports-csv": _file("csv", "CSV", query), "reports-parquet": _file(
            "parquet", "Parquet", query),
        **span_parts(view, (int(query["start"]), int(query["end"])), is_right=True),
        "reports-lead": [_card(key, "waste" if is_waste else "", figure, detail)
                         for key, (is_waste, figure, detail) in cards(part).items()],
        **figure_parts(part, view, now),
        "reports-place": table(part),
        "reports-notes": [make("span", words) for words in notes(part)]}


def no_span_parts(view: ReportView) -> Parts:
    """Return what stands on the page where the chosen span is none. Pure."""
    bounds = int(view.start), int(view.end)
    return {"reports-problem": NO_SPAN, **span_parts(view, bounds, is_right=False)}


def span_parts(view: ReportView, bounds: tuple[int, int], is_right: bool) -> Parts:
    """Return the choice of the time range and its two moments. A period drops them; `from … to …`
    begins with those of the period."""
    start, end = map(str, bounds)
    options = [make("option", words, value=value, data_set={"period": value, **(
        {"start": start, "end": end} if value == "custom" else {"start": "", "end": ""})})
        for value, words in PERIODS]
    fields = [part for name, ident, label in (
        ("start", "from", "From"), ("end", "to", "to")) for part in (
        make("label", label, htmlFor=f"reports-{ident}"),
        make(f"input#reports-{ident}", data_view=name, required=True,
             aria_invalid=str(not is_right).lower(), **MOMENT))]
    return {"reports-period": options, "reports-custom": None if view.period != "custom" else make(
        "div.moments", [*fields, make("span#reports-zone.zone", zone_words(
            bounds[1], view.zone))])}


def figure_parts(part: ReportPart, view: ReportView, now: float) -> Parts:
    """Return the list of the largest, and the request for the figure of the same."""
    report, measure = part.report, shown_measure(part, view.show)
    items = largest(part, measure)
    key, words = MEASURES[measure]
    if not any(item[key] > 0 for item in items):
        return {"reports-figures": False, "reports-time-title": make("h2#reports-time-title", "")}
    request = {"by": view.by, "start": max(report["start"], report["since"] or 0),
               "end": math.ceil(min(report["end"], now)), "show": measure,
               "names": {item["of"]: part.name(item) for item in items if item["of"] is not None}}
    return {
        "reports-figures": True,
        "reports-top": top_list(part, measure),
        "reports-show": [make("button", label, data_set={"show": value}, data_show=value,
                              aria_pressed=value == measure) for value, label in SWITCH],
        "reports-time-title": make(
            "h2#reports-time-title", f"{capital(words)} over time", data_figure=REPORT,
            data_request=request, data_at=report["end"], data_height=FIGURE_PX,
            data_problem="reports-time-problem")}


def _card(key: str, tone: str, figure: str, detail: str) -> Component:
    label, meaning = next(row[1:] for row in LEADS if row[0] == key)
    return make(f"div#reports-{key}.card", [
        make("span.card-label", label), make("span.card-figure", figure),
        make("span.card-detail", detail)], title=meaning, data_tone=tone)


def _file(form: str, words: str, query: dict[str, str]) -> Component:
    parameters = "&".join(f"{name}={value}" for name, value in (query | {"format": form}).items())
    return make(f"a#reports-{form}.button", words, download="",
                href=f"/api/v1/reports?{parameters}")


PAGE = Page(
    "reports", "Reports", READ_PAGE, frame,
    "Idle GPU-hours and what they cost first, then GPU-hours, utilization, energy and cost over a "
    "time, per owner, team, job, pod, node and more; the parts always add up to the same whole. "
    "Hover a column header to see what it means.",
    (), "/reports", ("p", "the reports"), reading=Reading(ReportView, answer, what="report"))
