"""Rules of the demo, whose words are true of the demo."""

import re

import pytest

from dashboard.alerts.active_rules import shipped_rules
from dashboard.alerts.core.rule import Rule
from dashboard.demo.rules import demo_rules

SPAN = re.compile(r"(two|half an|an?|five|ten|\d+) (minutes?|hours?)\b")
SHIPPED = {rule.id: rule for rule in shipped_rules()}
SHORTER = [rule for rule in demo_rules() if rule.for_ != SHIPPED[rule.id].for_]
WORDS = {"5m": "five minutes", "10m": "ten minutes"}


@pytest.mark.parametrize("rule", SHORTER, ids=lambda rule: rule.id)
def test_a_rule_with_another_span_names_its_own_first(rule: Rule) -> None:
    """A rule said that nothing had happened for two hours of what had worked 22 minutes before."""
    spans = [match[0] for match in SPAN.finditer(f"{rule.title}. {rule.runbook}")]
    assert spans[:1] in ([], [WORDS[rule.for_]])
    if spans[1:]:
        assert "Elsewhere this rule waits for" in rule.runbook


def test_there_are_rules_with_another_span() -> None:
    assert {"idle-held", "allocated-unused"} <= {rule.id for rule in SHORTER}
