"""Show entries of the Audit log as people read them, and ask the hub for them."""

import json
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dashboard.access.policy import Role
from dashboard.pages import audit
from dashboard.pages.audit import AuditView, answer, filters_of, parts_of, read
from dashboard.pages.audit_table import (
    KINDS,
    NO_MATCH,
    NONE_YET,
    OUTCOME_WORDS,
    count_words,
    kind_options,
    table,
    verdict,
)
from dashboard.pages.element_tree import trees
from dashboard.pages.figures import OUTCOMES
from dashboard.pages.reading import PageCallbacks, Reading
from dashboard.pages.words import NONE
from gpudeck.audit.words import SENTENCES
from gpudeck.errors import CommandError
from tests.unit.dashboard.pages import read_parts

NOW = 1_700_000_000.0
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\u202eb", "{0}", "%s",
           "javascript:alert(1)", "\x1b[31m", "' onclick='x"]


def entry(seq: int, **fields: Any) -> Any:
    return {"seq": seq, "at": NOW - 60.0 * seq, "kind": "command", "actor": "ann",
            "actor_kind": "person", "address": None, "action": "end", "node": "n1", "host": "n1",
            "task_id": None, "command_id": None, "outcome": "done", "sentence": "ann ended it",
            "detail": {}, "hash": "ab" * 32} | fields


class Hub:
    """A hub with these entries, newest first, that answers as the REST interface does."""

    def __init__(self, entries: list[dict[str, Any]], role: str = "admin",
                 verdict: dict[str, Any] | None = None) -> None:
        self.hub = self
        self.entries = entries
        self.role = role
        self.verdict = verdict
        self.queries: list[dict[str, str]] = []
        self.verified = 0

    def get(self, path: str, **query: str) -> dict[str, Any]:
        assert path == "me", path
        return {"role": self.role, "unix_names": []}

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        assert path == "nodes", path
        return [{"id": "key-of-n1", "host": "n1"}] if query == {"id": "n1"} else []

    def audit(self, **query: str) -> dict[str, Any]:
        self.queries.append(query)
        limit, before = int(query["limit"]), int(query.get("cursor", "0"))
        assert 1 <= limit <= 1_000
        rest = [one for one in self.entries if not before or one["seq"] < before]
        page = rest[:limit]
        return {"items": page, "next": str(page[-1]["seq"]) if len(rest) > limit else None}

    def audit_verdict(self) -> dict[str, Any]:
        self.verified += 1
        assert self.verdict is not None
        return self.verdict


def newest_first(count: int) -> list[Any]:
    return [entry(seq) for seq in range(count, 0, -1)]


def text_of(part: Any) -> str:
    """Return all text of a part, as a browser shows it."""
    if isinstance(part, str):
        return part
    inside = part[2] if part and isinstance(part[0], str) and isinstance(part[1], dict) else part
    return " ".join(map(text_of, inside))


def words_in(part: Any) -> str:
    return text_of(trees(part))


def elements(part: Any, tag: str) -> list[Any]:
    """Return the elements of a part that have this tag."""
    return [element for element in read_parts.elements(trees(part)) if element[0] == tag]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_everywhere(text: str) -> None:
    hostile = entry(7, actor=text, action=text, host=text, node=text, sentence=text, outcome=text,
                    kind=text, task_id=text, command_id=text, hash=text,
                    detail={text: text, "more": {text: [text]}})
    rows = elements(table([hostile], {7}, NOW, "UTC"), "tr")[1:]
    assert {tag for tag, _, _ in elements(table([hostile], {7}, NOW, "UTC"), "script")} == set()
    cells = [text_of(cell) for cell in rows[0][2]]
    assert cells[1] == text
    assert cells[3] == text
    assert text in cells[2]
    assert text in text_of(rows[1])
    [link] = elements(table([hostile], {7}, NOW, "UTC"), "a")
    assert link[1]["href"].startswith("/tasks?task=")
    assert not {"<", ">", '"', " "} & set(link[1]["href"])


