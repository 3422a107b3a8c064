"""Rules as files: the ones that come along, what is refused, and tests that can fail."""

import json
from pathlib import Path
from typing import get_args

import pytest

from dashboard.alerts.core import rule_unit_tests
from dashboard.alerts.core.rule import InvalidRuleError, check, read
from dashboard.alerts.rules_file import PACK, dump, one_rule, parse
from dashboard.cli.rules import rules
from gpudeck.contract.ladder import RuleDo
from gpudeck.errors import CommandError
from gpudeck.measures.metrics import HELD_AT_LEAST_BYTES, IDLE_AT_MOST_PCT

ROOT = Path(__file__).parents[4]
GOOD = """
rules:
  - id: hot
    title: Hot
    scope: "*"
    signal: temp_c
    fire: ">= 85"
    for: 10s
tests:
  - rule: hot
    targets: {a: {temp_c: "60 x5 90"}}
    expect: [{at: 14s, a: pending}, {at: 15s, a: firing}]
"""


def test_each_rule_that_comes_along_is_tested_and_passes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pack = parse(PACK.read_text())
    assert pack.faults == ()
    assert len(pack.rules) >= 12
    assert {test.rule for test in pack.unit_tests} == set(pack.rules)
    assert all(ready.rule.mode == "observe" and not ready.has_ladder
               for ready in pack.rules.values()), "out of the box nothing acts"
    assert all(len(ready.rule.runbook) > 20 for ready in pack.rules.values())
    assert rules(["test", str(PACK)]) == 0
    assert f"{len(pack.unit_tests)} of {len(pack.unit_tests)} tests pass" in capsys.readouterr().out


def test_idle_with_memory_held_is_what_the_hub_calls_wasted() -> None:
    """A GPU at a steady 3 % was shown as wasted for days without an alert: its limit was 1 %."""
    ready = parse(PACK.read_text()).rules["idle-held"]
    assert (ready.fire.op, ready.fire.number) == ("<=", IDLE_AT_MOST_PCT)
    assert (ready.clear.op, ready.clear.number) == (">", IDLE_AT_MOST_PCT)
    assert ready.where[0][1].number == HELD_AT_LEAST_BYTES


def test_each_test_of_the_pack_can_fail() -> None:
    """A limit beyond reach lets none of them say firing."""
    pack = parse(PACK.read_text())
    for test in pack.unit_tests:
        ready = pack.rules[test.rule]
        never = "> 999999999999999" if ready.fire.op in (">", ">=") else (
            "< -999999999999999" if ready.fire.op in ("<", "<=") else "= 77")
        dull = check(read({"id": ready.rule.id, "title": "t", "scope": "*", "fire": never,
                           "of": ready.rule.of, "signal": ready.rule.signal, "for": ready.rule.for_,
                           "where": list(ready.rule.where),
                           "min_coverage": ready.rule.min_coverage}))
        assert rule_unit_tests.run(dull, test), test.rule


def test_a_file_that_says_the_wrong_moment_fails(tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD)
    assert rules(["test", str(file)]) == 0
    file.write_text(GOOD.replace("at: 15s", "at: 13s"))
    assert rules(["test", str(file), "--json"]) == 1
    results = json.loads(capsys.readouterr().out.partition("pass\n")[2])
    assert results[0]["differences"] == ["at 13s a is pending, and should be firing"]


@pytest.mark.parametrize(("old", "new", "says"), [
    ("id: hot", "id: hot\n    id: cold", "line 4: this is not YAML: 'id' is here twice"),
    ("title: Hot", "title: &x Hot\n    owner: *x", "aliases"),
    ("signal: temp_c", "signal: tmp_c", "line 3: hot: signal, character 1: unknown metric"),
    ("rule: hot", "rule: cold", "there is no rule 'cold' here"),
    ("a: pending", "b: pending", "there is no target 'b'"),
    ("a: pending", "a: burning", "'burning' is not a state"),
    ("at: 14s", "at: soon", "not a span"),
    ("at: 14s", "at: 14", "expect: 1 to 200 lines, such as {at: 14s, a: pending}"),
    ("{a: {temp_c: \"60 x5 90\"}}", "{}", "targets: 1 to 50 names"),
    ("\"60 x5 90\"", "60", "at 14s a is inactive, and should be pending"),
    ("60 x5 90", "60 x5 ?", "what is '?'"),
    ("60 x5 90", "", "is empty"),
    ("temp_c: \"60", "util_pct: \"60", "looks at temp_c, which is not given"),
    ("rules:\n", "rule:\n", "a rules file has 'rules:'"),
    ("rules:\n", "rules: [\n", "this is not YAML"),
    ("  - id: hot", "  - id: hot\n    mode: auto", "needs a ladder"),
])
def test_what_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str,
                                new: str, says: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD.replace(old, new, 1))
    assert rules(["test", str(file)]) == 1
    assert says in capsys.readouterr().out


