"""Write a quota in a form that the hub checks."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.pages.drafts import NEW, REMOVED_MEANWHILE, encode_draft
from dashboard.pages.quota_form import QuotaFormDraft, check_words, in_units, problem_words
from dashboard.pages.quotas import PAGE, QuotasView, answer, past_parts
from gpudeck.contract.quota import read
from gpudeck.errors import CommandError
from tests.unit.dashboard.pages.read_parts import elements, wire_parts, words
from tests.unit.dashboard.pages.test_quota_cards import balance, item
from tests.unit.dashboard.pages.test_rule_editor import values_of

NOW = 1_700_000_000.0
QUOTA: Any = {
    "id": "q", "subject": "user:ann", "count": "each", "scope": "node:n1", "gpus": 3,
    "mem_bytes": 40 * 2**30, "gpu_hours": 12.5, "per": "week", "max_age_s": 43_200.0,
    "mode": "warn", "priority": 4, "because": "shared",
    "ladder": [{"do": "tell", "after_s": 0.0}, {"do": "tell", "after_s": 420.0},
               {"do": "end", "after_s": 600.0}]}
OUTCOME: Any = {"problems": [], "meaning": "ann may hold 3 GPUs", "holders": 2, "over": [],
              "nodes": 1}
PROBLEM: Any = {"field": "mem_bytes", "message": "'2.5X' is not a size"}


class Hub:
    def __init__(self, **outcome: Any) -> None:
        self.outcome, self.requests = OUTCOME | outcome, []  # type: ignore[var-annotated]

    def get(self, path: str) -> Any:
        return {"role": "admin"} if path == "me" else {
            "items": [item(quota=QUOTA, generation=4)], "mechanisms": []}

    def ask_for(self, method: str, path: str, body: Any) -> Any:
        self.requests.append(body)
        if "error" in self.outcome:
            raise CommandError("the hub is busy")
        return self.outcome


def draw(hub: Hub, view: QuotasView) -> dict[str, Any]:
    client: Any = SimpleNamespace(hub=hub)
    return wire_parts(PAGE, answer(client, view, NOW))


@pytest.mark.parametrize("fields", [
    {}, {"ladder": [{"do": "tell", "after_s": 0.0}]},
    {"mem_bytes": 50_000_000_000, "gpu_hours": 1_234.5678, "max_age_s": 1_234_567.0},
    {"mem_bytes": 123_456_789_012, "gpu_hours": 1_234_567.0, "max_age_s": 90.125}])
def test_every_field_of_a_quota_is_kept_by_the_form(fields: Any) -> None:
    quota = QUOTA | fields
    hub, view = Hub(), QuotasView(edited="q")
    hub.get = lambda path: {"role": "admin"} if path == "me" else {  # type: ignore[method-assign]
        "items": [item(quota=quota, generation=4)], "mechanisms": []}
    parts = draw(hub, view)
    assert parts["quota-dialog-title"] == ["Edit q"]
    draft = QuotaFormDraft("q", values_of(parts["quota-dialog-body"]), generation=4, quota=quota)
    view.draft = encode_draft(draft)
    draw(hub, view)
    before, typed = (read(body["quota"]) for body in hub.requests)
    assert before == typed


def test_an_old_quota_has_no_problem_that_the_form_has_no_field_for() -> None:
    hub, view = Hub(), QuotasView(edited="q")
    stored = QUOTA | {"offline": "allow"}
    view.draft = encode_draft(QuotaFormDraft("q", generation=4, quota=stored))
    draw(hub, view)
    [body] = hub.requests
    assert read(body["quota"]) == read(QUOTA)


def test_what_is_saved_is_ordered_with_the_version_that_was_looked_at() -> None:
    for of, quota, only_of in (("q", QUOTA, 4), (NEW, {}, None)):
        values = {"id": ["q"], "subject": ["user:ann"], "scope": ["fleet"]}
        draft = QuotaFormDraft(of, values, do="save", generation=only_of, quota=quota)
        view = QuotasView(edited=of, draft=encode_draft(draft))
        order = json.loads(draw(Hub(), view)["@order"][0])
        assert (order["method"], order["path"], order["only_of"]) == ("PUT", "quotas/q", only_of)
        assert json.loads(view.draft)["do"] == "", "once"
    view = QuotasView(edited="q", draft=encode_draft(QuotaFormDraft("q", do="save", quota=QUOTA)))
    parts = draw(Hub(problems=[PROBLEM]), view)
    assert "@order" not in parts
    assert parts["quota-problem"] == ["Max. memory: '2.5X' is not a size."]
    [field] = [traits for _, traits, _ in elements(parts["quota-dialog-body"])
               if traits.get("name") == "mem_bytes"]
    assert field["aria-invalid"] == "true"


def test_a_new_quota_is_checked_as_it_is_written_and_a_problem_is_said() -> None:
    hub = Hub()
    parts = draw(hub, QuotasView(edited=NEW))
    assert hub.requests == [{"quota": hub.requests[0]["quota"] | {"id": "new"}, "is_new": False}]
    assert words(parts["quota-check"]) == (
        "Ann may hold 3 GPUs.No one would be over now (2 owners with usage).")
    assert parts["quota-save"] == ["Save quota"]
    assert words(draw(Hub(error=True), QuotasView(edited=NEW))["quota-check"]) == (
        "The hub is busy.")
    rest = QuotasView(edited="gone")
    assert "quota-check" not in draw(Hub(), rest)
    assert rest.edited == ""
    typed = QuotaFormDraft("gone", {"because": ["shared"]}, do="save")
    rest = QuotasView(edited="gone", draft=encode_draft(typed))
    parts = draw(Hub(), rest)
    assert (parts["quota-problem"], "@order" in parts) == ([REMOVED_MEANWHILE], False)
    assert (rest.edited, "shared" in rest.draft) == ("gone", True)


def test_the_check_says_who_would_be_over() -> None:
    over = [{"sentence": "ann has 3 of 2", "offenders": [{"host": "n1"}]},
            {"sentence": "bo has 4 of 2", "offenders": []}]
    assert check_words(OUTCOME | {"over": over}, "user:ann")[0] == "ann may hold 3 GPUs."
    assert check_words(OUTCOME | {"over": over}, "*")[1:] == [
        "2 would be over now:",
        "ann has 3 of 2 (1 job would be ended, the first on n1)", "bo has 4 of 2"]
    assert "Matches no node" in check_words(OUTCOME | {"nodes": 0}, "*")[1]
    assert problem_words({"field": "ladder[1].after_s", "message": "too soon"}) == (
        "Notification and end: too soon.")


@pytest.mark.parametrize(("value", "text"), [
    (None, ""), (40 * 2**30, "40GiB"), (2**40, "1TiB"), (1_500, "1500B"), (0, "0B"),
    (50_000_000_000, "50000000000B")])
def test_sizes_are_written_whole(value: float | None, text: str) -> None:
    assert in_units(value, (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("B", 1))) == text


def test_the_past_of_a_holder_is_asked_for_while_its_dialog_is_open() -> None:
    items = [item(balance("a/b", quota="q"))]
    parts = wire_parts(PAGE, past_parts(items, QuotasView(past="gpus q a/b", last="7d")))
    assert parts["past-dialog-title"] == ["a/b: GPUs of q"]
    [request] = [traits for _, traits, _ in elements(parts["quota-past-request"])]
    assert json.loads(request["data-request"]) == {
        "quota": "q", "holder": "a/b", "limit": "gpus", "last": "7d", "most": 2.0}
    [link] = [traits for tag, traits, _ in elements(parts["quota-past-link"]) if tag == "a"]
    assert link["href"] == "/history?owner=user%3Aa%2Fb&last=24h"
    assert past_parts(items, QuotasView(past="gpus q nobody")) == {}
