"""Rules, quotas and filters that the docs print are about somebody: on a small fleet with work of
its own, each has a target."""

import json
import re
import shlex
from pathlib import Path

import pytest

from agent.cli.quota import _fields, _parser
from dashboard.alerts.active_rules import shipped_rules
from dashboard.alerts.core.rule import CompiledRule
from dashboard.alerts.core.rule_tracker import RuleTracker
from dashboard.alerts.rules_file import PACK, RulesFile, parse
from dashboard.fleet.filters import parse as parse_filter
from gpudeck.contract.quota import read
from gpudeck.contract.quota_usage import subjects_of
from tests.faults.matrix.faults import ON
from tests.faults.matrix.table import FAULTS, MEASURED
from tests.unit.dashboard.alerts.test_targets import GIB, World, task
from tests.unit.test_docs_how_to import ALL, PAGES, blocks


@pytest.fixture(name="world", scope="module")
def _world() -> World:
    world = World(nodes=2)
    world.on["n0"] = [(task("ann", job_id="a"), 0, 3e9, 0.0), (task("root"), 1, 1e9, 5.0)]
    world.on["n1"] = [(task("bob", job_id="b"), 0, 2e9, 90.0)]
    world.rows["n1"][0] |= {"util_pct": 0.0, "util_max_pct": 0.0, "mem_used_bytes": 60 * GIB}
    for _ in range(5):
        world.next_look()
    return world


def rules_of(text: str) -> RulesFile:
    rules = parse(text)
    assert not rules.faults, rules.faults
    return rules


PRINTED = [(page.stem, ready) for page in PAGES for block in blocks(page, "yaml")
           if re.search(r"^rules:", block, re.M) and "signal:" in block
           for ready in rules_of(block).rules.values()]
PACKED = [("pack", ready) for ready in parse(PACK.read_text()).rules.values()]


def targets(ready: CompiledRule, world: World) -> int:
    scene, tracker = world.look()[ready.rule.of], RuleTracker(ready)
    tracker.glance(scene, world.now)
    return int((tracker.last_values.scope & scene.there).sum())


@pytest.mark.parametrize(("page", "ready"), [*PRINTED, *PACKED],
                         ids=lambda value: value if isinstance(value, str) else value.rule.id)
def test_rules_have_a_target(page: str, ready: CompiledRule, world: World) -> None:
    """Found by examiners: the first example of a rule that acts matched nobody, in silence."""
    assert targets(ready, world) > 0


def test_rules_are_printed_and_one_of_nobody_is_found(world: World) -> None:
    assert {page for page, _ in PRINTED} >= {"rules-that-act", "rules"}
    rule = 'rules: [{id: x, title: x, of: task, scope: "user:no*", signal: age_s, fire: "> 1"}]'
    [ready] = rules_of(rule).rules.values()
    assert targets(ready, world) == 0


QUOTAS = [words for _, words in ALL if words[:2] in (["quota", "set"], ["quota", "check"])]


@pytest.mark.parametrize("words", QUOTAS, ids=" ".join)
def test_quotas_have_a_holder(words: list[str], world: World) -> None:
    fields = _fields(_parser(words[1]).parse_args(words[2:])) | {"id": words[2]}
    quota = read({"subject": "*", "gpus": 4} | fields)
    tasks = [holder for on in world.on.values() for holder, *_ in on]
    assert any(quota.subject in subjects_of(holder) for holder in tasks)


FILTERS = sorted({words[at + 1] for page in PAGES
                  for line in re.findall(r"gpudeck .*--filter .*", page.read_text())
                  if (words := shlex.split(line.split("`")[0], comments=True))
                  and "--filter" in words[:-1] for at in [words.index("--filter")]})


@pytest.mark.parametrize("text", FILTERS)
def test_filters_of_commands_match_something(text: str, world: World) -> None:
    """The name of a node is the reader's, so any will do."""
    matcher = parse_filter(re.sub(r"node:[\w.-]+", "node:n1", text))
    assert matcher is not None
    assert matcher.matches(world.fleet, world.mono)[:len(world.fleet)].any()


def test_there_are_some() -> None:
    assert len(QUOTAS) >= 3
    assert Path(PAGES[0]).exists()


def test_the_table_of_faults_has_one_notification_of_each() -> None:
    """`python -m tests.faults.matrix` measures it; a rule that is renamed changes it too."""
    rows = [(row["fault"], row["on"], row["alert"], row["notifications"])
            for row in json.loads(MEASURED.read_text())]
    cases = {(case.name, ON[case.where], case.rule or None, int(bool(case.rule))): case.is_quick
             for case in FAULTS}
    assert set(rows) <= cases.keys()
    assert {row for row, is_quick in cases.items() if is_quick} <= set(rows)
    assert len(rows) == len(set(rows)) >= 30
    assert {case.rule for case in FAULTS} - {""} <= {rule.id for rule in shipped_rules()}