def steps(*outcomes: str, command: str = "c1") -> list[Any]:
    """Return the entries of a command, newest first."""
    return [entry(seq, command_id=command, outcome=outcome)
            for seq, outcome in reversed([*enumerate(outcomes, 1)])]


def test_a_command_is_one_entry_and_its_steps_are_in_its_details() -> None:
    entries = [entry(9), *steps("requested", "sent", "acting", "done"), entry(0)]
    parts = parts_of(AuditView(open=(4,)), entries, None, NOW)
    assert parts["audit-words"] == "3 entries"
    rows = elements(parts["audit-place"], "tr")[1:]
    assert [row[1].get("data-seq") for row in rows] == ["9", "4", None, "0"]
    details = text_of(rows[2])
    assert [details.index(word) for word in ("requested", "sent", "acting", "done")] == sorted(
        details.index(word) for word in ("requested", "sent", "acting", "done"))
    every = parts_of(AuditView(system="all"), entries, None, NOW)
    assert every["audit-words"] == "6 entries"
    assert len(elements(every["audit-place"], "tr")[1:]) == 6


def test_a_step_that_came_last_is_where_its_command_is_now() -> None:
    entries = steps("requested", "sent")
    for outcome, count in (("sent", "1 entry"), ("requested", "0 of 1 entry")):
        parts = parts_of(AuditView(outcome=outcome), entries, None, NOW)
        assert parts["audit-words"] == count


def test_an_empty_log_says_what_will_come_and_a_filter_without_matches_says_so() -> None:
    for view, words in ((AuditView(), NONE_YET), (AuditView(kind="node"), NO_MATCH),
                        (AuditView(before=5), NO_MATCH), (AuditView(task="t"), NO_MATCH)):
        parts = parts_of(view, [], None, NOW)
        lead = elements(parts["audit-place"], "p")[0]
        assert text_of(lead) == words
        assert "hidden" not in lead[1]
        assert "hidden" in elements(parts["audit-place"], "table")[0][1]
        assert parts["audit-words"] == ""


def test_outcomes_are_looked_for_in_what_was_read() -> None:
    entries = [entry(9, outcome="refused"), entry(8), entry(7, outcome=None)]
    parts = parts_of(AuditView(outcome="refused"), entries, "7", NOW)
    assert parts["audit-words"] == "1 of 3 entries, the newest"
    [row] = elements(parts["audit-place"], "tr")[1:]
    assert row[1]["data-seq"] == "9"
    parts = parts_of(AuditView(outcome="unkillable"), entries, None, NOW)
    assert parts["audit-words"] == "0 of 3 entries"
    assert "No entry matches." in words_in(parts["audit-place"])


@pytest.mark.parametrize(("outcome", "looks"), [
    ("done", "pill ok"), ("let in", "pill ok"), ("acting", "pill"), ("denied", "pill stale"),
    ("unkillable", "pill lost"), ("failed", "pill lost"), ("some new word", "pill ok")])
def test_an_outcome_looks_in_the_table_as_in_the_figure(outcome: str, looks: str) -> None:
    spans = elements(table([entry(1, outcome=outcome)], set(), NOW, "UTC"), "span")
    assert [look for _, traits, _ in spans if (look := traits["class"]).startswith("pill")] == [
        looks]


def test_an_unreadable_entry_has_no_time_and_no_author() -> None:
    spoiled = entry(3, at=None, actor=None, action=None, kind="unreadable", host=None, outcome=None,
                    node=None)
    [row, details] = elements(table([spoiled], {3}, NOW, "UTC"), "tr")[1:]
    assert [text_of(cell) for cell in row[2]][:2] == [NONE, NONE]
    assert "title" not in row[2][0][1]
    assert "When" not in text_of(details)


