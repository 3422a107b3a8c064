"""Show on the Alerts page what is firing, pending, blocked and silenced, and who may do what."""

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.access.policy import Role
from dashboard.alerts.core.measure import Measure
from dashboard.pages.alert_cells import AlertContext
from dashboard.pages.alert_table import alert_lists, alert_table, lines_of
from dashboard.pages.alerts import MOST_ALERTS, PAGE, AlertsView, answer
from dashboard.pages.brake_tables import brake_table, maintenance_form, stop_line
from dashboard.pages.drafts import REMOVED_MEANWHILE, encode_draft, read_draft
from dashboard.pages.past_alert_table import NONE_RESOLVED
from dashboard.pages.reading import Viewer
from dashboard.pages.rule_form import RuleFormDraft
from dashboard.pages.rule_table import rule_table
from dashboard.pages.silence_table import new_silence, silence_table
from dashboard.pages.site_alert_table import site_alert_table, site_words
from tests.unit.dashboard.pages.read_parts import forms, wire_parts
from tests.unit.dashboard.pages.test_audit_page import HOSTILE, elements, text_of, words_in

NOW = 1_700_000_000.0
OPERATOR = Viewer(Role.OPERATOR, name="ops")
NO_ALERTS: Any = alert_lists([], [])


def alert(id: str, rule: str = "hot", **fields: Any) -> Any:
    return {"id": id, "rule": rule, "title": "Too hot", "severity": "crit", "of": "gpu",
            "target": f"GPU-{id}", "node": "k1", "host": "n1", "place": "3", "users": [],
            "gpus": [], "state": "firing", "since": NOW - 900, "fired_at": NOW - 600,
            "ended_at": None, "value": 91.0, "comebacks": 0, "why": "", "holds": [],
            "silenced_by": [], "inhibited_by": [], "ladder": None} | fields


def ladder(**fields: Any) -> Any:
    return {"mode": "confirm", "state": "waiting", "next": "end", "due_at": None, "why": "",
            "confirm": True, "task_ids": ["k1:t1", "k1:t2"], "rungs": [], "done": []} | fields


def context(person: Viewer = OPERATOR, *opened: str) -> AlertContext:
    return AlertContext({"hot": "temp_c"}, {"hot": Measure("°C", ">= 85", 85.0)},
                        {"hot": "Too hot"}, {*opened}, person, NOW, "UTC")


def rule(id: str = "hot", **fields: Any) -> Any:
    inside = {"id": id, "title": f"Rule {id}", "severity": "crit", "signal": "temp_c",
              "fire": ">= 85", "where": [], "for": "2m", "of": "gpu", "scope": "*", "ladder": [],
              "mode": "observe", "expires": ""} | fields.pop("rule", {})
    return {"rule": inside, "mode": inside["mode"], "is_watched": True, "targets": 8, "pending": 0,
            "firing": 0, "resolving": 0, "no_data": 0, "cannot": 0, "why_not": "", "number": 3,
            "version": "v", "unit": "°C", "fires_at": 85.0} | fields


def buttons(part: Any) -> list[str]:
    return [text_of(button) for button in elements(part, "button")]


def test_each_alert_is_in_the_lists_that_it_belongs_to() -> None:
    worst, asking = alert("a"), alert("b", severity="info", ladder=ladder())
    quiet, explained = alert("c", silenced_by=["s"]), alert("d", inhibited_by=["a"])
    held, mild = alert("e", holds=["a brake"]), alert("f", severity="warn")
    alerts = [mild, explained, quiet, worst, held, asking]
    random.shuffle(alerts)
    lists = alert_lists(alerts, [alert("p")])
    assert lists["firing"][0] is asking, "it waits for a person"
    assert lists["firing"][-1] is mild
    assert {key: sorted(one["id"] for one in listed) for key, listed in lists.items()} == {
        "firing": ["a", "b", "e", "f"], "pending": ["p"], "held": ["d", "e"], "silenced": ["c"]}


def test_a_rule_is_one_line_and_what_waits_for_a_person_stands_alone() -> None:
    count = random.randint(2, 6)
    alerts = [alert("w", ladder=ladder()), *(
        alert(f"a{at}", since=NOW - at, holds=["h", f"h{at}"]) for at in range(count))]
    [asking, group] = lines_of(alerts, set())
    assert (asking["id"], group["id"], group["since"]) == ("w", "rule hot", NOW - count + 1)
    assert group["holds"] == ["h", *(f"h{at}" for at in range(count))]
    assert len(lines_of(alerts, {"hot"})) == count + 2
    part = alert_table("firing", alerts, context(OPERATOR, "hot"))
    assert f"Too hot: {count} GPUs on 1 node" in words_in(part)
    [toggle] = [node for node in elements(part, "button") if "data-rule" in node[1]]
    assert json.loads(toggle[1]["data-set"]) == {"opened": []}
    assert elements(part, "tbody")[0][1]["data-steady"] == ""


