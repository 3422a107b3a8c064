"""The Pool page: what is free, who waits, who holds what, and the week."""

import json
import random
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from dashboard.access.policy import Role
from dashboard.pages import pool_strategy
from dashboard.pages.element_tree import trees
from dashboard.pages.pool import PAGE, PoolNow, PoolPageView, answer, parts_of
from dashboard.pages.pool_orders import request
from dashboard.pages.pool_spans import (
    Span,
    free_after,
    lane_runs,
    midnights,
    spans_of,
    stacked_spans,
)
from dashboard.pages.pool_tables import PoolTables
from dashboard.pages.pool_words import gpus_of, leased_words, places_words, why_words
from dashboard.pages.reading import Viewer
from dashboard.pool.views import (
    ClaimView,
    LeaseView,
    ModelView,
    PoolGpuView,
    PoolNodeView,
    PoolView,
    SimulationView,
    StrategyOutcome,
    StrategyView,
)
from tests.hostile import strings

from .read_parts import elements, forms, wire_parts, words

NOW = 1_795_000_000.0
DAY_S = 86_400.0
STRATEGIES = [StrategyView("pack", "the fullest node first", True),
              StrategyView("spread", "the emptiest node first", False)]


def node(host: str = "n1", gpus: str = "abc", trouble: str = "") -> PoolNodeView:
    return PoolNodeView(f"id-{host}", host, [
        PoolGpuView(uuid, str(at), "H100", False, None, trouble) for at, uuid in enumerate(gpus)])


def lease(gpus: str = "a", **fields: Any) -> LeaseView:
    facts: dict[str, Any] = {
        "id": f"l-{gpus}", "owner": "ann", "node": "id-n1", "host": "n1", "share_pct": 100.0,
        "state": "active", "since": NOW - 60, "until": NOW + 7_200, "idle_since": None,
        "command": "", "is_run": False, "task_ids": [], "outsiders": [], "misplaced": []}
    return LeaseView(gpus=list(gpus), **facts | fields)


def claim(**fields: Any) -> ClaimView:
    facts: dict[str, Any] = {
        "id": "c1", "owner": "ann", "asks": "2 GPUs", "gpus": 2, "priority": 2,
        "asked_at": NOW - 120, "place": 1, "why": "it asks for 2 GPUs; 0 of 4 are free",
        "wait_s": 600.0, "hosts": [], "term_s": 3_600.0, "starts_at": None, "is_here": True,
        "estimate": "", "kept": [], "team": None}
    return ClaimView(**facts | fields)


def pool(nodes: int = 1, is_on: bool = True, **fields: Any) -> PoolView:
    return PoolView(is_on, "pack", "fair", nodes, [ModelView("H100", 4, 1, 2, 1)], 1, **(
        {"waiting": 1, "waiting_gpus": 2} | fields))


def test_a_claim_waits_for_a_moment_of_the_viewers_zone() -> None:
    """The agents' words are in UTC, for terminals of several places."""
    waits = claim(why="it asks for 2 GPUs; 4 of 4 matching are free, 3 of these are reserved from "
                  "2026-11-30 20:00 UTC on, and it asks for 4 h")
    at = datetime(2026, 11, 30, 16, tzinfo=UTC).timestamp()
    assert why_words(waits, at, "Europe/Berlin") == (
        "4 of 4 matching are free, 3 of these are reserved from 21:00 on, and it asks for 4 h.")
    assert "from Tue 1 Dec, 01:00 on" in why_words(waits, at, "Asia/Karachi")


def now_of(*leases: LeaseView, claims: Any = (), nodes: Any = None, **fields: Any) -> PoolNow:
    return PoolNow(fields.pop("pool", pool()), [node()] if nodes is None else nodes, leases,
                   claims, fields.pop("strategies", STRATEGIES))


OPERATOR, USER, GUEST = (Viewer(Role.OPERATOR, ["olga"]), Viewer(Role.USER, ["ann"]),
                         Viewer(Role.VIEWER))


def page_of(there: PoolNow, person: Viewer = USER, view: PoolPageView | None = None
            ) -> dict[str, Any]:
    return wire_parts(PAGE, parts_of(there, view or PoolPageView(), person, NOW))


# -- spans and words


