"""Alerts at the start of a demo: those its rules would have raised in its simulated history."""

import numpy as np

from ..alerts.core.firing_alerts import Alert, alert_id
from ..alerts.core.rule import CompiledRule
from ..alerts.rehearsal.engine import RehearsalEngine, RehearsedAlert
from ..alerts.rehearsal.service import whole_steps
from ..alerts.rehearsal.tasks import TaskRehearsalSource
from ..alerts.service import AlertService
from ..history.reads.protocol import History

RULES = ("idle-held",)  # others fire live soon enough


def opening_alerts(alerts: AlertService, history: History, start: int, end: int) -> list[Alert]:
    """Return the alerts of current tasks, as a rehearsal of the rules over this span finds them."""
    tasks = alerts.targets.get("task")
    if tasks is None:
        return []
    rows = {tasks.identity(row): row for row in map(int, np.flatnonzero(tasks.there))}
    return [Alert(alert_id(rule_id, key, rehearsed.fired_at), rule_id, ready.version,
                  ready.rule.title, ready.rule.severity, "task", tasks.name(rows[key]), "firing",
                  rehearsed.since,
                  rehearsed.fired_at, rehearsed.fired_at, rehearsed.value)
            for rule_id in RULES if (ready := alerts.ready.get(rule_id)) is not None
            for key, rehearsed in _open(alerts, history, ready, start, end).items() if key in rows]


def _open(alerts: AlertService, history: History, ready: CompiledRule, start: int, end: int
          ) -> dict[str, RehearsedAlert]:
    """Return the rehearsed alerts that are still open at the end, by task."""
    past = TaskRehearsalSource(history.rules, alerts.fleet, ready)
    rehearsal = RehearsalEngine(past.ready)
    for stretch in past.stretches(*whole_steps(start, end, start, past.step_s)):
        rehearsal.take(stretch)
    return {past.name(alert.row).key: alert for alert in rehearsal.alerts()
            if alert.ended_at is None}