@pytest.mark.parametrize(("role", "words"), [
    (Role.VIEWER, []), (Role.USER, ["Approve: end"]),
    (Role.OPERATOR, ["Approve: end", "Drain GPU", "Silence"])])
def test_each_role_is_offered_what_it_may(role: Role, words: list[str]) -> None:
    part = alert_table("firing", [alert("a/b", ladder=ladder())], context(Viewer(role)))
    assert buttons(part) == words
    assert alert_table("silenced", [], context()) is not None
    assert buttons(alert_table("silenced", [alert("a")], context())) == ["Drain GPU"]
    for node in elements(part, "button")[:1]:
        confirm = json.loads(node[1]["data-confirm"])
        assert (node[1]["data-act"], node[1]["data-targets"]) == ("end", '["k1:t1","k1:t2"]')
        assert confirm["path"] == "alerts/a%2Fb/confirm"
        assert confirm["lead"] == ("Requested by the rule “Too hot”: temp_c is 91 °C, condition "
                                   "met for 15 min.")


@pytest.mark.parametrize(("fields", "words"), [
    ({"confirm": True}, "end, waiting for approval"),
    ({"confirm": False, "due_at": NOW + 60}, "end in 60 s"),
    ({"confirm": False, "due_at": NOW - 60}, "end, at the next evaluation"),
    ({"confirm": False, "next": None}, "no further step"),
    ({"mode": "dry_run"}, "dry run: only logged"), ({"why": "it is night"}, "it is night"),
    ({"done": [{"do": "tell", "at": NOW - 60, "sentence": "", "outcome": None}]},
     "tell 60 s ago: in progress")])
def test_the_next_step_is_said(fields: Any, words: str) -> None:
    assert words in words_in(alert_table("firing", [alert("a", ladder=ladder(**fields))],
                                         context()))


def test_when_a_pending_alert_fires_and_what_blocks_another() -> None:
    def words(name: str, **fields: Any) -> str:
        return words_in(alert_table(name, [alert("a", **fields)], context()))

    assert "in 60 s" in words("pending", fired_at=NOW + 60)
    assert "at the next evaluation" in words("pending", fired_at=NOW - 1)
    blocked = words("held", state="resolving", holds=["a brake"])
    assert "condition no longer met a brake" in blocked
    assert "end, once nothing blocks it" in words("held", holds=["x"], ladder=ladder(
        confirm=False, due_at=NOW - 1))


def test_a_silence_of_one_alert_asks_only_for_how_long() -> None:
    [form] = [form for form in forms(json.loads(json.dumps(wire_parts(PAGE, {
        "alerts-firing": alert_table("firing", [alert("$a", of="task")], context())})[
            "alerts-firing"]))) if form["title"] == "Silence"]
    ways, because, more = form["fields"]
    assert [words for _, words in ways["options"]] == ["1 hour", "4 hours", "1 day", "1 week"]
    assert because["empty"] == "silenced from the alert by ops"
    assert form["body"] == {"until": "$until", "because": "$because", "rule": "hot",
                            "target": "GPU-$a"}
    wide = more["order"]
    places = [json.loads(value) for value, _ in wide["fields"][1]["options"]]
    assert places == [{"target": "GPU-$a", "node": ""}, {"target": "", "node": "k1"},
                      {"target": "", "node": ""}]
    assert wide["body"]["target"] == "$reach.target"
    choice = new_silence([("hot", "Too hot"), ("cold", "Cold")], "cold")["fields"][0]
    assert (choice["value"], choice["options"][0]) == ("cold", ["", "any rule"])


def test_a_silence_is_named_by_what_people_know() -> None:
    silence = {"id": "s", "rule": "hot", "host": "", "target": "GPU-a", "user": "ann",
               "because": "a fan", "by": "ops", "begins": NOW - 60, "until": NOW + 3_600}
    part = silence_table([silence], {"GPU-a": "n1 · GPU 3"}, context())
    assert "Too hot, n1 · GPU 3, user ann" in words_in(part)
    assert buttons(part) == ["End silence"]
    unknown = silence_table([silence], {}, context(Viewer(Role.USER)))
    assert "target GPU-a" in words_in(unknown)
    assert buttons(unknown) == []


