"""Loops of automation besides its ladders: taking back limits and cordoning GPUs."""

from ..audit.recorder import AuditRecorder
from ..runtime.runner import Loop
from .dispatch import ActionDispatcher
from .ladder_runs import LadderRuns
from .limit_returns import LimitReturns
from .rule_cordons import RuleCordons
from .rule_source import RuleIntentSource


def secondary_loops(dispatcher: ActionDispatcher, rules: RuleIntentSource, runs: LadderRuns,
                    auditor: AuditRecorder) -> tuple[Loop, ...]:
    fleet = dispatcher.machine.fleet
    return (LimitReturns(fleet, runs, dispatcher).loop,
            RuleCordons(rules.cordons, fleet, rules.brakes, dispatcher, auditor).loop)
