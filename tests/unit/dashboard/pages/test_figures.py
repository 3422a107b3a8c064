"""Figures that callbacks make: each number stands where its time is, in the unit that is named."""

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dashboard.access.policy import TABLE
from dashboard.pages.figures import (
    GIB,
    OTHERS,
    Colours,
    FigureStyle,
    HoursShown,
    audit_figure,
    forecast_figure,
    hours_figure,
    load_figure,
    rehearsal_figure,
    usage_figure,
)
from dashboard.pages.graphs import (
    GRAPHS,
    AuditRequest,
    ForecastRequest,
    RehearsalRequest,
    audit_answer,
    bucket_for,
    forecast_answer,
    rehearsal_answer,
)
from dashboard.pages.past_answers import (
    PAST,
    PastRequest,
    load_facts,
    past_answer,
    usage_facts,
)
from gpudeck.errors import CommandError

ZONE_S = random.choice([-7, 0, 2, 9]) * 3_600
STYLE = FigureStyle(Colours(
    "#101010", "#101010", "#101010", "#101010", "#101010", "#101010", "#101010", "sans",
    [f"#{at}0{at}0{at}0" for at in range(8)]), ZONE_S, 600)


def load(values: list[float | None]) -> dict[str, Any]:
    return {"start": 6_000, "step": 60, "gpus": [None if pct is None else 8 for pct in values],
            "util_mean_pct": values,
            "busiest": {"start": 6_060, "end": 6_120, "util_mean_pct": 50.0},
            "mem_used_bytes": [None if pct is None else pct * GIB for pct in values],
            "power_w": [None if pct is None else pct * 1_000 for pct in values]}


def test_load_has_its_holes_its_units_and_its_busiest_hour() -> None:
    values = [random.uniform(1, 99), None, random.uniform(1, 99)]
    figure = load_figure(load(values), (6_000, 6_180), STYLE)
    util, memory, power, gpus, *areas = figure["data"]
    for line in (util, memory, power):
        assert [value is None for value in line["y"]] == [False, False, True, False, False]
        assert line["y"][0] == pytest.approx(values[0])
    # The hole is one of the area too: an outline for each of the two.
    assert not any("fill" in line for line in (util, memory, power, gpus))
    for line, area in zip((util, memory, power, gpus), areas, strict=True):
        (x0, x1, _, x2, x3), (y0, y1, _, y2, y3) = line["x"], line["y"]
        assert (area["yaxis"], area["fill"]) == (line["yaxis"], "toself")
        assert area["x"] == [x0, x0, x1, x1, None, x2, x2, x3, x3, None]
        assert area["y"] == [0, y0, y1, 0, None, 0, y2, y3, 0, None]
    # Both are alone: from their begin to their end.
    assert gpus["y"] == [8, 8, None, 8, 8]
    assert util["x"] == [t * 1_000 for t in (6_000, 6_060, 6_090, 6_120, 6_180)]
    together = load_figure(load([1.0, 2.0]), (6_000, 6_180), STYLE)["data"][0]
    assert together["y"] == [1.0, 2.0]
    assert together["x"] == [t * 1_000 for t in (6_030, 6_090)]
    (busiest,) = figure["layout"]["shapes"]
    assert (busiest["x0"], busiest["x1"]) == tuple(t * 1_000 for t in (6_060, 6_120))
    assert load_facts(load(values)) == {
        "step": 60, "known": [6_000, 6_180],
        "busiest": {"start": 6_060, "end": 6_120, "util_mean_pct": 50.0}}


def test_text_of_a_figure_is_as_large_as_that_of_the_page() -> None:
    large = msgspec.structs.replace(STYLE, text_px=random.randint(12, 20))
    for style in (STYLE, large):
        layout = load_figure(load([1.0, 2.0]), (6_000, 6_180), style)["layout"]
        sizes = [layout["font"]["size"], *(note["font"]["size"] for note in layout["annotations"])]
        assert sizes == [style.text_px, *[style.text_px + 1] * 4]


