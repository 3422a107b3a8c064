"""Write a rule in a form that the hub checks: each field is kept, what is wrong is at its field,
and the browser gets one order to send."""

import json
import time
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from dashboard.access.policy import Role
from dashboard.alerts.core.rule import InvalidRuleError, Rule, read
from dashboard.pages.alerts import PAGE
from dashboard.pages.drafts import NEW, encode_draft
from dashboard.pages.reading import Viewer
from dashboard.pages.rule_editor import OF_OPERATORS, RuleEditor
from dashboard.pages.rule_form import (
    BEGIN,
    MOST_STEPS,
    NEEDED,
    RuleFormDraft,
    outcome_words,
    slug,
)
from gpudeck.errors import CommandError
from tests.unit.dashboard.pages.read_parts import elements, wire_parts, words

NOW = time.time()
ADMIN = Viewer(Role.ADMIN, name="ada")
RULE: Any = {
    "id": "hot", "title": "Too hot", "signal": "temp_c", "fire": ">= 85", "of": "task",
    "scope": "node:n1", "where": ["util_pct >= 0%", "temp_c > 0"], "clear": "< 80", "for": "31s",
    "keep_firing_for": "1m", "no_data": "hold", "severity": "crit", "min_coverage": 0.5,
    "max_gap": "9s", "ladder": [{"do": "tell", "after": "0s"}, {"do": "end", "after": "10m"}],
    "mode": "observe", "cooldown": "20m", "budget": {"acts": 2, "within": "1h"},
    "group_by": ["rule", "gpu"], "inhibited_by": ["gpu-lost", "silent"], "owner": "ops",
    "runbook": "Look.\nThen act.", "expires": "", "when_refused": "skip", "cordon": True}
OUTCOME: Any = {"problems": [], "targets": 8, "matching": 2, "matches": [], "names": ["n1", "n2"],
              "rule": RULE, "yaml": "id: hot\n", "basis": "now", "refused": [], "warning": ""}


class Hub:
    """A hub that checks drafts with this outcome, and has a rehearsal in this state."""

    def __init__(self, state: str = "running", **outcome: Any) -> None:
        self.approved_by: str | None = None
        self.outcome, self.state, self.requests = OUTCOME | outcome, state, []  # type: ignore[var-annotated]

    def ask_for(self, method: str, path: str, body: Any) -> Any:
        assert (method, path) == ("POST", "rule-checks")
        self.requests.append(body)
        if isinstance(self.outcome.get("error"), CommandError):
            raise self.outcome["error"]
        return self.outcome


def editor(hub: Hub, draft: RuleFormDraft | None = None, person: Viewer = ADMIN, item: Any = None
           ) -> RuleEditor:
    rehearsal = {"id": "r1", "state": hub.state, "progress": 0.4, "end": NOW, "by": "bo",
                 "rule_version": "v3", "approved_by": hub.approved_by}
    me = {"name": person.name, "role": person.role, "second_person": True}
    client: Any = SimpleNamespace(hub=hub, rehearsal=lambda _: rehearsal, me=lambda: me)
    text = "" if draft is None else encode_draft(draft)
    return RuleEditor(client, person, item, text, NOW)


def draw(editor: RuleEditor, rehearsal: str = "") -> dict[str, Any]:
    return wire_parts(PAGE, editor.parts(rehearsal, "UTC"))


def values_of(part: Any) -> dict[str, list[str]]:
    """Return what a browser's form has, by the names of its controls."""
    values: dict[str, list[str]] = {}
    for tag, traits, inside in elements(part):
        name = traits.get("name")
        if name is None or (traits.get("type") == "checkbox" and "checked" not in traits):
            continue
        value = traits.get("value", "") if tag == "input" else words(inside)
        if tag == "select":
            value = next(one["value"] for _, one, _ in elements(inside) if "selected" in one)
        values.setdefault(name, []).append(value)
    return values


