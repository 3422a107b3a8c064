"""The Reports page: old addresses open the same view, and the tables say what the hub answered."""

import json
import random
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest

from dashboard.history.usage_names import REPORT_BYS
from dashboard.pages.figures import Colours, FigureStyle, hours_figure
from dashboard.pages.reading import view_from
from dashboard.pages.reports import (
    BYS,
    NO_SPAN,
    PAGE,
    PERIODS,
    ReportView,
    answer,
    decimal_of,
    query_of,
    report_parts,
    settle_bounds,
)
from dashboard.pages.reports_table import (
    COLUMNS,
    FIRST_ROWS,
    HEADS,
    MOST_ROWS,
    By,
    SortKey,
    coverage_words,
    largest_of,
)
from dashboard.pages.time_ranges import DAY_S, HOUR_S, Period

from .read_parts import elements, wire_parts, words

START, END = 1_764_000_000 // HOUR_S * HOUR_S, 1_764_000_000 // HOUR_S * HOUR_S + 7 * DAY_S
NOW = END + 60.0
HOSTILE = ["<img src=x onerror=alert(1)>", "a&b=c/../?d#e", "' onmouseover='x", "javascript:x"]
NONE = "\N{EN DASH}"
Tree = tuple[str, dict[str, str], list[Any]]
Sent = dict[str, Any]


def item(of: str | None, gpu_hours: float, idle_hours: float | None = 0.0, **more: Any
         ) -> dict[str, Any]:
    idle_share = None if idle_hours is None else idle_hours / gpu_hours
    return {"of": of, "name": of, "gpu_hours": gpu_hours, "util_pct": 40.0, "util_share": 1.0,
            "idle_hours": idle_hours, "idle_share": idle_share, "mem_used_bytes": 2.0**33,
            "energy_kwh": gpu_hours / 2, "energy_share": 1.0, "cost": None,
            "mem_max_bytes": 2.0**34, "co2_kg": None, "idle_cost": None, "sm_pct": None} | more


def report(*items: dict[str, Any], by: str = "user", **more: Any) -> dict[str, Any]:
    idle = [one["idle_hours"] for one in items if one["idle_hours"] is not None]
    total = item(None, sum(one["gpu_hours"] for one in items) or 1.0, sum(idle) if idle else None)
    costs = [one["cost"] for one in items if one["cost"] is not None]
    idle_costs = [one["idle_cost"] for one in items if one["idle_cost"] is not None]
    total |= {"cost": sum(costs) if costs else None,
              "sm_pct": next((one["sm_pct"] for one in items if one["sm_pct"] is not None), None),
              "idle_cost": sum(idle_costs) if idle_costs else None}
    return {"by": by, "start": START, "end": END, "since": START - DAY_S, "price_gpu_hour": None,
            "price_kwh": None, "items": list(items), "total": total, "coverage": 1.0,
            "co2_g_per_kwh": None, "backfilling": 0, "joining": False} | more


def page_of(usage_answer: dict[str, Any], now: float = NOW, **fields: Any) -> Sent:
    """Parts of the page, as they are sent."""
    view = ReportView(**fields)
    bounds = settle_bounds(view, now)
    assert bounds is not None
    return wire_parts(PAGE, report_parts(usage_answer, view, query_of(view, bounds), now))


def rows_of(parts: Sent) -> list[list[str]]:
    body = next(node for node in elements(parts["reports-place"]) if node[0] == "tbody")
    return [[words([cell]) for cell in row[2]] for row in body[2]]


def heads_of(parts: Sent) -> dict[str, Tree]:
    return {node[1]["data-key"]: node for node in elements(parts["reports-place"])
            if node[0] == "th" and node[1].get("scope") == "col"}


def names_of(parts: Sent) -> list[str]:
    return [row[0] for row in rows_of(parts)]


def test_every_choice_of_the_hub_is_one_of_the_page() -> None:
    assert set(HEADS) == {by for by, _ in BYS} == set(get_args(By)) == set(REPORT_BYS)
    assert {period for period, _ in PERIODS} == set(get_args(Period))
    assert {column.key for column in COLUMNS} == set(get_args(SortKey)) - {"name"}