def test_places_are_named_together() -> None:
    assert places_words(["10", "2", "3", "4", "7", "8", "0/9"]) == (
        "0/9, 2\N{EN DASH}4, 7, 8, 10")
    gpus = gpus_of([node()])
    assert leased_words(lease("abc"), gpus) == "GPU 0\N{EN DASH}2"
    assert leased_words(lease("b", share_pct=30.0), gpus) == "30 % of GPU 1"
    assert leased_words(lease("bz"), gpus) == "2 GPUs", "one of them is not known"


def test_neighbours_are_one_bar() -> None:
    assert lane_runs([4, 0, 1, 5, 9]) == [(0, 2), (4, 2), (9, 1)]


def lanes(leases: Any, claims: Any) -> list[tuple[list[int], int, float]]:
    return [([*span.lanes], round(10 * span.at), span.end - NOW)
            for span in spans_of(node(), leases, claims, NOW)]


def test_of_a_part_of_a_gpu_and_of_what_is_not_placed_yet() -> None:
    assert lanes([lease("a", share_pct=30.0), lease("a", share_pct=60.0),
                  lease("bc", until=NOW - 30)], []) == [
        ([0], 0, 7_200), ([0], 3, 7_200), ([1, 2], 0, 0)], "an overdue one lasts until now"
    claims = [claim(starts_at=NOW + 7_000, term_s=1_000, gpus=1),
              claim(starts_at=NOW + 8_000, term_s=1_000, gpus=2),
              claim(starts_at=NOW + 8_000, term_s=1_000, gpus=1),
              claim(starts_at=NOW + 8_000, term_s=1_000, gpus=1, kept=["a"])]
    assert [lane for lane, _, _ in lanes([lease("a")], claims)] == [[0], [1], [0, 1], [2], [0]]
    stacked = stacked_spans([claim(starts_at=NOW + at, term_s=10.0) for at in (0, 5, 10)])
    assert [span.lanes for span in stacked] == [(0,), (1,), (0,)]


def test_a_week_has_the_hours_of_its_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 10, 22, 15, 30, tzinfo=berlin).timestamp()  # clocks go back on the 25th
    days = midnights(0, now, "Europe/Berlin")
    assert len(days) == 8
    assert {datetime.fromtimestamp(at, berlin).hour for at in days} == {0}
    assert [(until - since) / 3_600 for since, until in pairwise(days)] == [
        24, 24, 24, 25, 24, 24, 24]
    assert midnights(1, now, "Europe/Berlin")[0] == days[7]


def test_what_is_free_after_a_bar_ends_where_another_begins() -> None:
    def span(start: float, end: float, *on: int) -> Span:
        return Span(claim(), start, end, on)

    first, other, beside = span(0, 10, 0), span(25, 30, 0, 1), span(11, 12, 2)
    assert free_after(first, [first, other, beside], 100) == 15
    assert free_after(other, [first, other, beside], 100) == 70
    assert free_after(span(90, 120, 2), [other], 100) == 0


# -- the page


def test_a_page_says_what_is_free_who_waits_and_who_holds_what() -> None:
    there = now_of(lease("ab", command="train.py"), claims=[
        claim(), claim(id="c2", starts_at=NOW + DAY_S, hosts=["n1"])], nodes=[node(trouble="hot")])
    parts = page_of(there)
    assert words(parts["pool-words"]) == (
        "1 of 4 GPUs free · 1 claim waits for 2 GPUs · 1 reservation")
    assert "1 of 4 free" in words(parts["pool-free"])
    assert "1. ann" in words(parts["pool-waiting"])
    assert "0 of 4 are free." in words(parts["pool-waiting"])
    assert "it asks for" not in words(parts["pool-waiting"]), "that stands above it"
    assert "within 10 min" in words(parts["pool-waiting"])
    assert parts["pool-reserved-section"] is True
    assert "for 60 min" in words(parts["pool-reserved"])
    assert "n1 · GPU 0, 1" in words(parts["pool-held"])
    assert "1 GPU not available · 2 leased GPUs with a problem" in words(
        parts["pool-unavailable"]), "as the bars count them"
    assert "n1 · GPU 2: hot" in words(parts["pool-unavailable"])
    assert "n1 · GPU 0, leased: hot" in words(parts["pool-unavailable"])
    bars = [traits for tag, traits, _ in elements(parts["pool-calendar"])
            if "calendar-bar" in traits.get("class", "").split()]
    assert [bar["class"] for bar in bars] == ["calendar-bar lease mine", "calendar-bar claim mine"]
    assert [bar["tabindex"] for bar in bars] == ["0", "-1"]
    assert json.loads(bars[0]["data-set"]) == {"open": "l-ab"}