@pytest.mark.parametrize(("fields", "words"), [
    ({"firing": 2, "resolving": 1, "pending": 4}, "3 firing 4 pending of 8 GPUs"),
    ({"no_data": 3}, "OK of 8 GPUs, 3 missing data"),
    ({"no_data": 5, "cannot": 3}, "no data of 8 GPUs, 5 missing data, 3 not reported"),
    ({"targets": 0}, "nothing to check of 0 GPUs"),
    ({"why_not": "no such metric"}, "not evaluated no such metric"),
    ({"is_watched": False}, "not evaluated")])
def test_a_rule_says_what_it_matches_and_green_needs_data(fields: Any, words: str) -> None:
    [row] = elements(rule_table([rule(**fields)], NO_ALERTS, OPERATOR), "tr")[1:]
    assert text_of(row[2][2]).strip() == words


@pytest.mark.parametrize(("fields", "words"), [
    ({}, "1 firing"), ({"holds": ["a brake"]}, "1 firing 1 blocked"),
    ({"inhibited_by": ["x"]}, "1 blocked"), ({"silenced_by": ["s"]}, "1 silenced"),
    ({"silenced_by": ["s"], "inhibited_by": ["x"], "holds": ["a brake"]}, "1 silenced")])
def test_a_rule_says_of_its_alerts_what_their_lists_say(fields: Any, words: str) -> None:
    """Found by visitors: "1 firing", while its alert stood in no list but the blocked ones."""
    lists = alert_lists([alert("a", **fields), alert("b", "other")], [])
    [row] = elements(rule_table([rule(firing=1)], lists, OPERATOR), "tr")[1:]
    assert text_of(row[2][2]).strip() == f"{words} of 8 GPUs"
    [newer] = elements(rule_table([rule(firing=3)], lists, OPERATOR), "tr")[1:]
    assert f"{3 - ('firing' not in words)} firing" in text_of(newer[2][2]), "none is left out"


def test_a_rule_and_its_alerts_have_the_unit_of_the_metric() -> None:
    hot = rule(firing=1, rule={"signal": "temp_margin_c", "fire": "<= 5"}, fires_at=5.0)
    [row] = elements(rule_table([hot], NO_ALERTS, OPERATOR), "tr")[1:]
    assert "temp_margin_c <= 5 °C" in text_of(row[2][1])
    [cell] = [cell for cell in elements(alert_table("firing", [alert("a")], context()), "td")
              if cell[1].get("data-head") == "Value"]
    assert text_of(cell) == "91 °C fires at >= 85 °C"


def test_rules_that_fire_come_first_and_each_role_has_its_buttons() -> None:
    rules = [rule("b"), rule("a"), rule("p", pending=1), rule("f", firing=1,
                                                             rule={"ladder": [{"do": "tell"}]})]
    part = rule_table(rules, NO_ALERTS, Viewer(Role.ADMIN))
    assert [text_of(node) for node in elements(part, "strong")] == [
        "Rule f", "Rule p", "Rule a", "Rule b"]
    assert buttons(part)[:3] == ["Edit", "Mode …", "Remove"]
    assert buttons(rule_table(rules, NO_ALERTS, OPERATOR))[:3] == ["Show", "Mode …", "Show"]
    assert set(buttons(rule_table(rules, NO_ALERTS, Viewer(Role.VIEWER)))) == {"Show"}
    assert "all nodes" in words_in(rule_table(
        [rule(rule={"of": "node"})], NO_ALERTS, OPERATOR))


def test_brakes_say_what_blocks_and_only_admins_reset_what_stays() -> None:
    brakes = [{"name": name, "title": name, "limit": "l", "lets_go": "g", "holds": True,
               "used": 2, "most": 5, "sentence": "why"} for name in ("fleet", "breaker")]
    part = brake_table(brakes, Viewer(Role.ADMIN))
    assert "blocking 2 of 5 why" in words_in(part)
    assert buttons(part) == ["Reset …"]
    assert buttons(brake_table(brakes, OPERATOR)) == []
    quiet: Any = {"breaker": None, "storms": []}
    assert stop_line(quiet, OPERATOR) is None
    storms = [{"source": f"rule r{at}", "trip": {"sentence": f"rule r{at} acted often"}}
              for at in range(4)]
    words = words_in(stop_line({"breaker": {"sentence": "no log"}, "storms": storms}, OPERATOR))
    assert words == ("No rule may act: no log. Rule r0 is stopped: it acted often. Rule r1 is "
                     "stopped: it acted often. 2 more rules stopped for the same reason. ")
    [select, _] = elements(maintenance_form([{"id": "k1", "host": "n1"}]), "select")
    assert text_of(select) == "n1"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    hostile = alert("a", title=text, host=text, place=text, users=[text], target=text,
                    holds=[text], ladder=ladder(why=text))
    part = alert_table("firing", [hostile], context())
    assert text in words_in(part)
    assert {node[0] for tag in ("script", "img") for node in elements(part, tag)} == set()
    site = {"site": text, "id": "1", "title": text, "severity": "crit", "host": text,
            "place": "", "since": NOW, "link": text}
    [link] = elements(site_alert_table([site], NOW), "a")
    assert not link[1].get("href", "").startswith("javascript")
    assert site_words([], [text]) == f"Alerts of {text}: unknown."