def test_what_is_not_known_has_no_line_and_says_so() -> None:
    nothing = load([None, None]) | {"busiest": None}
    figure = load_figure(nothing, (6_000, 6_120), STYLE)
    assert figure["data"] == []
    assert [note["text"] for note in figure["layout"]["annotations"]].count("No data") == 4
    clock = figure["layout"]["xaxis"]
    assert (clock["anchor"], clock["position"]) == ("free", 0)
    assert load_facts(nothing)["known"] is None


def item(t: int, of: str | None, gpu_s: float) -> dict[str, Any]:
    return {"t": t, "of": of, "gpu_s": gpu_s, "idle_s": gpu_s / 4, "util_pct": 50.0,
            "mem_used_bytes": GIB, "mem_max_bytes": GIB, "energy_j": None}


def test_the_bucket_of_now_counts_as_long_as_it_has_lasted() -> None:
    usage = {"bucket": 3_600, "items": [item(3_600, "ada", 7_200), item(7_200, "ada", 900)]}
    gpus, util, memory, *energy = usage_figure(usage, (3_600, 10_800), 7_650.0, STYLE)["data"]
    assert gpus["y"] == [2.0, 2.0]
    assert (util["y"], memory["y"], energy) == ([50.0] * 2, [1.0] * 2, [])
    assert usage_facts(usage) == {"step": 3_600, "hours": 2.25, "idle_hours": 0.5625, "kwh": None,
                                  "known": [3_600, 10_800]}


def test_hours_add_up_whoever_is_named() -> None:
    owners = ["<b>eve</b>", "ada", "bob", None]
    items = [item(t, of, random.uniform(1, 9_000)) for t in (0, 3_600, 7_200) for of in owners]
    usage = {"bucket": 3_600, "start": 0, "end": 10_800, "items": items}
    columns: tuple[tuple[HoursShown, str], ...] = (("held", "gpu_s"), ("idle", "idle_s"))
    for show, seconds in columns:
        figure = hours_figure(usage, {"<b>eve</b>": "<b>eve</b>", "ada": "ada"}, show, STYLE)
        names = [bars["name"] for bars in figure["data"]]
        assert names == ["&lt;b&gt;eve&lt;/b&gt;", "ada", OTHERS]
        assert sum(sum(bars["y"]) for bars in figure["data"]) == pytest.approx(
            sum(row[seconds] for row in items) / 3_600)


