"""Say in words what a rehearsal found, and where, for whom and how much an alert is."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dashboard.alerts.core.measure import Measure
from dashboard.alerts.core.rule import Rule, check
from dashboard.alerts.views import rule_view
from dashboard.pages.alert_words import measure_of, place_words, targets_words, users_words
from dashboard.pages.element_tree import trees
from dashboard.pages.graphs import RehearsalRequest, rehearsal_answer
from dashboard.pages.rehearsal_words import rehearsal_lines, rehearsal_words, rehearsals
from dashboard.pages.words import NONE
from tests.unit.dashboard.pages.read_parts import elements
from tests.unit.dashboard.pages.read_parts import words as words_of
from tests.unit.dashboard.pages.test_figures import STYLE

HOSTILE = "<img src=x onerror=alert(1)>"


def rehearsal(**fields: Any) -> Any:
    return {"id": "r", "rule": {"id": "hot"}, "severity": "warn", "start": 0, "end": 9,
            "grain_s": 60, "off_by_s": 0, "state": "done", "why": "", "of": "gpu", "targets": 2,
            "alerts": [], "alerts_count": 0, "victims": [], "victims_count": 0, "gpu_hours": None,
            "refused": [], "refused_count": 0} | fields


def victim(*users: str, **fields: Any) -> dict[str, Any]:
    return {"target": "t1", "node": "n", "host": "n7", "users": [*users], "do": "pause", "at": 5.0,
            "gpu_hours": 1.0, "why": ""} | fields


@pytest.mark.parametrize(("fields", "fired", "words"), [
    ({}, None, "It would not have fired (2 GPUs evaluated)."),
    ({}, 0, "It would not have fired (2 GPUs evaluated). It did not fire in that time."),
    ({"alerts_count": 1, "of": "task", "targets": 1}, 1,
     "It would have fired once (1 task evaluated). In that time it did fire 1 time."),
    ({"alerts_count": 1_200}, None, "It would have fired 1,200 times (2 GPUs evaluated)."),
    ({"off_by_s": 1}, None, "It would not have fired (2 GPUs evaluated). Based on seconds where "
     "they are kept; live evaluation may differ by one sample."),
    ({"off_by_s": 60}, None, "It would not have fired (2 GPUs evaluated). Based on minutes; live "
     "evaluation looks at every second, and may differ by a minute."),
    ({"alerts_count": 2, "victims": [victim("ann", "bo"), victim("ann")], "victims_count": 2,
      "gpu_hours": 3.04}, None, "It would have fired 2 times (2 GPUs evaluated). Its actions would "
     "have run 2 times, on ann, bo: 3.0 GPU-hours."),
    ({"victims_count": 1}, None, "It would not have fired (2 GPUs evaluated). Its actions would "
     "have run 1 time."),
    ({"refused_count": 1}, None, "It would not have fired (2 GPUs evaluated). 1 action would be "
     "refused, as the nodes are now."),
    ({"state": "failed", "why": "no history of that time"}, None, "No history of that time."),
    ({"state": "cancelled"}, None, "The rehearsal is cancelled."),
])
def test_a_rehearsal_in_words(fields: dict[str, Any], fired: int | None, words: str) -> None:
    assert rehearsal_words(rehearsal(**fields), fired) == words


def test_its_alerts_and_refusals_are_lines_and_hostile_text_stays_text() -> None:
    alert = {"target": "x", "node": "n", "host": HOSTILE, "place": "3", "fired_at": 1_700_000_000.0,
             "users": [HOSTILE, "b", "c", "d"]}
    lines = trees(rehearsal_lines(rehearsal(
        alerts=[alert] * 13, alerts_count=40, refused_count=1,
        refused=[victim("ann", why="it is a client of MPS")]), "Europe/Berlin"))
    assert len(lines) == 14
    assert lines[0] == ["li", {}, [f"{HOSTILE} · GPU 3, 14 Nov 2023, 23:13, {HOSTILE}, b, c"]]
    assert lines[12] == ["li", {}, ["and 28 more"]]
    assert lines[13] == ["li", {"data-refused": ""}, [
        "n7, 1 Jan 1970, 01:00: 'pause' would be refused: it is a client of MPS"]]


def test_alerts_of_an_owner_name_the_owner_once() -> None:
    alert = {"target": "ann", "node": "", "host": "", "place": "", "fired_at": 0.0,
             "users": ["ann"]}
    assert trees(rehearsal_lines(rehearsal(of="owner", alerts=[alert], alerts_count=1), "UTC")) == [
        ["li", {}, ["ann, 1 Jan 1970, 00:00"]]]


def test_a_rehearsal_that_failed_says_why_and_draws_nothing() -> None:
    client: Any = SimpleNamespace(rehearsal=lambda _: rehearsal(state="failed", why="too long"))
    _, facts = rehearsal_answer(client, RehearsalRequest(1, STYLE, "r", "no/zone"))
    assert facts == {"parts": {"rehearsal-place": False, "rehearsal-words": ["Too long."],
                               "rehearsal-list": []}}


def past_rehearsal(**fields: Any) -> Any:
    return rehearsal(by="ann", asked_at=0.0, end=86_400, rule_version="v2", approved_by=None,
                     alerts_count=5, victims_count=1) | fields


@pytest.mark.parametrize(("fields", "words"), [
    ({}, "24 h, 5 alerts, 1 action; by ann, 2 h ago"),
    ({"refused_count": 2}, "24 h, 5 alerts, 1 action, 2 refused; by ann, 2 h ago"),
    ({"rule_version": "v1", "approved_by": "bo"},
     "Earlier version: 24 h, 5 alerts, 1 action; by ann, 2 h ago; approved by bo")])
def test_a_past_rehearsal_in_short(fields: dict[str, Any], words: str) -> None:
    person = {"name": "viv", "role": "viewer", "second_person": False}
    assert trees(rehearsals([past_rehearsal(**fields)], "v2", person, 7_200.0)) == [
        ["ul", {"class": "rehearsal-list"}, [["li", {"data-key": "r"}, [["span", {}, [words]]]]]]]


@pytest.mark.parametrize(("person", "fields", "is_offered"), [
    ({}, {}, True), ({"role": "operator"}, {}, False), ({"name": "ann"}, {}, False),
    ({"name": "ann", "second_person": False}, {}, True), ({}, {"approved_by": "bo"}, False),
    ({}, {"rule_version": "v1"}, False)])
def test_another_admin_is_offered_to_approve_what_the_rule_is_now(
        person: dict[str, Any], fields: dict[str, Any], is_offered: bool) -> None:
    admin = {"name": "bo", "role": "admin", "second_person": True} | person
    part = trees(rehearsals([past_rehearsal(**fields)], "v2", admin, 0.0))
    buttons = [traits for tag, traits, _ in elements(part) if tag == "button"]
    assert [json.loads(button["data-form"])["path"] for button in buttons] == (
        ["rules/backtests/r/approve"] * is_offered)


def test_without_a_rehearsal_the_way_to_one_is_said() -> None:
    part = trees(rehearsals([past_rehearsal(state="failed")], "v2", {}, 0.0))
    assert words_of(part) == "Not rehearsed yet. Open “Edit”, then “Rehearsal”."


@pytest.mark.parametrize(("fields", "words"), [
    ({"of": "fleet"}, "the whole fleet"), ({"of": "owner", "users": ["ann"]}, "ann"),
    ({"of": "owner"}, "t"), ({"of": "gpu", "host": "n1", "place": "3"}, "n1 · GPU 3"),
    ({"of": "node", "host": "n1"}, "n1"), ({"of": "gpu", "place": "0"}, "GPU 0"),
    ({"of": "job"}, "t")])
def test_where_an_alert_is(fields: dict[str, Any], words: str) -> None:
    assert place_words({"host": "", "place": "", "users": [], "target": "t"} | fields) == words


@pytest.mark.parametrize(("value", "of", "signal", "fire", "words"), [
    (None, "gpu", "util_pct", "> 5", NONE), (3.0, "gpu", "temp_margin_c", "<= 5", "3 °C"),
    (2**30, "gpu", "mem_used_bytes", "> 5GiB", "1.0 GiB"),
    (0.25, "gpu", "mem_used_bytes / mem_total_bytes", ">= 95%", "25 %"),
    (0.25, "gpu", "mem_used_bytes / mem_total_bytes", ">= 0.95", "0.25"),
    (7_200.0, "task", "age_s", "> 1h", "2 h"), (-90.0, "node", "clock_offset_s", "< -2", "-90 s"),
    (99.95, "gpu", "avg(util_pct, 5m)", "> 10%", "99.95 %"), (0.0, "gpu", "tasks", "> 1", "0"),
    (0.5, "gpu", "rate(pcie_replays, 5m)", "> 10/min", "30/min"),
    (0.5, "gpu", "rate(pcie_replays, 5m)", "> 1", "0.5/s"),
    (2**20, "gpu", "growth(mem_used_bytes, 48m)", "> 1GiB/h", "3.5 GiB/h"),
    (5e6, "gpu", "pcie_tx_bytes_per_s", "> 1GiB/s", "5 MiB/s"),
    (5e6, "gpu", "pcie_tx_bytes_per_s", "> 9", "5.0 MB/s"),
    (350.5, "gpu", "power_w", ">= 300", "350.5 W"), (12.0, "fleet", "power_w", "> 1", "12 W"),
    (1.2, "gpu", "power_w / temp_c", "> 1", "1.2"),
    (1_980.0, "gpu", "sm_clock_mhz", "< 5", "1980 MHz"),
    (1_234_567.0, "gpu", "tasks", "> 5", "1.23e+06"), (123_456.0, "gpu", "tasks", "> 5", "123500"),
    (0.00012, "gpu", "tasks", "> 5", "0.00012"), (-3.5, "gpu", "tasks", "> 5", "-3.5")])
def test_a_value_has_the_unit_of_what_is_watched(
        value: float | None, of: Any, signal: str, fire: str, words: str) -> None:
    """Use the hub's own view of the rule, as there is no other definition of a unit."""
    ready = check(Rule(id="r", title="R", of=of, signal=signal, fire=fire, scope="*"))
    view = msgspec.to_builtins(rule_view(ready.rule, 1, ready, None, ""))
    assert measure_of(view).value_words(value) == words


@pytest.mark.parametrize(("signal", "fire", "words"), [
    ("temp_margin_c", "<= 5", "<= 5 °C"), ("power_w / power_limit_w", "> 98%", "> 98 %"),
    ("sample_age_s", "> 1m", "> 60 s"), ("lost", "= 1", "= 1"),
    ("rate(ecc_corrected, 1h)", "> 10/h", "> 10/h"), ("mem_unseen_bytes", ">1GiB", "> 1.0 GiB")])
def test_a_limit_reads_as_the_values_it_limits(signal: str, fire: str, words: str) -> None:
    ready = check(Rule(id="r", title="R", of="gpu", signal=signal, fire=fire, scope="*"))
    view = msgspec.to_builtins(rule_view(ready.rule, 1, ready, None, ""))
    assert measure_of(view).limit_words() == words


def test_of_a_rule_that_cannot_be_read_the_limit_is_as_it_was_written() -> None:
    assert Measure(None, "> many", None).limit_words() == "> many"
    assert (Measure().value_words(3.0), Measure().limit_words()) == ("3", "")


def test_many_users_and_targets() -> None:
    assert users_words(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert users_words([]) == ""
    assert targets_words("job", 1) == "1 job"
    assert targets_words("brand new", 2) == "2 targets"