def test_an_old_address_opens_the_view_that_it_named() -> None:
    zone = random.choice(["UTC", "Asia/Kolkata", "America/New_York", "no/such/zone"])
    view = view_from(ReportView, {
        "zone": zone, "by": "node", "sort": "cost", "order": "asc", "show": "held",
        "start": str(START), "end": "2026-01-31T12:00:00Z", "price_gpu_hour": "2.5",
        "currency": "a currency"})
    bounds = settle_bounds(view, NOW)
    end = datetime.fromisoformat("2026-01-31T12:00:00Z").timestamp()
    assert bounds == (START, end)
    assert (view.period, view.start, view.end) == ("custom", str(START), str(int(end)))
    assert (view.by, view.sort, view.order, view.show) == ("node", "cost", "asc", "held")
    assert view.currency == "a curren"
    assert query_of(view, (START, end)) == {"by": "node", "start": view.start, "end": view.end,
                                      "price_gpu_hour": "2.5"}


def test_what_an_address_cannot_mean_is_left_out() -> None:
    view = view_from(ReportView, {
        "by": "colour", "sort": "__class__", "order": "up", "show": 7, "period": "ever",
        "start": "soon", "end": "9" * 40, "price_kwh": "cheap", "rows": "none"})
    assert settle_bounds(view, NOW) == (NOW - 7 * DAY_S, NOW)
    assert query_of(view, (START, END)) == {"by": "user", "start": str(START), "end": str(END)}
    assert (view.start, view.end) == ("", "")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Santiago", "Asia/Kolkata"])
def test_periods_are_of_the_viewers_calendar(zone: str) -> None:
    there = ZoneInfo(zone)
    now = random.uniform(START, START + 400 * DAY_S)
    today = datetime.fromtimestamp(now, there)
    for period, (year, month, day) in (
            ("today", (today.year, today.month, today.day)),
            ("month", (today.year, today.month, 1)),
            ("before", (today.year - (today.month == 1), (today.month - 2) % 12 + 1, 1))):
        view = view_from(ReportView, {"period": period, "zone": zone})
        bounds = settle_bounds(view, now)
        assert bounds is not None
        assert bounds[0] == datetime(year, month, day, tzinfo=there).timestamp()
        end = datetime(today.year, today.month, 1, tzinfo=there).timestamp()
        assert bounds[1] == (end if period == "before" else now)
        assert (view.start, view.end) == ("", "")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Santiago", "Asia/Kolkata"])
def test_yesterday_is_a_day_of_the_viewers_calendar(zone: str) -> None:
    there = ZoneInfo(zone)
    now = random.uniform(START, START + 400 * DAY_S)
    today = datetime.fromtimestamp(now, there).date()
    bounds = settle_bounds(view_from(ReportView, {"period": "yesterday", "zone": zone}), now)
    assert bounds == tuple(
        datetime(day.year, day.month, day.day, tzinfo=there).timestamp()
        for day in (today - timedelta(days=1), today))