def test_details_open_and_close_for_each_entry() -> None:
    opened = {2, 5}
    buttons = elements(table(newest_first(5), opened, NOW, "UTC"), "button")
    for button, seq in zip(buttons, (5, 4, 3, 2, 1), strict=True):
        assert button[1]["aria-expanded"] == str(seq in opened).lower()
        assert button[1]["aria-label"].startswith(button[2][0])
        assert {*json.loads(button[1]["data-set"])["open"]} == opened ^ {seq}


def test_details_show_what_was_recorded() -> None:
    detail = {"gone": True, "count": 3, "parts": {"a": [1]}, "nothing": None, "empty": ""}
    words = words_in(table([entry(1, detail=detail, task_id="t 1")], {1}, NOW, "Europe/Berlin"))
    assert all(text in words for text in ("true", '{"a":[1]}', "ab" * 32, "14 Nov 2023, 23:12"))
    assert "nothing" not in words
    assert "empty" not in words


@pytest.mark.parametrize(("reply", "look", "words"), [
    ({"broken": None, "records": 1, "head": "f" * 64, "nodes": []}, "good", "All 1 entry are"),
    ({"broken": None, "records": 1_234, "head": "f" * 64,
      "nodes": [{"node": "k", "host": "n1", "broken": None}]}, "good",
     "1,234 entries are intact; the newest is ffffffffffffffff…. The heads of 1 node match it."),
    ({"broken": None, "records": 0, "head": "", "nodes": []}, "good", "not available yet…."),
    ({"broken": {"seq": 1_002, "sentence": "the hash is another"}, "records": 9, "head": "f",
      "nodes": []}, "bad", "broken at 1,002: The hash is another. Compare"),
    ({"broken": None, "records": 9, "head": "f", "nodes": [
        {"node": "k", "host": None, "broken": "it is <short>"},
        {"node": "l", "host": "n2", "broken": None}]}, "bad",
     "that of 1 node is not: k (it is <short>)."),
])
def test_a_verdict_says_what_is_broken(reply: dict[str, Any], look: str, words: str) -> None:
    [[_, traits, [text]]] = elements(verdict(reply), "div")
    assert (traits["id"], traits["class"]) == ("audit-verdict", f"verdict {look}")
    assert words in text


def test_the_chain_is_verified_once_and_the_verdict_stays() -> None:
    hub: Any = Hub(newest_first(3), verdict={
        "broken": None, "records": 3, "head": "f", "nodes": []})
    view = AuditView(verify=True)
    assert "audit-verification" in answer(hub, view, NOW)
    assert (hub.verified, view.verify) == (1, False)
    assert "audit-verification" not in answer(hub, view, NOW)
    assert hub.verified == 1


def test_the_browser_hears_that_it_is_verified() -> None:
    """Otherwise it would ask again with each look."""
    callbacks: list[Any] = []
    app: Any = SimpleNamespace(callback=lambda *_, **__: callbacks.append)
    here: Any = SimpleNamespace(run=lambda answer, *arguments: answer(*arguments))
    hub = Hub(newest_first(3), verdict={"broken": None, "records": 3, "head": "f", "nodes": []})
    viewers: Any = SimpleNamespace(frames=lambda: SimpleNamespace(client=hub))
    PageCallbacks(here, viewers, [("audit", Reading(AuditView, answer))]).register(app)
    request = {"page": "audit", "number": 4, "view": {"verify": True, "open": ["2"]}}
    first = callbacks[0](request)
    assert read_parts.wire_parts(audit.PAGE, answer(cast(Any, hub), AuditView(), NOW)).keys() <= (
        first["parts"].keys()), "each has its place"
    assert (first["view"]["verify"], first["view"]["open"]) == (False, (2,))
    later = callbacks[0](request | {"view": {}})
    assert "verify" not in later["view"]
    assert hub.verified == 1