class Hub:
    """A hub with these alerts, which answers as the REST interface does."""

    def __init__(self, sites: list[Any] | None = None, role: str = "admin") -> None:
        self.lists: dict[str, Any] = {
            "rules": [rule()], "silences": [], "maintenance": [], "sites": sites or [],
            "sites/alerts": [], "rules/backtests": []}
        self.role = role
        self.limits: list[str] = []

    def get(self, path: str, **query: str) -> Any:
        return {"me": {"role": self.role, "name": "ada", "second_person": False},
                "brakes": {"brakes": [], "breaker": None, "storms": []}}[path]

    def items(self, path: str, **query: str) -> Any:
        if path == "alerts":
            return [alert("a")] if query.get("state", "open") == "open" else []
        return self.lists[path]

    def page(self, path: str, **query: str) -> Any:
        if path == "alerts":
            limit = int(query["limit"])
            return {"items": [alert(f"e{at}", f"r{at}", ended_at=NOW) for at in range(limit)],
                    "next": "more"}
        return {"items": self.lists[path], "unknown": [], "proof_h": 168}


def client_of(hub: Hub) -> Any:
    return SimpleNamespace(hub=hub, me=lambda: hub.get("me"),
                           nodes=lambda: [{"id": "k1", "host": "n1"}])


def test_the_page_has_a_place_for_each_part_and_says_how_many() -> None:
    parts = wire_parts(PAGE, answer(client_of(Hub()), AlertsView(), NOW))
    assert parts["@tab"] == ["(1) Alerts"]
    assert parts["alerts-words"] == ["1 firing. 1 rule."]
    assert (parts["alerts-firing-count"], parts["alerts-held-count"]) == (["1"], [])
    assert (parts["alerts-new"], parts["alerts-maintain"]) == (True, True)
    assert parts["alerts-sites-section"] is False
    parts = wire_parts(PAGE, answer(client_of(Hub([{"name": "lyon"}], "viewer")), AlertsView(),
                                    NOW))
    assert (parts["alerts-new"], parts["alerts-silence"]) == (False, None)
    assert parts["alerts-sites-words"] == ["No alert is firing at another site."]


def test_older_ones_come_on_demand_up_to_a_limit() -> None:
    view = AlertsView()
    for _ in range(9):
        part = answer(client_of(Hub()), view, NOW)["alerts-ended"]
        assert len(elements(part, "tr")) == view.limit + 1
        [older] = [node for node in elements(part, "button")
                   if node[1].get("id") == "alerts-older"]
        if "hidden" in older[1]:
            break
        view.limit = json.loads(older[1]["data-set"])["limit"]
    assert view.limit == MOST_ALERTS
    assert NONE_RESOLVED


def test_a_dialog_comes_while_the_view_has_it_and_closes_when_its_rule_is_gone() -> None:
    view = AlertsView(mode_of="hot", maintains="begun")
    parts = wire_parts(PAGE, answer(client_of(Hub()), view, NOW))
    assert parts["mode-dialog-title"] == ["Mode of “Rule hot”"]
    [order] = forms(parts["mode-dialog-body"])
    assert (order["path"], order["body"]) == (
        "rules/hot/mode", {"mode": "$mode", "expires": "$expires"})
    [order] = forms(parts["maintenance-dialog-body"])
    assert (order["method"], order["path"]) == ("PUT", "nodes/$node/maintenance")
    view.mode_of = "gone"
    assert "mode-dialog-body" not in answer(client_of(Hub()), view, NOW)
    assert view.mode_of == ""


def test_what_is_typed_of_a_rule_that_is_gone_stays_and_is_not_sent() -> None:
    draft = RuleFormDraft("gone", {"title": ["Typed"]}, ["title"], do="save")
    view = AlertsView(edited="gone", draft=encode_draft(draft))
    parts = wire_parts(PAGE, answer(client_of(Hub()), view, NOW))
    assert parts["rule-problem"] == [REMOVED_MEANWHILE]
    assert "@order" not in parts
    assert "rule-dialog-body" not in parts
    assert (view.edited, read_draft(RuleFormDraft, view.draft, RuleFormDraft("gone")).text("title")
            ) == ("gone", "Typed")
    view.draft = encode_draft(RuleFormDraft("gone"))
    answer(client_of(Hub()), view, NOW)
    assert (view.edited, view.draft) == ("", ""), "nothing was typed"
