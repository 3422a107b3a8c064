"""Signals and limits that a Rule may have, and the errors about others."""

import random

import numpy as np
import pytest

from dashboard.alerts.core.momentary_rule import momentary
from dashboard.alerts.core.rule import InvalidRuleError, check, read, version
from dashboard.alerts.core.rule_signal import (
    MAX_LENGTH,
    Floats,
    RuleSyntaxError,
    SignalTerm,
    parse,
    parse_condition,
    parse_limit,
    parse_span,
)

NAMES = {"util_pct": "%", "power_w": "W", "power_limit_w": "W", "mem_used_bytes": "B",
         "errors": "", "temp_c": "°C", "age_s": "s", "pcie_tx_bytes_per_s": "B/s"}


def test_it_computes_what_it_says() -> None:
    random.seed()
    at = {name: random.uniform(1, 100) for name in NAMES}

    def look(term: SignalTerm) -> Floats:
        return np.array([at[term.name] + term.span_s])

    for text in ("util_pct", "power_w / power_limit_w", "avg(util_pct, 5m) - 3",
                 "(power_w + power_limit_w) * 2 - power_w", "power_w - power_limit_w - 1",
                 "max(temp_c, 30s) / 2 + rate(errors, 1h)"):
        plain = text.replace("avg(util_pct, 5m)", "(util_pct + 300)").replace(
            "max(temp_c, 30s)", "(temp_c + 30)").replace("rate(errors, 1h)", "(errors + 3600)")
        if "rate" in text:
            with pytest.raises(RuleSyntaxError, match="cannot be combined"):
                parse(text, NAMES)
            continue
        python_value = eval(plain, {}, at)
        assert parse(text, NAMES).values(look)[0] == pytest.approx(python_value), text


def test_what_is_not_there_makes_all_of_it_not_there() -> None:
    def look(term: SignalTerm) -> Floats:
        return np.array([np.nan, 0.0, 5.0]) if term.name == "power_limit_w" else np.full(3, 10.0)

    values = parse("power_w / power_limit_w", NAMES).values(look)
    assert np.isnan(values[:2]).all()
    assert values[2] == 2
    assert parse_limit("> 1", "").holds(values).tolist() == [False, False, True]
    assert parse_limit("!= 1", "").holds(values).tolist() == [False, False, True]


@pytest.mark.parametrize(("text", "unit", "number"), [
    ("> 85", "°C", 85), (">= 1GiB", "B", 2**30), ("< 5 %", "%", 5), (">=98%", "", 0.98),
    ("> 10/h", "/s", 10 / 3_600), ("> 2h", "s", 7_200), ("> 1.5kW", "W", 1_500),
    ("= 0", "", 0), ("<= -5", "°C", -5), ("> 1MiB/s", "B/s", 2**20), ("> 3", None, 3),
])
def test_a_limit_is_in_the_unit_of_what_it_limits(text: str, unit: str | None, number: float
                                                  ) -> None:
    assert parse_limit(text, unit).number == pytest.approx(number)


@pytest.mark.parametrize(("text", "says"), [
    ("", "missing at the end"), ("util_pct +", "missing at the end"), ("5", "constant"),
    ("utl_pct", "did you mean 'util_pct'"), ("foo(util_pct, 5m)", "there is no 'foo'"),
    ("avg(util_pct)", "',' is missing"), ("avg(util_pct, 5)", "span of time"),
    ("avg(5, 5m)", "avg of what"), ("avg(util_pct, 1s)", "between 2s and 1d"),
    ("avg(util_pct, 9d)", "between 2s and 1d"), ("util_pct power_w", "not expected"),
    ("util_pct; import os", "what is ';'"), ("__import__", "what is '_'"),
    ("util_pct + power_w", "cannot be combined"), ("(" * 20 + "util_pct", "levels deep"),
    ("+".join(["util_pct"] * 20), "more than 8"), ("u" * (MAX_LENGTH + 1), "at most"),
    ("util_pct > 5", "what is '>'"), (")", "is expected"),
])
def test_what_it_may_not_say_is_named(text: str, says: str) -> None:
    with pytest.raises(RuleSyntaxError, match=says.replace("(", r"\(")) as error:
        parse(text, NAMES)
    assert 0 <= error.value.at <= len(text)


@pytest.mark.parametrize(("text", "unit"), [
    ("85", "°C"), ("> 85 W", "°C"), ("> 5GiB", "%"), ("> 10/q", "/s"), ("> 10 h", "/s"),
    ("~ 3", ""), ("> 1 > 2", ""), ("> 3W", None), (">", ""), ("> 1e3", ""),
])
def test_a_limit_that_makes_no_sense_is_refused(text: str, unit: str | None) -> None:
    with pytest.raises(RuleSyntaxError):
        parse_limit(text, unit)


def test_spans_and_conditions() -> None:
    assert [parse_span(text) for text in ("0s", "5m", "2h", "7d", " 90 s ")] == [
        0, 300, 7_200, 604_800, 90]
    for text in ("5", "5 minutes", "-5m", "1.5s", ""):
        with pytest.raises(RuleSyntaxError):
            parse_span(text)
    signal, limit = parse_condition("mem_used_bytes >= 1GiB", NAMES)
    assert (signal.text, limit.number) == ("mem_used_bytes", 2**30)
    with pytest.raises(RuleSyntaxError, match="did you mean"):
        parse_condition("mem_usd_bytes >= 1GiB", NAMES)
    with pytest.raises(RuleSyntaxError, match="not a condition"):
        parse_condition("mem_used_bytes", NAMES)