def test_a_verification_that_fails_says_why_and_is_not_tried_again() -> None:
    class Busy(Hub):
        def audit_verdict(self) -> dict[str, Any]:
            raise CommandError("it is being verified already")

    hub: Any = Busy(newest_first(3))
    view = AuditView(verify=True)
    parts = answer(hub, view, NOW)
    assert words_in(parts["audit-verification"]) == (
        "Not verified: It is being verified already.")
    assert view.verify is False
    assert len(elements(parts["audit-place"], "tr")) == 4, "the list is there all the same"


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_each_role_is_offered_what_it_may(role: str) -> None:
    hub: Any = Hub(newest_first(3), role)
    parts = answer(hub, AuditView(), NOW)
    if Role(role).covers(Role.OPERATOR):
        assert parts["audit-verify"] is parts["audit-export"] is Role(role).covers(Role.ADMIN)
        assert parts["audit-overview"] is True
    else:
        assert hub.queries == []
        assert parts["audit-overview"] is False
        assert "operators and admins" in words_in(parts["audit-place"])


def test_the_hub_is_asked_for_what_is_chosen() -> None:
    hub: Any = Hub(newest_first(3))
    answer(hub, AuditView(node="n1", actor=" ann ", span="3600", task="t"), NOW)
    assert hub.queries == [{"node": "key-of-n1", "actor": "ann", "task": "t", "system": "false",
                            "since": str(int(NOW) - 3_600), "limit": "100"}]
    assert filters_of(AuditView(system="all"), "") == {}
    assert filters_of(AuditView(kind="hub"), "") == {"kind": "hub"}, "what is asked for is shown"


def test_older_entries_come_by_cursor_and_none_is_missed_or_doubled() -> None:
    count = random.randint(901, 1_100)
    hub: Any = Hub(newest_first(count))
    view, numbers = AuditView(), set[int]()
    for _ in range(40):
        parts = answer(hub, view, NOW)
        rows = elements(parts["audit-place"], "tr")[1:]
        assert len(rows) <= audit.MOST_SHOWN
        numbers |= {int(row[1]["data-seq"]) for row in rows}
        [older] = [node for node in elements(parts["audit-place"], "button")
                   if node[1].get("id") == "audit-older"]
        if "hidden" in older[1]:
            break
        for name, value in json.loads(older[1]["data-set"]).items():
            setattr(view, name, value)
    assert numbers == {*range(1, count + 1)}
    assert view.before > 0
    [newest] = [node for node in elements(parts["audit-place"], "button")
                if node[1].get("id") == "audit-newest"]
    assert "hidden" not in newest[1]
    assert "older ones" in parts["audit-words"]


def test_a_short_page_is_followed_by_the_next() -> None:
    """A hub that hides entries from the caller may answer fewer than it was asked for."""
    class Hiding(Hub):
        def audit(self, **query: str) -> dict[str, Any]:
            return super().audit(**query | {"limit": str(min(int(query["limit"]), 7))})

    hub: Any = Hiding(newest_first(20))
    entries, following = read(hub, {}, None, 0, 15)
    assert ([one["seq"] for one in entries], following) == ([*range(20, 5, -1)], "6")


def test_words_say_how_much_is_shown() -> None:
    assert count_words(0, 0, False, True) == ""
    assert count_words(1, 1, False, True) == "1 entry"
    assert count_words(1_200, 1_200, True, True) == "1,200 entries, the newest"
    assert count_words(3, 100, False, False) == "3 of 100 entries, older ones"


def test_kinds_and_outcomes_can_be_chosen_before_they_occur() -> None:
    assert {kind for kind, _ in SENTENCES} <= KINDS
    values = [node[1]["value"] for node in elements(
        kind_options([entry(1, kind="brand_new")], "from-a-link"), "option")]
    assert {*KINDS, "brand_new", "from-a-link", ""} == {*values}
    assert len(values) == len({*values})
    assert {word for words in OUTCOMES.values() for word in words} <= {*OUTCOME_WORDS}
