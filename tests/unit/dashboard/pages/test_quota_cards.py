"""Show on the Quotas page what each quota gives, who is over, and where it is in force."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.access.policy import Role
from dashboard.pages.element_tree import trees
from dashboard.pages.quota_cards import (
    LIMITS,
    cards,
    means,
    past_key,
    summary,
    use_words,
    versions,
)
from dashboard.pages.quotas import PAGE, QuotasView, answer, parts_of
from dashboard.pages.reading import Viewer
from gpudeck.errors import CommandError
from tests.unit.dashboard.pages.read_parts import forms, wire_parts
from tests.unit.dashboard.pages.test_audit_page import HOSTILE, elements, text_of, words_in

NOW = 1_700_000_000.0


def quota(id: str = "q", **fields: Any) -> Any:
    return {"id": id, "subject": "*", "count": "each", "scope": "fleet", "gpus": 2,
            "mem_bytes": None, "gpu_hours": None, "per": "day", "max_age_s": None,
            "mode": "observe", "priority": 2, "offline": "wait", "because": "",
            "ladder": [{"do": "tell", "after_s": 0.0}]} | fields


def balance(holder: str = "ann", **fields: Any) -> Any:
    return {"quota": "q", "limit": "gpus", "holder": holder, "used": 1.0, "most": 2.0,
            "is_over": False, "is_whole": True, "tasks": 1, "users": [holder],
            "sentence": f"{holder} has 1 of 2 GPUs", "offenders": []} | fields


def item(*balances: Any, **fields: Any) -> Any:
    of = fields.pop("quota", quota())
    return {"quota": of, "meaning": "everyone may hold 2 GPUs", "generation": 4, "by": "ada",
            "set_at": NOW - 3_600, "wanted": 0, "applied": 0, "in_force": 0, "nodes": [],
            "balances": [*balances],
            "over": sum(one["is_over"] for one in balances)} | fields


def offender(**fields: Any) -> Any:
    return {"node": "k", "host": "n1", "job_id": "j", "task_ids": ["t"], "user": "ann",
            "priority": 3, "started_at": None, "ladder": ""} | fields


def card(one: Any) -> str:
    return words_in(cards([one], lambda _: [], NOW))


@pytest.mark.parametrize(("fields", "words"), [
    ({"most": 1.0}, "1 of 1 GPU"),
    ({"used": 4.0, "most": 1.0}, "4 of 1 GPU"),
    ({"most": 2.0}, "1 of 2 GPUs"),
    ({"limit": "gpu_hours", "used": 0.5, "most": 1.0}, "0.5 of 1 GPU-hour"),
    ({"limit": "mem_bytes", "used": 2**30, "most": 2.0**30}, "1.0 GiB of 1.0 GiB memory"),
])
def test_use_of_one_is_not_in_the_plural(fields: Any, words: str) -> None:
    assert use_words(balance(**fields)) == words


@pytest.mark.parametrize(("fields", "words"), [
    ({}, "Applies to no node you can see."),
    ({"wanted": 1, "in_force": 1}, "In force on the node"),
    ({"wanted": 1_200, "in_force": 1_200}, "In force on all 1,200 nodes"),
    ({"wanted": 2, "applied": 1}, "Wanted on 2 nodes, applied on 1, in force on 0"),
    ({"quota": quota(gpus=None)}, "Gives the priority 2; it limits nothing."),
])
def test_a_card_says_where_its_quota_is_in_force(fields: Any, words: str) -> None:
    assert words in card(item(**fields))


def test_a_card_says_what_each_node_does() -> None:
    node = {"node": "k", "mechanism": "ladder", "proof": "1 task of it"}
    nodes = [node | {"host": "n1", "is_applied": True, "is_in_force": True},
             node | {"host": "n2", "is_applied": True, "is_in_force": False},
             node | {"host": "n3", "is_applied": False, "is_in_force": False}]
    words = card(item(nodes=nodes, wanted=5, in_force=1))
    assert "n1  in force (usage is counted, no notifications): 1 task of it" in words
    assert "n2  applied, not in force: 1 task" in words
    assert "n3  wanted, not applied: 1 task" in words
    assert "and 2 more" in words
    assert "Set by ada 60 min ago; generation 4." in words


def test_usage_is_a_bar_with_its_words_and_who_is_over_says_who_goes() -> None:
    over = balance("bo", used=3.0, is_over=True, sentence="bo has 3 of 2 GPUs",
                   offenders=[offender(user=None, ladder="told once"), offender()])
    part = cards([item(balance(is_whole=False), over)], lambda _: [], NOW)
    bars = [node for node in elements(part, "div") if node[1].get("role") == "meter"]
    assert [bar[1]["style"] for bar in bars] == [
        "--used: 50%; --most: calc(100% - 2px)", "--used: 66.6667%; --most: calc(66.6667% - 2px)"]
    assert [bar[1]["aria-valuetext"] for bar in bars] == ["ann has 1 of 2 GPUs",
                                                         "bo has 3 of 2 GPUs"]
    words = words_in(part)
    assert "≥ 1 of 2 GPUs" in words
    assert "First to be ended: ? on n1, priority 3; 1 more would follow. Told once." in words
    assert "None of its tasks may be ended." in card(item(balance(is_over=True)))
    holder = elements(part, "button")[0]
    assert json.loads(holder[1]["data-set"]) == {"past": past_key(balance("ann"))}


def test_a_limit_of_nothing_is_no_division() -> None:
    [bar] = [node for node in elements(cards([item(balance(used=0.0, most=0.0))], lambda _: [],
                                             NOW), "div") if node[1].get("role") == "meter"]
    assert bar[1]["style"].startswith("--used: 0%")


@pytest.mark.parametrize(("limit", "value", "words"), [
    ("gpus", 2.0, "2"), ("gpus", 0.5, "0.5"), ("gpu_hours", 12.34, "12.3"),
    ("gpu_hours", 0.123, "0.12"), ("mem_bytes", 2**30, "1.0 GiB"), ("max_age_s", 7_200.0, "2 h"),
    ("max_age_s", 600.0, "10 min"), ("max_age_s", 9_000.0, "2.5 h")])
def test_amounts_of_each_limit(limit: str, value: float, words: str) -> None:
    assert LIMITS[limit][1](value) == words


def test_who_is_over_stands_first_and_is_counted_once() -> None:
    over = balance("bo", is_over=True)
    items = [item(quota=quota("a")), item(over, over, quota=quota("z")),
             item(quota=quota("b"), wanted=2, in_force=1)]
    assert [text_of(node) for node in elements(cards(items, lambda _: [], NOW), "h2")] == [
        "z", "a", "b"]
    assert summary(items) == "3 quotas · 1 over · 1 not in force everywhere · 2 matching no node"
    assert summary([item(wanted=1, in_force=1)]) == "1 quota · no one over · all in force"
    assert summary([item()]) == "1 quota · no one over · 1 matching no node"
    assert summary([]) == "No quotas."
    parts = parts_of({"items": items, "mechanisms": []}, Viewer(Role.VIEWER), NOW)
    assert (parts["@tab"], parts["quotas-none"]) == ("(1) Quotas", None)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    one = item(balance(text, sentence=text, is_over=True, offenders=[offender(user=text)]),
               quota=quota(because=text, subject=f"user:{text}"), meaning=text, by=text,
               nodes=[{"node": "k", "host": text, "is_applied": True, "is_in_force": True,
                       "mechanism": "x", "proof": text}])
    part = cards([one], lambda _: [], NOW)
    assert {node[0] for tag in ("script", "img") for node in elements(part, tag)} == set()
    assert text_of(elements(part, "strong")[0]) == text
    assert text in words_in(means([{"name": text, "there": [], "not_there": {text: 2}}]))
    assert json.loads(elements(part, "button")[0][1]["data-set"])["past"].endswith(text)


def test_means_say_where_they_are_and_why_not_elsewhere() -> None:
    there = {"node": "k", "host": "n1", "proof": "it runs"}
    assert words_in(means([{"name": "ladder", "there": [there, there], "not_there": {}}])) == (
        "Ladder (in use) : on 2 nodes (n1: it runs).")
    assert words_in(means([{"name": "mig", "there": [], "not_there": {"no MIG": 1}}])) == (
        "MIG (not used yet) : on no node; not on others: no MIG (1 node).")


@pytest.mark.parametrize(("role", "words"), [
    (Role.VIEWER, []), (Role.USER, []), (Role.OPERATOR, ["History"]),
    (Role.ADMIN, ["Edit", "History", "Remove"])])
def test_each_role_is_offered_what_it_may(role: Role, words: list[str]) -> None:
    parts = parts_of({"items": [item()], "mechanisms": []}, Viewer(role), NOW)
    buttons = elements(parts["quotas-place"], "button")
    assert [text_of(button) for button in buttons] == words
    assert [button[1]["aria-label"] for button in buttons] == [f"{word} q" for word in words]
    assert parts["quotas-new"] is (role == Role.ADMIN)


def test_a_removal_can_be_taken_back_whole() -> None:
    before = quota("a-b", because="shared", gpus=3)
    parts = wire_parts(PAGE, parts_of({"items": [item(quota=before)], "mechanisms": []},
                                      Viewer(Role.ADMIN), NOW))
    [order] = forms(parts["quotas-place"])
    assert (order["method"], order["path"], order["title"]) == (
        "DELETE", "quotas/a-b", "Remove a-b?")
    assert order["undo"] == {"method": "PUT", "path": "quotas/a-b", "only_of": None,
                             "body": {name: before[name] for name in before if name != "id"}}


def test_without_quotas_the_page_says_what_they_are_for() -> None:
    for role, words in ((Role.ADMIN, "Start with mode"), (Role.VIEWER, "An admin can add one.")):
        parts = parts_of({"items": [], "mechanisms": []}, Viewer(role), NOW)
        assert words in parts["quotas-none"]
        assert (parts["quotas-place"], parts["quotas-means"]) == ([], False)


@pytest.mark.parametrize("is_there", [True, False])
def test_versions_come_while_their_dialog_is_open(is_there: bool) -> None:
    class Hub:
        def get(self, path: str) -> Any:
            return {"role": "admin"} if path == "me" else {"items": [], "mechanisms": []}

        def items(self, path: str) -> Any:
            assert path == "quotas/q/versions"
            if not is_there:
                raise CommandError("there is no quota 'q'")
            return [{"quota": quota(because="shared"), "meaning": "2 GPUs", "generation": 4,
                     "by": "ada", "set_at": 0.0, "is_there": True}]

    client: Any = SimpleNamespace(hub=Hub())
    view = QuotasView(versions="q")
    words = text_of(trees(answer(client, view, NOW)["versions-dialog-body"]))
    assert words == ("2 GPUs (observe) ada, 1 Jan 1970, 00:00 · generation 4 · shared Done"
                     if is_there else "There is no quota 'q'. Done")
    assert "versions-dialog-body" not in answer(client, QuotasView(), NOW)
    assert text_of(trees(versions([{
        "quota": quota(because="x"), "meaning": "", "generation": 5, "by": "bo", "set_at": 0.0,
        "is_there": False}], "UTC"))) == "removed bo, 1 Jan 1970, 00:00 · generation 5"