def item(number: int = 3) -> Any:
    return {"rule": RULE, "number": number, "version": "v1"}


def is_disabled(part: Any) -> bool:
    [button] = [traits for tag, traits, _ in elements(part) if tag == "button"]
    return "disabled" in button


def order_of(parts: dict[str, Any]) -> Any:
    return json.loads(parts["@order"][0])


def test_every_field_of_a_rule_is_kept_by_the_form() -> None:
    assert set(RULE) == {"for" if name == "for_" else name for name in Rule.__struct_fields__}
    first = editor(hub := Hub(), item=item())
    parts = draw(first)
    assert parts["rule-dialog-title"] == ["Too hot"]
    first.draft.values = values_of(parts["rule-dialog-body"])
    again = editor(hub, first.draft, item=item(4))
    draw(again)
    assert [body["rule"] for body in hub.requests] == [RULE, RULE]
    assert read(again.draft.rule_now()) == read(RULE)
    assert again.draft.number == 3, "what is saved is what was looked at"


def test_what_is_saved_is_ordered_from_the_browser() -> None:
    draft = RuleFormDraft("hot", number=3, rule=RULE, do="save")
    parts = draw(editor(Hub(rule=RULE | {"title": "$new"}), draft, item=item()))
    order = order_of(parts)
    assert (order["method"], order["path"], order["only_of"]) == ("PUT", "rules/hot", 3)
    assert order["body"]["title"] == "$$new", "it is no place for a field"
    assert "id" not in order["body"]
    new = order_of(draw(editor(Hub(), RuleFormDraft(NEW, do="save"))))
    assert new["only_of"] is None, "a new rule takes no other's place"
    problem = {"field": "fire", "message": "no comparison", "at": None}
    parts = draw(editor(Hub(problems=[problem]), draft, item=item()))
    assert "@order" not in parts
    assert "have errors" in parts["rule-problem"][0]
    other = draw(editor(Hub(rule=RULE | {"id": "cold"}), draft, item=item()))
    assert other["rule-problem"] == ["The id of a rule cannot be changed: hot."]


@pytest.mark.parametrize(("draft", "is_wrong"), [
    (RuleFormDraft(NEW), False), (RuleFormDraft(NEW, touched=["where"]), True),
    (RuleFormDraft(NEW, do="save"), True), (RuleFormDraft("hot", rule=RULE), True)])
def test_what_nobody_has_come_to_yet_is_not_called_wrong(
        draft: RuleFormDraft, is_wrong: bool) -> None:
    problem = {"field": "where[1]", "message": "no comparison", "at": None}
    of = item() if draft.of == "hot" else None
    parts = draw(editor(Hub(problems=[problem]), draft, item=of))
    [field] = [traits for _, traits, _ in elements(parts["rule-dialog-body"])
               if traits.get("data-field") == "where"]
    assert ("wrong" in field["class"].split()) == is_wrong
    assert words(parts["rule-check"]) == "where[1]: no comparison"


@pytest.mark.parametrize(("draft", "line"), [
    (RuleFormDraft(NEW), BEGIN), (RuleFormDraft(NEW, touched=["title"]), BEGIN),
    (RuleFormDraft(NEW, touched=["fire"]), "Fires when: is needed"),
    (RuleFormDraft(NEW, do="save"), "Fires when: is needed"),
    (RuleFormDraft(NEW, way="yaml"), "fire: is needed")])
def test_what_is_missing_is_said_by_its_label_once_somebody_came_to_it(
        draft: RuleFormDraft, line: str) -> None:
    problem = {"field": "fire", "message": NEEDED, "at": None}
    parts = draw(editor(Hub(problems=[problem], rule=None), draft))
    assert words(parts["rule-check"]) == line
    [(_, traits, _), *_] = elements(parts["rule-check"])
    assert ("bad" in traits["class"].split()) == (line != BEGIN)


