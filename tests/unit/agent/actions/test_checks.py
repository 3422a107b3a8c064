"""The checks of an order: one list, run from first to last."""

from types import SimpleNamespace
from typing import get_args

import pytest

from agent.actions import checks
from agent.actions.checks import CHECKS, ArrivingOrder
from agent.actions.guard import Check
from gpudeck.contract.action_table import ACTIONS, SHOWN_ACTIONS, Action
from gpudeck.contract.actions import Refusal, RefusalCode

IN_THIS_ORDER = ("size and schema", "signature", "node", "not seen before", "epoch", "expiry",
                 "identity", "fresh list", "ceiling", "hold", "protected set")


def test_the_order_is_that_of_the_design() -> None:
    names = [check.name for check in CHECKS]
    assert [name for name in names if name in IN_THIS_ORDER] == list(IN_THIS_ORDER)
    assert len(set(names)) == len(names)
    assert {code for check in CHECKS for code in check.codes} <= {*get_args(RefusalCode)}


def test_nothing_but_the_clock_and_a_preview_is_spared_a_hold_or_a_release() -> None:
    spared = {action: {check.name for check in checks.ON_ARRIVAL if action not in check.actions}
              for action in ACTIONS}
    previews = {check.name for check in checks.ON_ARRIVAL if check.name.startswith("preview")}
    assert spared["release"] == previews
    assert spared["hold"] == previews | {"expiry"}
    assert not any(spared[action] for action in SHOWN_ACTIONS)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("failing", range(len(checks.ON_ARRIVAL)))
def test_the_first_that_fails_ends_it(action: Action, failing: int,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    checks_run: list[str] = []

    def row(number: int, check: Check[ArrivingOrder]) -> Check[ArrivingOrder]:
        def refusals(_order: ArrivingOrder) -> list[Refusal]:
            checks_run.append(check.name)
            return [Refusal("schema", check.name)] if number >= failing else []

        return Check(check.name, check.codes, check.meaning, refusals, check.actions)

    applicable = [check.name for check in checks.ON_ARRIVAL if action in check.actions]
    first = next((check.name for number, check in enumerate(checks.ON_ARRIVAL)
                  if number >= failing and action in check.actions), None)
    monkeypatch.setattr(checks, "ON_ARRIVAL", tuple(
        row(number, check) for number, check in enumerate(checks.ON_ARRIVAL)))
    order = ArrivingOrder(None, None, SimpleNamespace(action=action))  # type: ignore[arg-type]
    failed = order.first_failure()
    assert (failed[0].name if failed else None) == first
    assert checks_run == (applicable if first is None else applicable[:applicable.index(first) + 1])