def test_the_first_second_of_a_day_has_an_hour_to_report() -> None:
    midnight = datetime(2026, 3, 1, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    for period in ("today", "month"):
        view = view_from(ReportView, {"period": period, "zone": "Europe/Berlin"})
        assert settle_bounds(view, midnight) == (midnight - HOUR_S, midnight)


def test_from_to_begins_with_what_is_shown_and_a_period_drops_it() -> None:
    parts = page_of(report(item("a", 1.0)), period="30d")
    sets = {node[1]["value"]: json.loads(node[1]["data-set"])
            for node in elements(parts["reports-period"])}
    selection = view_from(ReportView, sets["custom"])
    assert settle_bounds(selection, NOW) == (int(NOW - 30 * DAY_S), int(NOW))
    assert parts["reports-custom"] is None
    assert view_from(ReportView, sets["today"]) == ReportView(period="today")
    custom = page_of(report(item("a", 1.0)), start=str(START), end=str(END))
    assert [node[1]["data-view"] for node in elements(custom["reports-custom"])
            if node[0] == "input"] == ["start", "end"]


def test_a_span_that_ends_before_it_starts_asks_the_hub_nothing() -> None:
    view = view_from(ReportView, {"start": str(END), "end": str(START)})
    nobody: Any = None
    parts = wire_parts(PAGE, answer(nobody, view, NOW))
    assert parts["reports-problem"] == [NO_SPAN]
    assert [node[1]["aria-invalid"] for node in elements(parts["reports-custom"])
            if node[0] == "input"] == ["true", "true"]
    assert "reports-place" not in parts, "what is there stays"


@pytest.mark.parametrize(("text", "price"), [
    ("2", "2"), ("2.50", "2.5"), ("2.", "2"), ("1e3", "1000"), (" .3 ", "0.3"), ("0", "0"),
    ("1e-12", "0"), ("", None), ("-1", None), ("nan", None), ("inf", None), ("1e9", None),
    ("2,5", None), ("100", "100")])
def test_a_price_is_read_as_it_is_typed(text: str, price: str | None) -> None:
    assert decimal_of(text) == price


def test_the_hub_is_asked_once_and_its_files_are_of_the_same_question() -> None:
    queries: list[dict[str, str]] = []

    def get(path: str, **query: str) -> dict[str, Any]:
        assert path == "reports"
        queries.append(query)
        return report(item("a", 1.0))

    view = view_from(ReportView, {"by": "pod", "price_kwh": "0.3", "zone": "Asia/Kolkata"})
    client: Any = SimpleNamespace(hub=SimpleNamespace(get=get))
    tree = wire_parts(PAGE, answer(client, view, NOW))
    [query] = queries
    for form in ("csv", "parquet"):
        [[tag, traits, _]] = tree[f"reports-{form}"]
        assert (tag, traits["href"]) == ("a", "/api/v1/reports?" + "&".join(
            f"{name}={value}" for name, value in (query | {"format": form}).items()))
    assert "Asia/Kolkata, UTC+5:30" in words(tree["reports-words"])


def test_empty_history_and_an_empty_span_say_so() -> None:
    nothing = page_of(report(since=None, coverage=None))
    assert words(nothing["reports-place"]) == (
        "No history yet: it starts with the first task on a GPU.")
    assert nothing["reports-figures"] is False
    assert "data-request" not in nothing["reports-time-title"][0][1]
    assert nothing["reports-coverage"] is None
    assert words(page_of(report())["reports-place"]) == "No GPU was held in this time."


def test_what_was_all_idle_is_a_waste_everywhere() -> None:
    hours = [random.uniform(20, 900) for _ in range(3)]
    items = [item(f"user {at}", one, one, idle_cost=one * 2, cost=one * 2)
             for at, one in enumerate(hours)]
    parts = page_of(report(*items, price_gpu_hour=2.0), currency="EUR")
    cards = {node[1]["id"]: node for node in elements(parts["reports-lead"]) if "id" in node[1]}
    assert [card[1]["data-tone"] for card in cards.values()] == ["waste"] * 3
    assert f"{sum(hours):,.1f}"[:-2] in words([cards["reports-idle"]])
    assert "100 %" in words([cards["reports-idle"]])
    assert f"{sum(hours) * 2:,.2f} EUR" in words([cards["reports-cost"]])
    waster = max(items, key=lambda one: one["idle_hours"])["name"]
    assert waster in words([cards["reports-most"]])
    assert words(parts["reports-time-title"]) == "Idle GPU-hours over time"
    widths = [node[1]["style"] for node in elements(parts["reports-top"])
              if "top-used" in node[1].get("class", "")]
    assert widths == ["width: 0.00%"] * 3


def test_no_idle_hour_is_no_waste_and_all_hours_are_shown() -> None:
    parts = page_of(report(item("ada", 12.0), item("bob", 3.0)))
    cards = [node for node in elements(parts["reports-lead"]) if "id" in node[1]]
    assert [card[1]["data-tone"] for card in cards] == [""] * 3
    assert "none" in words([cards[0]])
    assert "Enter a price per GPU-hour above" in words([cards[1]])
    assert words(parts["reports-time-title"]) == "GPU-hours over time"
    pressed = {node[1]["data-show"]: node[1]["aria-pressed"]
               for node in elements(parts["reports-show"])}
    assert pressed == {"idle": "false", "held": "true"}


def test_what_is_not_known_is_written_so_and_comes_last_either_way() -> None:
    unknown = item(None, 5.0, None, util_pct=None, mem_used_bytes=None, mem_max_bytes=None,
                   energy_kwh=None, energy_share=0.0)
    for order in ("asc", "desc"):
        parts = page_of(report(item("a", 1.0, 1.0), unknown, item("b", 2.0, 2.0)), order=order)
        assert names_of(parts) == [*(("a", "b") if order == "asc" else ("b", "a")),
                                   "unknown owner"]
        assert rows_of(parts)[2][1:] == [NONE, NONE, "5.00", NONE, NONE, NONE, NONE]
    alone = page_of(report(unknown))
    assert NONE in words(alone["reports-lead"])
    assert "data-request" in alone["reports-time-title"][0][1]
    assert json.loads(alone["reports-time-title"][0][1]["data-request"])["names"] == {}


@pytest.mark.parametrize("by", REPORT_BYS)
def test_each_kind_has_its_head_its_words_and_its_links(by: str) -> None:
    thing, title = f"x/{random.randint(1, 99)}?", f"name {random.randint(1, 99)}"
    name_fields = {"name": title} if by in ("job", "node", "gpu", "launch") else {}
    parts = page_of(report(item(thing, 9.0, 1.0, **name_fields), item(None, 1.0), by=by), by=by)
    assert words([heads_of(parts)["name"]]) == HEADS[by]  # type: ignore[index]
    assert names_of(parts) == [name_fields.get("name", thing), "unknown owner" if by in (
        "user", "team") else f"{HEADS[by]} not known"]  # type: ignore[index]
    links = [node[1]["href"] for node in elements(parts["reports-place"]) if node[0] == "a"]
    span, key = f"start={START}&end={END}", thing.replace("/", "%2F").replace("?", "%3F")
    assert links == {
        "job": [f"/job/{key}"], "user": [f"/history?owner=user%3A{key}&{span}"],
        "team": [f"/history?team={key}&{span}"], "node": [f"/history?node={key}&{span}"],
        "gpu": [f"/history?gpu={key}&{span}"]}.get(by, [])
    notes = words(parts["reports-notes"])
    assert ("divided among them by their time" in notes) is (by in (
        "job", "launch", "slurm_job", "container", "pod", "namespace", "unit"))
    assert (f"GPU-hours of a {HEADS[by]}" in notes) is (by in ("node", "gpu", "model"))  # type: ignore[index]


def test_hostile_names_stay_text() -> None:
    items = [item(name, 9.0 - at, 1.0) for at, name in enumerate(HOSTILE)]
    parts = page_of(report(*items), sort="gpu_hours", currency="<b>")
    assert names_of(parts) == HOSTILE
    nodes = [node for part in parts.values() if isinstance(part, list) for node in elements(part)]
    assert {node[0] for node in nodes} <= {
        "a", "button", "div", "h2", "i", "option", "p", "span", "table", "tbody", "td", "tfoot",
        "th", "thead", "tr", "input", "label"}
    assert not [name for node in nodes for name in node[1] if name.startswith("on")]
    hrefs = [node[1]["href"] for node in elements(parts["reports-place"]) if node[0] == "a"]
    assert len(hrefs) == len(HOSTILE)
    assert all(href.startswith("/history?owner=user%3A") and href.count("&") == 2
               and "#" not in href for href in hrefs)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.key)