def test_a_pool_that_is_off_and_one_without_nodes_say_how_to_begin() -> None:
    for there, text in ((now_of(pool=pool(0), nodes=[]), "No node is in the pool yet"),
                        (now_of(pool=pool(0, is_on=False), nodes=[]), "The pool is off")):
        parts = page_of(there, OPERATOR)
        assert text in words(parts["pool-off"])
        assert (parts["pool-ask"], parts["pool-there"]) == (False, False)
    assert page_of(now_of())["pool-off"] is None


def test_a_viewer_is_offered_nothing() -> None:
    there = now_of(lease(), claims=[claim(starts_at=NOW + DAY_S)])
    parts = page_of(there, GUEST)
    assert forms([node for part in parts.values() if isinstance(part, list) for node in part]) == []
    assert (parts["pool-ask"], parts["pool-how"]) == (False, False)
    [inner] = parts["pool-calendar"]
    assert "data-reserve" not in inner[1]
    assert [tag for tag, traits, _ in elements(parts["pool-calendar"])
            if tag == "button" and "calendar-bar" not in traits["class"]] == []


def test_only_what_is_ones_own_can_be_changed() -> None:
    there = now_of(lease("a"), lease("b", owner="bob"), claims=[
        claim(), claim(id="c2", owner="bob"), claim(id="c3", is_here=False)])
    for person, count in ((USER, 1), (OPERATOR, 2)):
        parts = page_of(there, person)
        assert len(forms(parts["pool-held"])) == 2 * count
        assert len(forms(parts["pool-waiting"])) == count
    [extend, back] = forms(page_of(now_of(lease("a", id="$x y")))["pool-held"])
    assert extend["path"] == "leases/%24x%20y/extend"
    assert back["tone"] == "bad"
    assert [form["title"] for form in forms(page_of(now_of(lease("a", is_run=True)))["pool-held"])
            ] == ["Extend the lease of ann on n1"], "a command ends with itself alone"


def test_who_may_ask_for_others_names_the_user() -> None:
    def owner(person: Viewer) -> list[Any]:
        fields = request([], [], person, "UTC", NOW)["fields"]
        return [(field["type"], field["value"]) for field in fields if field["name"] == "owner"]

    assert owner(OPERATOR) == [("text", "olga")]
    assert owner(Viewer(Role.USER)) == [("text", "")]
    assert owner(USER) == [], "there is nothing to choose"
    assert owner(Viewer(Role.USER, ["ann", "train"])) == [("choice", "ann")]


def test_first_rows_are_shown_and_a_search_finds_the_others() -> None:
    leases = [lease("a", id=f"l{at}", owner=f"user{at}", until=NOW + at) for at in range(40)]
    there = now_of(*leases)
    assert sum(tag == "tr" for tag, _, _ in elements(page_of(there)["pool-held"])) == 11
    assert "Show all 40" in words(page_of(there)["pool-held"])
    matches = page_of(there, view=PoolPageView(find="USER39"))["pool-held"]
    assert "user39" in words(matches)
    assert "user38" not in words(matches)
    assert "No lease matches." in words(page_of(there, view=PoolPageView(find="x"))["pool-held"])
    whole = page_of(there, view=PoolPageView(all_leases=True))["pool-held"]
    assert sum(tag == "tr" for tag, _, _ in elements(whole)) == 41
    mine = page_of(now_of(*leases, lease("b", until=NOW + 900)))["pool-held"]
    assert words(mine).index("ann") < words(mine).index("user0"), "one's own come first"


def test_rows_of_the_week_are_the_nodes_in_order_and_above_them_what_any_may_serve() -> None:
    nodes = [node(host, gpus=host) for host in ("N1", "n2", "n10")]
    there = now_of(claims=[claim(starts_at=NOW + DAY_S)], nodes=nodes)

    def hosts(view: PoolPageView) -> list[str]:
        return [traits["data-host"] for tag, traits, _ in elements(
            page_of(there, GUEST, view)["pool-calendar"]) if tag == "li" and "data-host" in traits]

    assert hosts(PoolPageView()) == ["", "N1", "n2", "n10"]
    assert hosts(PoolPageView(find="N2")) == ["", "n2"]
    assert [traits.get("disabled") for key in ("before", "today", "after")
            for _, traits, _ in elements(page_of(there)[f"pool-{key}"])] == ["", "", None]
    later = page_of(there, view=PoolPageView(week=1))
    assert all("disabled" not in traits for key in ("before", "today", "after")
               for _, traits, _ in elements(later[f"pool-{key}"]))
    assert not any("calendar-bar" in traits.get("class", "").split()
                   for _, traits, _ in elements(later["pool-calendar"]))


