"""Alerts with which a demo opens: those that its rules would have raised in its made-up past."""

from typing import TYPE_CHECKING

import numpy as np

from ..alerts.core.firing_alerts import Alert, alert_id
from ..alerts.core.rule import CompiledRule
from ..alerts.rehearsal.engine import RehearsalEngine, RehearsedAlert
from ..alerts.rehearsal.service import whole_steps
from ..alerts.rehearsal.tasks import TaskRehearsalSource

if TYPE_CHECKING:
    from ..app import Hub

RULES = ("idle-held",)  # others fire live, as soon as what they are about is there


def opening_alerts(hub: "Hub", start: int, end: int) -> list[Alert]:
    """Of tasks that are there now, as a rehearsal of the rules over that span finds them."""
    found = hub.alerts.targets.get("task")
    if found is None:
        return []
    rows = {found.identity(row): row for row in map(int, np.flatnonzero(found.there))}
    return [Alert(alert_id(rule_id, key, one.fired_at), rule_id, ready.version, ready.rule.title,
                  ready.rule.severity, "task", found.name(rows[key]), "firing", one.since,
                  one.fired_at, one.fired_at, one.value)
            for rule_id in RULES if (ready := hub.alerts.ready.get(rule_id)) is not None
            for key, one in _open(hub, ready, start, end).items() if key in rows]


def _open(hub: "Hub", ready: CompiledRule, start: int, end: int) -> dict[str, RehearsedAlert]:
    """Those that would still be open at the end, by task."""
    past = TaskRehearsalSource(hub.history.rules, hub.machine.fleet, ready)
    rehearsal = RehearsalEngine(past.ready)
    for stretch in past.stretches(*whole_steps(start, end, start, past.step_s)):
        rehearsal.take(stretch)
    return {past.name(one.row).key: one for one in rehearsal.alerts() if one.ended_at is None}