def test_a_click_on_a_head_sorts_and_the_next_turns_it(column: Any) -> None:
    priced = {"idle_cost": 1.0, "cost": 1.0, "co2_kg": 1.0}
    items = [item(f"u{at}", 10.0, 1.0) | priced | {column.key: value}
             for at, value in enumerate(random.sample(range(1, 90), 4))]
    usage_answer = report(*items, price_gpu_hour=1.0, co2_g_per_kwh=1.0)
    first = heads_of(page_of(usage_answer, sort="name", order="asc"))[column.key]
    assert "aria-sort" not in first[1]
    once = json.loads(first[1]["data-set"])
    assert once == {"sort": column.key, "order": "desc"}
    parts = page_of(usage_answer, **once)
    by_value = [one["name"] for one in sorted(items, key=lambda one: -one[column.key])]
    assert names_of(parts) == by_value
    head = heads_of(parts)[column.key]
    assert head[1]["aria-sort"] == "descending"
    [[tag, traits, _]] = head[2]
    assert (tag, traits["title"], traits["data-sort"]) == ("button", column.meaning, column.key)
    turned = page_of(usage_answer, **json.loads(head[1]["data-set"]))
    assert names_of(turned) == by_value[::-1]


def test_names_sort_as_people_count() -> None:
    items = [item(name, 1.0) for name in ("n10", "N2", "n1", "b", "2", "10")]
    assert names_of(page_of(report(*items), sort="name", order="asc")) == [
        "2", "10", "b", "n1", "N2", "n10"]


def test_costs_are_in_the_currency_and_minimums_say_so() -> None:
    price, share = random.uniform(1, 9), random.uniform(0.1, 0.9)
    items = [item("a", 2_000.0, 1.0, cost=2_000 * price, idle_cost=price, energy_share=share),
             item("b", 1.0, 0.5, cost=price, idle_cost=price / 2, co2_kg=3.0)]
    plain = page_of(report(*items, price_gpu_hour=price), sort="cost")
    assert [row[-1] for row in rows_of(plain)] == [f"{2_000 * price:,.2f}", f"{price:,.2f}"]
    assert "co2_kg" not in heads_of(plain)
    priced = page_of(report(*items, price_gpu_hour=price, price_kwh=1.0, co2_g_per_kwh=400.0),
                     sort="cost", currency="EUR")
    assert rows_of(priced)[0][-1] == f"≥ {2_000 * price:,.2f} EUR"
    assert rows_of(priced)[0][-2] == NONE
    assert rows_of(priced)[1][-2:] == ["3.00 kg", f"{price:,.2f} EUR"]
    assert "energy and cost are minimums" in words(priced["reports-notes"])
    free = heads_of(page_of(report(item("a", 1.0))))
    assert {"cost", "idle_cost", "co2_kg", "sm_pct"}.isdisjoint(free)