GOOD = {"id": "idle", "title": "Idle", "of": "task", "scope": "*", "signal": "avg(sm_pct, 10m)",
        "fire": "<= 1", "for": "2h", "where": ["mem_used_bytes >= 1GiB"],
        "ladder": [{"do": "tell"}, {"do": "tell", "after": "30m"}, {"do": "end", "after": "30m"}]}


def test_a_good_rule_is_ready() -> None:
    ready = check(read(GOOD))
    assert (ready.for_s, ready.steps) == (7_200, (("tell", 0), ("tell", 1_800), ("end", 1_800)))
    assert ready.clear.text == "> 6"
    assert ready.is_by_minutes
    assert ready.gap_s == 180
    assert ready.rule.mode == "observe"


@pytest.mark.parametrize(("change", "field", "says"), [
    ({"scope": ""}, "scope", "whole fleet"),
    ({"scope": "utl<5"}, "scope", "did you mean 'util'"),
    ({"clear": "<= 5"}, "clear", "never"),
    ({"clear": "= 1"}, "clear", "never"),
    ({"for": "10s"}, "for", "at least 30s"),
    ({"of": "gpu", "signal": "util_pct", "where": []}, "ladder", "of: task"),
    ({"ladder": [{"do": "end", "after": "5m"}]}, "ladder", "tell the owner first"),
    ({"ladder": [{"do": "tell"}, {"do": "end", "after": "1s"}]}, "ladder", "at least 60s"),
    ({"ladder": [{"do": "tell"}, {"do": "end", "after": "5m"}, {"do": "pause"}]}, "ladder",
     "mild to severe"),
    ({"mode": "auto"}, "expires", "180 days"),
    ({"mode": "dry_run", "ladder": []}, "mode", "needs a ladder"),
    ({"signal": "avg(sm_pt, 10m)"}, "signal", "did you mean 'sm_pct'"),
    ({"where": ["age_s > 2GiB"]}, "where[0]", "not measured"),
    ({"keep_firing_for": "soon"}, "keep_firing_for", "not a span"),
    ({"budget": {"acts": 500}}, "budget.acts", "1 to 100"),
    ({"tittle": "x"}, "tittle", "did you mean title?"),
    ({"id": "Not An Id"}, "id", "1 to 64 of a-z 0-9 and -"),
    ({"severity": "bad"}, "severity", "info, warn or crit"),
])
def test_a_bad_rule_names_the_field(change: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(InvalidRuleError) as error:
        check(read(GOOD | change))
    assert any(problem.field == field and says in problem.message
               for problem in error.value.problems), str(error.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidRuleError) as error:
        check(read(GOOD | {"scope": "", "for": "x", "signal": "nothing"}))
    assert {problem.field for problem in error.value.problems} >= {"scope", "for", "signal"}


def test_a_version_is_of_what_a_rule_means() -> None:
    first = version(read(GOOD))
    assert version(read(GOOD | {"title": "Other words", "mode": "dry_run"})) == first
    for change in ({"fire": "<= 2"}, {"for": "3h"}, {"scope": "node:a"}, {"cooldown": "1h"},
                   {"when_refused": "skip"}):
        assert version(read(GOOD | change)) != first


def test_a_field_that_came_later_makes_no_rule_another_one() -> None:
    """Alerts, climbs and approved rehearsals of earlier releases name this version."""
    rule = {"id": "idle", "title": "Idle", "of": "task", "scope": "user:ann", "signal": "sm_pct",
            "fire": "<= 1", "for": "5m", "ladder": [{"do": "tell"}, {"do": "end", "after": "10m"}]}
    assert version(read(rule)) == version(read(rule | {"when_refused": "stop"})) == (
        "ce6405f4e8c73572")


@pytest.mark.parametrize(("signal", "where", "text", "basis"), [
    ("temp_c", "mem_used_bytes >= 1GiB", "temp_c", "now"),
    ("max(busy_pct, 30m)", "mem_used_bytes >= 1GiB", "busy_pct", "newest"),
    ("AVG( util_pct,5m ) / 2 + min(temp_c, 1h)", "temp_c > 0", "util_pct / 2 + temp_c", "newest"),
    ("temp_c", "avg(util_pct, 1h) > 5", "temp_c", "newest"),
    ("rate(ecc_corrected, 1h)", "temp_c > 0", "rate(ecc_corrected, 1h)", "grows"),
    ("temp_c", "increase(ecc_corrected, 1h) > 1", "temp_c", "grows"),
])
def test_one_moment_of_a_rule_that_looks_back(signal: str, where: str, text: str, basis: str
                                              ) -> None:
    rule = read({"id": "r", "title": "t", "scope": "*", "signal": signal, "fire": "> 5",
                 "where": [where], "for": "2h"})
    momentary_rule, by = momentary(rule)
    assert (momentary_rule.signal, by) == (text, basis)
    assert ("avg" in momentary_rule.where[0]) == (basis == "grows" and "avg" in where)