def test_a_rehearsal_shows_who_and_when() -> None:
    alert = {"target": "x", "node": "n", "host": "n001", "place": "3", "users": ["<i>"],
             "fired_at": 100.0, "ended_at": None}
    rehearsal = {"severity": "crit", "start": 0, "end": 400,
                 "alerts": [alert | {"target": "y", "host": "n002"}, alert],
                 "victims": [{"target": "x", "host": "n001", "users": ["<i>"], "do": "end",
                              "at": 200.0},
                             {"target": "not shown", "host": "n009", "users": [], "do": "end",
                              "at": 1.0}]}
    firing, acts = rehearsal_figure(rehearsal, [], STYLE)["data"]
    assert firing["y"] == ["n002 GPU 3", "n001 GPU 3"]
    assert firing["base"] == [100_000] * 2
    assert firing["x"] == [300_000.0] * 2
    assert firing["text"] == ["&lt;i&gt;"] * 2
    assert (acts["x"], acts["y"]) == ([200_000], ["n001 GPU 3"])

    fired = [alert | {"host": "n009", "target": "z", "fired_at": -50.0, "ended_at": 20.0},
             alert | {"fired_at": 101.0, "ended_at": 390.0}]
    figure = rehearsal_figure(rehearsal, fired, STYLE)
    would, did, _ = figure["data"]
    assert (would["name"], did["name"]) == ("would have fired", "fired")
    assert (would["y"], did["y"]) == (firing["y"], ["n009 GPU 3", "n001 GPU 3"])
    assert did["base"] == [0, 101_000], "from the begin of the span"
    assert did["x"] == [20_000.0, 289_000.0]
    assert would["offset"] > did["offset"] + did["width"] - 1e-9, "side by side"
    assert figure["layout"]["yaxis"]["categoryarray"] == ["n009 GPU 3", "n001 GPU 3", "n002 GPU 3"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_rehearsal_is_shown_beside_what_the_rule_did(is_kept: bool) -> None:
    alert: dict[str, Any] = {"target": "x", "host": "n001", "place": "3", "users": [],
                             "ended_at": None}
    rehearsal = {"id": "r", "rule": {"id": "hot/x"}, "severity": "warn", "start": 0, "end": 400,
                 "grain_s": 60, "alerts": [], "victims": [], "state": "done", "alerts_count": 0,
                 "of": "gpu", "targets": 8, "victims_count": 0, "gpu_hours": None, "refused": [],
                 "refused_count": 0, "off_by_s": 0}
    requests: list[tuple[str, dict[str, str]]] = []

    class Rules:
        def get_known(self, path: str) -> Any:
            assert path == "rules/hot%2Fx"
            return {} if is_kept else None

        def page(self, path: str, **query: str) -> Any:
            requests.append((path, query))
            return {"items": [alert | {"fired_at": at} for at in (100.0, 500.0)]
                    if "state" not in query else [alert | {"fired_at": 10.0, "ended_at": 20.0}]}

    client: Any = SimpleNamespace(hub=Rules(), rehearsal=lambda _: rehearsal)
    figure, facts = rehearsal_answer(client, RehearsalRequest(1, STYLE, "r"))
    assert facts == {"parts": {
        "rehearsal-place": is_kept, "rehearsal-list": [], "rehearsal-words": [
        "It would not have fired (8 GPUs evaluated)."
        + " In that time it did fire 2 times." * is_kept]}}
    assert requests == [("alerts", {"state": "ended", "rule": "hot/x", "start": "0", "end": "400"}),
                        ("alerts", {"rule": "hot/x"})] * is_kept
    assert [trace["name"] for trace in figure["data"] if trace["type"] == "bar"] == [
        "would have fired", "fired"][:1 + is_kept]


def test_a_forecast_goes_on_where_the_past_ends() -> None:
    p50 = [random.uniform(1e3, 9e3) for _ in range(24)]
    demand = [{"name": name, "recent_from": 3_600.0, "recent": [1_000.0, None, 2_000.0],
               "starts_at": 14_400.0, "p10": [one / 2 for one in p50], "p50": p50,
               "p90": [one * 2 for one in p50]} for name in ("power_w", "gpus_held")]
    figure = forecast_figure(demand, STYLE)
    past, area, middle, *rest = figure["data"]
    assert len(rest) == 3
    assert past["y"] == [1.0, None, 2.0], "in kilowatts, and a hole is a hole"
    assert past["x"][0] == (3_600 + 1_800) * 1_000
    assert middle["x"][0] == (14_400 + 1_800) * 1_000
    assert middle["y"] == pytest.approx([one / 1_000 for one in p50])
    assert area["y"] == pytest.approx([*(one / 500 for one in p50), *(
        one / 2_000 for one in reversed(p50))])
    assert figure["layout"]["xaxis"]["range"] == [
        t * 1_000 for t in (3_600, 14_400 + 24 * 3_600)]
    # Not known: the past alone.
    unknown = [demand[0] | {"p10": [], "p50": [], "p90": []}]
    assert forecast_figure(unknown, STYLE)["data"][2]["x"] == []


def test_there_is_no_figure_for_who_sees_a_part_of_the_fleet() -> None:
    client: Any = SimpleNamespace(hub=SimpleNamespace(get=lambda _: {"demand": []}))
    with pytest.raises(CommandError, match="the whole fleet"):
        forecast_answer(client, ForecastRequest(1, STYLE))


def test_bars_are_whole_hours_and_not_too_many() -> None:
    for seconds in random.sample(range(3_600, 90 * 86_400), 50):
        bucket = bucket_for(seconds)
        assert bucket % 3_600 == 0
        assert seconds / bucket <= 90


class Hub:
    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.alerts: list[dict[str, Any]] = []

    def get(self, path: str, **query: str) -> dict[str, Any]:
        self.requests.append((path, query))
        if path == "teams":
            return {"members": {"n": ["ana", "bo"]}}
        return load([1.0]) if path == "load" else {"bucket": 3_600, "items": []}

    def page(self, path: str, **query: str) -> dict[str, Any]:
        self.requests.append((path, query))
        return {"items": self.alerts if query.get("state") == "ended" else []}

    def items(self, path: str) -> list[dict[str, Any]]:
        self.requests.append((path, {}))
        return [{"rule": {"id": "hot", "signal": "mean(util_pct, 5m)"}},
                {"rule": {"id": "full", "signal": "gpu_mem_share"}}]


class HubClient:
    def __init__(self) -> None:
        self.hub = Hub()


@pytest.mark.parametrize(("by", "path", "part"), [
    ("fleet", "load", {}), ("group", "load", {"group": "n"}), ("model", "load", {"model": "n"}),
    ("user", "usage", {"by": "user", "of": "n"}), ("team", "usage", {"by": "team", "of": "n"})])
def test_the_hub_is_asked_for_what_is_shown(by: Any, path: str, part: dict[str, str]) -> None:
    client: Any = HubClient()
    past_answer(client, PastRequest(1, STYLE, by, "n", 0, 7_200, 3_600))
    (query,) = [query for address, query in client.hub.requests if address == path]
    assert query == part | {"start": "0", "end": "7200"} | (
        {"step": "3600"} if path == "load" else {"bucket": "3600"})


def _alert(rule: str, since: float, ended_at: float | None, **more: Any) -> dict[str, Any]:
    return {"id": f"{rule} {since}", "rule": rule, "severity": "crit", "since": since,
            "ended_at": ended_at, "inhibited_by": [], "silenced_by": [], "title": rule, "of": "gpu",
            "place": "0", "host": "n1", "users": [], "target": "g"} | more


@pytest.mark.parametrize(("by", "part"), [
    ("fleet", {}), ("group", {"group": "n"}), ("model", {"model": "n"}), ("user", {"users": "n"}),
    ("team", {"users": "ana,bo"})])
def test_alerts_come_with_the_figure_and_begin_in_the_row_of_their_metric(
        by: Any, part: dict[str, str]) -> None:
    """Left out: what another alert explains, and what was over before. In the lane, yet without a
    hairline: what is silenced, began before, or is about no row."""
    client: Any = HubClient()
    alerts = [_alert("hot", 50, 200), _alert("hot", 900, 950), _alert("full", 1_000, None),
              _alert("hot", 1_100, 1_200, silenced_by=["s"]), _alert("gone", 1_150, 1_200)]
    client.hub.alerts = [*alerts[::-1], _alert("hot", 10, 90),
                         _alert("hot", 500, 600, inhibited_by=["lost"])]
    figure, facts = past_answer(client, PastRequest(1, STYLE, by, "n", 100, 7_200, 3_600))
    _, (_, _, strips) = facts["parts"]["past-lane"]
    assert [(traits["data-rule"], len(track[2])) for _, traits, (_, track) in strips] == [
        ("hot", 3), ("full", 1), ("gone", 1)]
    lines = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
    rows = {"y": 900, "y2": 1_000} if by in ("fleet", "group", "model") else {
        "y2": 900, "y3": 1_000}
    assert {line["yref"].removesuffix(" domain"): line["x0"] for line in lines} == {
        row: STYLE.x(at) for row, at in rows.items()}
    assert [query for address, query in client.hub.requests if address == "alerts"] == [
        {"state": "ended", "start": "100", "end": "7200", "limit": "1000"} | part,
        {"limit": "1000"} | part]


@pytest.mark.parametrize("closed", ["teams", "alerts"])
def test_a_figure_comes_without_alerts_that_the_hub_does_not_give(closed: str) -> None:
    class Refusing(Hub):
        def get(self, path: str, **query: str) -> dict[str, Any]:
            if path == closed:
                raise CommandError("for admins")
            return super().get(path, **query)

        def page(self, path: str, **query: str) -> dict[str, Any]:
            return self.get(path, **query) if closed == "alerts" else super().page(path, **query)

    client: Any = SimpleNamespace(hub=Refusing())
    figure, facts = past_answer(client, PastRequest(1, STYLE, "team", "n", 0, 7_200, 3_600))
    assert facts["parts"]["past-lane"] is None
    assert figure["data"] == []


def test_entries_stand_in_their_local_hour_or_day_by_outcome() -> None:
    """Unknown words are something that was done."""
    words: dict[Any, str] = {
        "done": "done", "let in": "done", None: "done", "queued": "in progress",
        "denied": "refused", "expired": "refused", "unkillable": "failed", "unknown": "failed"}
    hours, bucket = random.choice([(1, 300), (2, 300), (3, 3_600), (48, 3_600), (49, 86_400),
                                   (400, 86_400)])
    end = 500 * 86_400 + random.randrange(86_400)
    entries: list[dict[str, Any]] = [{"at": end - random.uniform(0, hours * 3_600), "outcome": word}
               for word in random.choices([*words], k=200)]
    figure = audit_figure([*entries, {"at": None, "outcome": "done"}],
                          (end - hours * 3_600, end), STYLE)
    counts: Counter[tuple[str, float]] = Counter()
    for entry in entries:
        local = (entry["at"] + ZONE_S) // bucket * bucket
        counts[words[entry["outcome"]], (local - ZONE_S + bucket / 2) * 1_000] += 1
    assert {(bars["name"], x): y for bars in figure["data"] for x, y in zip(
        bars["x"], bars["y"], strict=True)} == counts
    low, high = figure["layout"]["xaxis"]["range"]
    assert all(low <= x - bucket * 500 < x + bucket * 500 <= high for _, x in counts)


@pytest.mark.parametrize(("count", "step"), [(1, 1), (3, 1), (40, None)])
def test_no_tick_lies_between_whole_entries(count: int, step: int | None) -> None:
    """Axis of one entry: it read 0, 1, 1."""
    axis = audit_figure([{"at": 1_800, "outcome": "done"}] * count, (0, 3_600),
                        STYLE)["layout"]["yaxis"]
    assert axis.get("dtick") == step


def test_no_entry_is_said_and_has_no_scale() -> None:
    figure = audit_figure([], (0, 3_600), STYLE)
    assert figure["data"] == []
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["No entry in this time"]
    assert not figure["layout"]["yaxis"]["showticklabels"]


@pytest.mark.parametrize("pages", [1, 3, 9])
def test_the_log_is_read_as_it_is_filtered_and_not_without_end(pages: int) -> None:
    queries: list[dict[str, str]] = []

    def page(path: str, **query: str) -> dict[str, Any]:
        queries.append(dict(query))
        at = 1_000_000 - 1_000 * len(queries)
        return {"items": [{"at": at, "outcome": "done", "command_id": None}],
                "next": None if len(queries) == pages else str(len(queries))}

    client: Any = SimpleNamespace(hub=SimpleNamespace(page=page))
    figure, facts = audit_answer(client, AuditRequest(
        1, STYLE, 900_000, 1_000_000, {"actor": "ana", "system": "false"}))
    assert facts == {"entries": min(pages, 5), "is_all": pages <= 5}
    assert [query.get("cursor") for query in queries] == [None, "1", "2", "3", "4"][:pages]
    assert all(query["actor"] == "ana" and query["system"] == "false" and query["since"] == "900000"
               and query["until"] == "1000000" for query in queries)
    start = 900_000 if pages <= 5 else 1_000_000 - 86_400
    assert figure["layout"]["xaxis"]["range"][0] == start // 3_600 * 3_600 * 1_000


def test_a_command_that_is_done_is_not_counted_as_in_progress_as_well() -> None:
    entries = [{"at": 999_000, "outcome": outcome, "command_id": "c1"}
               for outcome in ("done", "acting", "sent")]
    page = {"items": [*entries, {"at": 998_000, "outcome": "sent", "command_id": "c2"}],
            "next": None}
    client: Any = SimpleNamespace(hub=SimpleNamespace(page=lambda path, **query: page))
    figure, _ = audit_answer(client, AuditRequest(1, STYLE, 900_000, 1_000_000, {}))
    assert {trace["name"]: sum(trace["y"]) for trace in figure["data"]} == {
        "done": 1, "in progress": 1}


def test_what_a_browser_sends_is_checked_and_each_callback_has_its_row() -> None:
    good = msgspec.to_builtins(PastRequest(1, STYLE, "fleet", "", 0, 60, 60))
    assert msgspec.convert(good, GRAPHS[PAST][0])
    for wrong in ({"by": "admin"}, {"step": 0}, {"start": "now"}, {"style": None}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(good | wrong, GRAPHS[PAST][0])
    for key in GRAPHS:
        assert f"callback ..{key}.children...{key}.facts.." in TABLE
