"""Arguments that may forbid an act have no default: a caller that forgets one must not permit."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import pytest

from agent.actions.context import ActionGuards as NodeGuards
from agent.actions.guard import GuardedProcess, GuardInput, ProtectedExecutables
from agent.quotas.evaluate import QuotaRefusals, QuotaSnapshot
from dashboard.access.policy import AccessTarget, may
from dashboard.access.service import AccountService
from dashboard.actions.commander import Commander
from dashboard.actions.guards import ActionGuards
from dashboard.actions.preview_requests import PreviewRequester
from dashboard.automation.intents import ActionIntent
from dashboard.notifications.receivers import address_flaw
from gpudeck.contract.ladder import LadderObservation
from gpudeck.contract.quota_usage import balances
from gpudeck.contract.rungs import RungTarget

# None: of all that it takes.
ASKED: tuple[tuple[Callable[..., Any], tuple[str, ...] | None], ...] = (
    (ProtectedExecutables, None), (GuardedProcess, None), (GuardInput, None), (NodeGuards, None),
    (ActionGuards, None), (QuotaRefusals, None), (QuotaSnapshot, None), (LadderObservation, None),
    (ActionIntent, ("acts", "within_s", "holds", "mutes", "keep", "condition")),
    (Commander.order, ("refusal", "condition")), (PreviewRequester.request, ("asker",)),
    (balances, ("hours", "spared")), (may, None), (AccountService.check, None),
    (address_flaw, None), (RungTarget, None),
)


@pytest.mark.parametrize(("what", "names"), ASKED)
def test_what_guards_has_no_default(what: Callable[..., Any], names: tuple[str, ...] | None
                                    ) -> None:
    parameters = signature(what).parameters
    defaults = [name for name in names or parameters
                if parameters[name].default is not Parameter.empty]
    assert parameters
    assert defaults == []


def test_what_is_not_said_of_a_target_counts_as_harmful() -> None:
    assert AccessTarget(owners=("ann",)).is_harmful