def test_what_a_node_says_is_only_text() -> None:
    for text in strings():
        there = now_of(lease("a", owner=text, host=text, command=text, state=text),
                       claims=[claim(owner=text, asks=text, why=text, hosts=[text])],
                       nodes=[node(text, trouble=text)])
        assert words(page_of(there, OPERATOR)["pool-held"]).count(text) >= (1 if text else 0)


# -- what is asked once


class Hub:
    def __init__(self, there: PoolNow, role: str = "operator") -> None:
        self.there, self.role = there, role

    def get(self, path: str, **_: str) -> Any:
        answers = {"pool": self.there.pool, "me": {"role": self.role, "unix_names": ["ann"]},
                   "pool/strategies": {"items": self.there.strategies, "orders": []}}
        return msgspec.to_builtins(answers[path])

    def all(self, path: str) -> Any:
        return msgspec.to_builtins({"pool/nodes": self.there.nodes, "leases": self.there.leases,
                                    "claims": self.there.claims}[path])


def answered(hub: Hub, view: PoolPageView) -> dict[str, Any]:
    client: Any = SimpleNamespace(hub=hub, leases=lambda: hub.all("leases"),
                                  claims=lambda: hub.all("claims"))
    return wire_parts(PAGE, answer(client, view, NOW))


def test_a_bar_that_was_pressed_opens_its_dialog_once() -> None:
    hub = Hub(now_of(lease("ab"), claims=[claim(starts_at=NOW + DAY_S)]))
    view = PoolPageView(open="l-ab")
    title, *content = answered(hub, view)["@dialog"]
    assert title == "Lease"
    assert "n1 · GPU 0, 1" in words(content)
    assert [form["verb"] for form in forms(content)] == ["Extend", "Give back"]
    assert view.open == ""
    assert "@dialog" not in answered(hub, view)
    title, *content = answered(hub, PoolPageView(open="c1"))["@dialog"]
    assert (title, [form["verb"] for form in forms(content)]) == (
        "Reservation", ["Leave the queue"])
    assert "@dialog" not in answered(hub, PoolPageView(open="gone"))


def test_the_browser_orders_a_simulation_and_the_page_writes_what_came_of_it() -> None:
    pct = random.uniform(1, 99)
    simulation = SimulationView(7, NOW, [StrategyOutcome("pack", 60.0, 600.0, 7_200.0, pct, 1),
                                         StrategyOutcome("$", 0.0, 60.0, 7_200.0, 50.0, 0)])
    hub = Hub(now_of(lease(), strategies=[*STRATEGIES, StrategyView("$", "dear", False)]))
    for choice, other in (("", "spread"), ("gone", "spread"), ("$", "$")):
        view = PoolPageView(strategy=choice)
        [order] = forms(answered(hub, view)["pool-compare"])
        assert (order["method"], order["path"], order["keeps"]) == (
            "POST", "pool/simulations", "simulation")
        assert order["body"] == {"strategies": ["pack", "$strategy"], "days": 7}
        assert view.strategy == other
        assert order["doing"] == pool_strategy.RUNNING
    view = PoolPageView(simulation=msgspec.json.encode(simulation).decode())
    parts = answered(hub, view)
    assert f"{pct:.1f} %" in words(parts["pool-outcome"])
    assert "7 leases" in words(parts["pool-outcome"])
    assert (view.simulation, float(parts["@every"][0])) == ("", 5)
    assert "pool-outcome" not in answered(hub, view), "it stays"
    for text in ("{", "[]", '"\\ud800"'):
        assert "pool-outcome" not in answered(hub, PoolPageView(simulation=text))
    assert "Nothing" not in words(trees(pool_strategy.outcome(SimulationView(0, NOW, []))))


def test_who_may_not_compare_is_offered_no_simulation() -> None:
    assert answered(Hub(now_of(), role="user"), PoolPageView())["pool-compare"] is None



@pytest.mark.parametrize("person", [GUEST, USER, OPERATOR])
def test_tables_of_nothing_say_so(person: Viewer) -> None:
    tables = PoolTables(person, {}, NOW, "UTC")
    assert words(trees(tables.leases([]))) == "No leases."
    assert words(trees(tables.waiting([]))) == "The queue is empty."