def test_words_stay_words() -> None:
    """YAML 1.1 makes a boolean of `no` and a number of 12:30."""
    pack = parse(GOOD.replace("title: Hot", "title: no").replace("id: hot", "id: on", 1)
                 .replace("rule: hot", "rule: on"))
    assert pack.faults == ()
    assert pack.rules["on"].rule.title == "no"


def test_a_rule_written_out_is_the_same_rule() -> None:
    pack = parse(PACK.read_text())
    copy = parse(dump([ready.rule for ready in pack.rules.values()]))
    assert copy.faults == ()
    assert [ready.rule for ready in copy.rules.values()] == [
        ready.rule for ready in pack.rules.values()]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        rules(["check", str(tmp_path / "none.yaml")])
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="UTF-8"):
        rules(["check", str(tmp_path / "binary.yaml")])


@pytest.mark.parametrize(("line", "says"), [
    ("? [a]\n    : b", "a field name is a single word"),
    ("for: !!int ten", "tags (!name) are not accepted"),
    ("owner: !!timestamp soon", "tags (!name) are not accepted"),
    ("min_coverage: " + "9" * 5_000, "line 9: this is not YAML: a number of too many digits"),
    ("runbook: \x07", "line 9: this is not YAML: there is an unprintable character here"),
    ("runbook: " + "[" * 3_000, "it is nested too deep"),
    ("mode: off", "mode: write observe, dry_run, confirm or auto"),
    ("severty: crit", "severty: there is no such field; did you mean severity?"),
    ("cooldown: 10", "cooldown: a span of time, such as 30s"),
    ("ladder: tell", "ladder: a list of 6 steps at most, such as {do: tell"),
    ("keep_firing_for: 99999d", "keep_firing_for: is at most 90d"),
    ("expires: 2027-02-30", "expires: '2027-02-30' is not a date"),
    ("inhibited_by: [hot]", "a rule cannot be suppressed by itself"),
])
def test_no_text_stops_the_one_who_reads_it(line: str, says: str) -> None:
    """Text on which the YAML parser raises is a mistake like any other, and has a line."""
    text = GOOD.replace("    for: 10s\n", f"    for: 10s\n    {line}\n")
    faults = [str(fault) for fault in parse(text).faults]
    assert any(says in fault for fault in faults), faults
    with pytest.raises(InvalidRuleError):
        check(read(one_rule(text[:text.index("tests:")])))


def test_what_only_looks_like_a_number_or_a_date_is_a_word() -> None:
    pack = parse(GOOD.replace("title: Hot", "title: 2027-13-45").replace(
        "    for: 10s\n", "    for: 10s\n    owner: 0b_\n    runbook: 12:30\n"))
    assert pack.faults == ()
    rule = pack.rules["hot"].rule
    assert (rule.title, rule.owner, rule.runbook) == ("2027-13-45", "0b_", "12:30")


def test_all_that_cannot_be_read_is_named_at_once() -> None:
    with pytest.raises(InvalidRuleError) as error:
        read({"id": "A b", "signal": 3, "of": "gpus", "ladder": [{"do": "kill"}], "foo": 1,
              "title": "t"})
    assert sorted(problem.field for problem in error.value.problems) == [
        "fire", "foo", "id", "ladder[0].do", "of", "signal"]


def test_the_whole_ladder_of_the_docs_is_a_rule_that_may_be_written() -> None:
    """Warn, limit, pause, end, as docs/rules-that-act.md has it under "Graded isolation"."""
    text = (ROOT / "docs" / "rules-that-act.md").read_text().split("### Graded isolation")[1]
    example = text.split("```yaml\n")[1].split("```")[0]
    (ready,) = parse(example).rules.values()
    assert [step.do for step in ready.rule.ladder] == [*get_args(RuleDo)]
    assert ready.rule.mode == "dry_run", "it acts only when somebody raises it"
