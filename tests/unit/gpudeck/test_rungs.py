"""Acts that can never be done to a target, and a node's refusal of them in the same words."""

from dataclasses import replace
from typing import Any

import pytest

from agent.actions.ceiling import Ceiling
from agent.actions.guard import refusals
from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.rungs import RulesCeiling, RungTarget, out_of_place, refusal
from tests.unit.agent.actions.test_guard import a_case, a_subject

MAY = RulesCeiling(may_act=True, may_hit_managed=False)
FREE = RungTarget(actions=("notify", "pause", "end"), rules=MAY, manager=None, is_mps_client=False,
                  processes=2, is_one_tree=True, meant=frozenset("ab"), tree=frozenset("ab"),
                  other_nodes=0)
UNKNOWN = RungTarget(None, None, None, False, None, None, frozenset(), None, 0)


@pytest.mark.parametrize("action", ["notify", "pause", "end"])
def test_what_nothing_is_against_can_be_done(action: ShownAction) -> None:
    assert refusal(action, FREE) is None
    assert refusal(action, UNKNOWN) is None, "what is not known is not promised to be refused"


@pytest.mark.parametrize(("action", "changed", "code"), [
    ("pause", {"actions": ("notify", "end")}, "type"),
    ("end", {"rules": RulesCeiling(False, False)}, "rules"),
    ("end", {"manager": "slurm job 12"}, "managed"),
    ("pause", {"is_mps_client": True}, "mps"),
    ("pause", {"is_one_tree": False}, "multi_process"),
    ("end", {"tree": frozenset("abc")}, "changed"),
    ("end", {"tree": frozenset("a")}, "multi_process"),
    ("end", {"other_nodes": 2}, "hold"),
    ("terminate_client", {"actions": ("notify", "terminate_client")}, "rules"),
])
def test_each_reason(action: ShownAction, changed: dict[str, Any], code: str) -> None:
    answer = refusal(action, replace(FREE, **changed))
    assert answer is not None
    assert answer.code == code
    if code != "type":
        assert refusal("notify", replace(FREE, **changed)) is None, "to be told harms nobody"


@pytest.mark.parametrize(("ceiling", "changed", "facts"), [
    (Ceiling(actions=("notify", "end"), rules_may_act=True), {}, {"actions": ("notify", "end")}),
    (Ceiling(), {}, {"rules": RulesCeiling(False, False)}),
    (Ceiling(rules_may_act=True), {"manager": "slurm job 12"}, {"manager": "slurm job 12"}),
    (Ceiling(rules_may_act=True), {"subjects": (a_subject(kind="mps_client"),)},
     {"is_mps_client": True}),
    (Ceiling(rules_may_act=True), {"subjects": (a_subject(), a_subject(pid=501))},
     {"is_one_tree": False}),
])
def test_a_node_refuses_for_the_same_reason(ceiling: Ceiling, changed: dict[str, Any],
                                            facts: dict[str, Any]) -> None:
    case = a_case(action="pause", asker="rule", ceiling=ceiling, **changed)
    assert refusals(case) == (refusal("pause", replace(FREE, **facts)),)


def test_rungs_that_nobody_can_come_to() -> None:
    assert [*out_of_place(["tell", "tell", "pause", "end"])] == []
    assert [number for number, _ in out_of_place(["tell", "pause", "pause", "end", "end"])] == [
        2, 4]