def test_of_a_thousand_rows_the_first_are_shown_and_all_on_request() -> None:
    items = [item(f"gpu {at}", 1.0 + at, 0.5) for at in range(1_000)]
    parts = page_of(report(*items, by="gpu"), by="gpu", sort="gpu_hours")
    assert names_of(parts) == [f"gpu {at}" for at in range(999, 999 - FIRST_ROWS, -1)]
    assert "The first 200 of 1,000 rows" in words(parts["reports-place"])
    [more] = [node for node in elements(parts["reports-place"])
              if node[0] == "button" and "data-sort" not in node[1]]
    whole = page_of(report(*items, by="gpu"), by="gpu", **json.loads(more[1]["data-set"]))
    assert len(rows_of(whole)) == 1_000
    assert "The first" not in words(whole["reports-place"])
    several = [item(f"gpu {at}", 1.0) for at in range(1_234)]
    most = page_of(report(*several, by="gpu"), by="gpu", rows="all")
    assert len(rows_of(most)) == MOST_ROWS
    assert "The first 1,000 of 1,234 rows; the total is of all. CSV and Parquet" in words(
        most["reports-place"])


def test_the_one_with_the_most_idle_hours_is_always_among_the_largest() -> None:
    busy = [item(f"a{at}", 90.0 - at, None if at == 3 else 1.0) for at in range(9)]
    selection = largest_of([*busy, item("idle", 5.0, 5.0)], "gpu_hours", 8)
    assert [one["of"] for one in selection] == ["a0", "a1", "a2", "a3", "a4", "a5", "a6", "idle"]


@pytest.mark.parametrize("show", ["idle", "held"])
def test_the_list_has_the_colours_of_the_figure(show: str) -> None:
    items = [item(name, random.uniform(1, 99), 0.5) for name in ("ada", "bob", "eve")]
    items.insert(random.randrange(4), item(None, random.uniform(1, 99), 0.5))
    parts = page_of(report(*items), show=show)
    request = json.loads(parts["reports-time-title"][0][1]["data-request"])
    colours = [f"var(--hue-{at})" for at in range(1, 9)]
    grey = dict.fromkeys(("ground", "raised", "line", "ink", "soft", "warn", "bad"), "#101010")
    style = FigureStyle(Colours(**grey, font="sans", lines=colours), 0, 216)
    usage = {"bucket": HOUR_S, "start": START, "end": START + HOUR_S, "items": [
        {"t": START, "of": one["of"], "gpu_s": 60.0, "idle_s": 60.0} for one in items]}
    bars = hours_figure(usage, request["names"], request["show"], style)["data"]
    by_name = {one["name"]: one["marker"]["color"] for one in bars
               if one["name"] in request["names"]}
    names = [node for node in elements(parts["reports-top"])
             if node[1].get("class") == "top-name"]
    listed = {words([node]): node[2][0][1]["style"].removeprefix("background: ")
              for node in names}
    assert listed.pop("unknown owner") == "transparent"
    assert listed == by_name


def test_how_much_of_the_span_is_known_stands_above_the_numbers() -> None:
    span = {"start": 0, "end": 10 * DAY_S, "coverage": 0.5, "backfilling": 0,
            "joining": False}
    assert coverage_words(span, 20 * DAY_S) == (
        "History covers 5.0 of 10.0 days (50 %) of this span.")
    assert coverage_words(span, 8 * DAY_S) == (
        "History covers 4.0 of 8.0 days (50 %) of this span until now.")
    assert coverage_words(span | {"backfilling": 2}, 20 * DAY_S) == (
        "This span is being filled: 5.0 of 10.0 days; backfill under way.")
    assert coverage_words(span | {"end": 2 * HOUR_S, "coverage": 0.004}, DAY_S) == (
        "History covers 0 of 120 min (less than 1 %) of this span.")
    assert coverage_words(span | {"end": 7 * DAY_S, "coverage": 0.005}, 8 * DAY_S) == (
        "History covers 50 min of 7.0 days (less than 1 %) of this span.")
    assert coverage_words(span | {"coverage": None}, DAY_S) is None
    assert coverage_words(span | {"coverage": 1.0, "backfilling": 1}, DAY_S) == (
        "Backfill under way: 1 node still sends what was measured while the hub was away.")