def test_what_counts_as_missing_is_what_the_check_of_a_rule_says() -> None:
    with pytest.raises(InvalidRuleError) as error:
        read({"id": "hot"})
    assert ("fire", NEEDED) in [
        (problem.field, problem.message) for problem in error.value.problems]


def test_the_id_of_a_new_rule_follows_its_title_until_somebody_writes_one() -> None:
    draft = RuleFormDraft(NEW, values={"title": ["Zu heiß: Ärger!"], "id": [""]}, touched=["title"])
    assert draft.id == slug("Zu heiß: Ärger!") == "zu-hei-arger"
    draft.values["id"], draft.touched = ["mine"], ["title", "id"]
    assert draft.id == "mine"
    draft.values["id"] = [""]
    assert draft.id == "zu-hei-arger"


def test_form_and_yaml_are_two_views_of_one_draft() -> None:
    draft = RuleFormDraft("hot", rule=RULE, do="yaml", values={"title": ["typed"]})
    hub = Hub()
    turned = editor(hub, draft, item=item())
    parts = draw(turned)
    assert values_of(parts["rule-dialog-body"]) == {"yaml": ["id: hot\n"]}
    assert (turned.draft.way, turned.draft.do, turned.draft.forms) == ("yaml", "", 1)
    assert hub.requests[1] == {"yaml": "id: hot\n", "is_new": False}
    turned.draft.values, turned.draft.do = {"yaml": ["id: hot\nrunbook: fans"]}, "form"
    hub.outcome |= {"rule": RULE | {"runbook": "fans"}}
    back = editor(hub, turned.draft, item=item())
    assert values_of(draw(back)["rule-dialog-body"])["runbook"] == ["fans"]
    for text in ("  id: hot\n  fire: '>= 1'\n", ""):  # as it stands there, and nothing is nothing
        typed = RuleFormDraft("hot", {"yaml": [text]}, rule=RULE, way="yaml", yaml="id: old")
        draw(editor(hub, typed, item=item()))
        assert hub.requests[-1] == {"yaml": text, "is_new": False}
    unreadable = Hub(yaml="", rule=None, problems=[{"field": "", "message": "line 1", "at": 1}])
    turns: tuple[tuple[Literal["form", "yaml"], str], ...] = (("form", "yaml"), ("yaml", "form"))
    for way, do in turns:
        stays = editor(unreadable, RuleFormDraft("hot", rule=RULE, way=way, do=do), item=item())
        draw(stays)
        assert stays.draft.way == way


def test_steps_are_added_and_removed_and_the_others_stay_as_typed() -> None:
    draft = RuleFormDraft("hot", rule=RULE)
    draft.values = values_of(draw(editor(Hub(), item=item()))["rule-dialog-body"])
    draft.values["after"] = ["0s", "77m"]
    draft.do = "remove 0"
    removed = editor(Hub(), draft, item=item())
    assert values_of(draw(removed)["rule-dialog-body"])["after"] == ["77m"]
    for _ in range(MOST_STEPS - 1):
        removed.draft.do = "add"
        removed = editor(Hub(), removed.draft, item=item())
        parts = draw(removed)
    assert len(removed.draft.steps()) == MOST_STEPS
    [add] = [traits for _, traits, _ in elements(parts["rule-dialog-body"])
             if traits.get("id") == "rule-add-step"]
    assert "hidden" in add


def test_a_rehearsal_is_ordered_followed_and_form_parts() -> None:
    draft = RuleFormDraft("hot", rule=RULE, do="rehearse", values={"span": ["3600"]})
    order = order_of(draw(editor(Hub(), draft, item=item())))
    assert (order["path"], order["sets"]) == ("rules/backtests", {"rehearsal": "id"})
    assert order["body"]["end"] - order["body"]["start"] == pytest.approx(3_600)
    parts = draw(editor(Hub("running"), item=item()), "r1")
    assert (parts["rehearsal-words"], parts["@every"]) == (["Rehearsing … 40 %"], ["0.7"])
    assert is_disabled(parts["rule-rehearse"])
    assert not is_disabled(draw(editor(Hub("running"), item=item()))["rule-rehearse"])
    parts = draw(editor(Hub("done"), item=item()), "r1")
    assert not is_disabled(parts["rule-rehearse"])
    [figure] = [traits for _, traits, _ in elements(parts["rehearsal-figure"])]
    assert json.loads(figure["data-request"]) == {"id": "r1", "zone": "UTC"}
    assert "rehearsal-words" not in parts, "the figure brings them"
    problem = {"field": "fire", "message": "no comparison", "at": None}
    parts = draw(editor(Hub(problems=[problem]), draft, item=item()))
    assert "@order" not in parts
    assert "have errors" in parts["rehearsal-words"][0]


def test_a_rehearsal_of_the_saved_rule_is_approved_where_it_was_looked_at() -> None:
    def approval(of: Any, person: Viewer = ADMIN, by: str | None = None) -> str:
        hub = Hub("done")
        hub.approved_by = by
        part = draw(editor(hub, item=of, person=person), "r1")["rehearsal-approval"]
        assert [json.loads(traits["data-form"])["path"] for tag, traits, _ in elements(part)
                if tag == "button"] in ([], ["rules/backtests/r1/approve"])
        return words(part)

    assert approval(item() | {"version": "v3"}) == "Approve"
    assert approval(item() | {"version": "v4"}) == (
        "It is of another version than the saved rule, so it cannot be approved.")
    assert approval(item() | {"version": "v3"}, Viewer(Role.OPERATOR, name="olga")) == (
        "An admin can approve it.")
    assert approval(item() | {"version": "v3"}, Viewer(Role.ADMIN, name="bo")) == (
        "Another admin can approve it."), "their own"
    assert approval(item() | {"version": "v3"}, by="eve") == "Approved by eve."
    harmless = item() | {"version": "v3", "rule": RULE | {"ladder": []}}
    assert approval(harmless) == (
        "The saved rule takes no action, so nobody has to approve this.")


def test_who_may_not_change_rules_sees_one_and_asks_nothing() -> None:
    hub = Hub()
    parts = draw(editor(hub, person=Viewer(Role.VIEWER), item=item()))
    assert hub.requests == []
    assert words(parts["rule-check"]) == OF_OPERATORS
    assert "read-only" in parts["rule-dialog-title"][0]
    assert words(parts["rule-foot"]) == "Close"
    silent = Hub(error=CommandError("the hub is busy"))
    assert words(draw(editor(silent, item=item()))["rule-check"]) == "the hub is busy"


def test_a_draft_of_another_rule_is_not_taken() -> None:
    stale = RuleFormDraft("cold", rule=RULE | {"title": "Cold"})
    fresh = editor(Hub(), stale, item=item())
    assert (fresh.draft.of, fresh.draft.rule) == ("hot", RULE)


@pytest.mark.parametrize(("fields", "line"), [
    ({"targets": 0}, "Applies to nothing at the moment."),
    ({"basis": "grows"}, "Applies to 8 tasks. A single moment cannot show a change over time: "
                         "rehearse the rule."),
    ({"matching": 0}, "Condition met by none of 8 tasks at this moment."),
    ({"matching": 9, "names": [f"n{at}" for at in range(9)], "basis": "newest"},
     "Condition met by 9 of 8 tasks (latest samples only): n0, n1, n2, n3, n4, n5 and 3 more."),
])
def test_the_outcome_says_whom_it_means_now(fields: Any, line: str) -> None:
    assert outcome_words(OUTCOME | fields) == [line]
    refused = outcome_words(OUTCOME | {"refused": [{"sentence": "step 3 can never be done"}]})
    assert refused[-1] == "Step 3 can never be done."
