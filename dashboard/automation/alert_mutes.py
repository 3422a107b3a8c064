"""Silences of alerts, and other alerts that explain them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.pending_alerts import pending_alerts
from ..alerts.core.rule import CompiledRule
from ..alerts.core.silence import Silence
from ..alerts.service import AlertService
from .alert_targets import AlertTargets

LOOK_SLACK_S = 5.0
SEEN_WITHIN_S = 30.0  # two periods of the numbers that are read most rarely


@dataclass(frozen=True, slots=True)
class AlertMutes:
    """Reasons, at one moment, for not notifying anybody of an alert. `unseen`: alerts from before a
    restart of the hub whose targets have not been seen again yet: nothing new is said of them, and
    they still explain others."""

    alerts: AlertService
    targets: AlertTargets
    now: float
    recently_ended: Iterable[Alert]
    unseen: Mapping[str, Alert]  # by id
    silences: Sequence[Silence]
    _pending: dict[str, list[tuple[int, Alert]]] = field(default_factory=dict)

    def mutes(self, alert: Alert) -> Iterator[str]:
        return (silence_text(silence) for silence in self.silences_of(alert) if silence.mutes)

    def is_muted(self, row: int | None, alert: Alert) -> bool:
        """Return whether no notification is sent for it now; row None: it has been resolved, or is
        unseen."""
        if any(True for _ in self.mutes(alert)):
            return True
        if row is None:
            return alert.id in self.unseen
        return any(True for _ in self.inhibitors(row, alert)) or self._awaits_cause(row, alert)

    def _awaits_cause(self, row: int, alert: Alert) -> bool:
        """Return whether its cause may fire soon: what would explain it is pending. A slow rank is
        seen before the heat that slows it. Waits only until that could fire, and never for critical
        alerts."""
        ready = self.alerts.ready.get(alert.rule_id)
        if ready is None or not ready.rule.inhibited_by or alert.severity == "crit":
            return False
        for rule_id in ready.rule.inhibited_by:
            if rule_id not in self._pending:
                self._pending[rule_id] = list(pending_alerts(
                    self.alerts.evaluator.watches, self.alerts.targets, (rule_id,)))
        return any(self.now - alert.fired_at <= other.fired_at - other.since
                   and self._stands_above(other_row, other, row, alert)
                   for rule_id in ready.rule.inhibited_by
                   for other_row, other in self._pending[rule_id])

    def silences_of(self, alert: Alert) -> Iterator[Silence]:
        return (silence for silence in self.silences
                if silence.is_on(self.now) and silence.matches(alert))

    def inhibitors(self, row: int, alert: Alert) -> Iterator[Alert]:
        """Yield the alerts that inhibit this one. One that has ended explains what began before its
        end, for as long as this rule may still show it; the alert stays visible."""
        ready = self.alerts.ready.get(alert.rule_id)
        if ready is None or not ready.rule.inhibited_by:
            return
        past = ((None, other) for other in self.recently_ended
                if _explains(other.ended_at or self.now, ready, alert, self.now))
        unseen = ((None, other) for other in self.unseen.values())
        for other_row, other in chain(self.targets.open, unseen, past):
            if (other.rule_id in ready.rule.inhibited_by
                    and self._stands_above(other_row, other, row, alert)):
                yield other

    def _stands_above(self, other_row: int | None, other: Alert, row: int, alert: Alert) -> bool:
        """Return whether an alert is above another in the fleet; `other_row` None: it has ended, or
        is unseen."""
        match other.of:
            case "fleet":
                return True
            case "owner":
                return bool(set(other.target.users) & set(alert.target.users))
            case "node":
                return other.target.node_id in {alert.target.node_id} | {
                    node_id for node_id, _ in self.targets.tasks(row, alert)}
            case "gpu":
                return (other.target.node_id, other.target.key) in self.targets.gpus(row, alert)
            case _ if alert.of == "gpu":
                return (alert.target.node_id, alert.target.key) in (
                    {(other.target.node_id, uuid) for uuid in other.target.gpus}
                    if other_row is None else self.targets.gpus(other_row, other))
            case _:
                return (other.target.node_id, other.target.key) == (
                    alert.target.node_id, alert.target.key)


def _explains(ended_at: float, ready: CompiledRule, alert: Alert, now: float) -> bool:
    """Return whether a cause that ended at `ended_at` may explain this alert."""
    looks_s = 2 * ready.period_s + LOOK_SLACK_S
    return (alert.since <= ended_at + looks_s
            and now <= ended_at + span_s(ready) + ready.keep_s + looks_s + SEEN_WITHIN_S)


def span_s(ready: CompiledRule) -> float:
    return max(signal.span_s for signal in (ready.signal, *(signal_ for signal_, _ in ready.where)))


def silence_text(silence: Silence) -> str:
    until = datetime.fromtimestamp(silence.until, UTC)
    return f"silenced by {silence.by} until {until:%Y-%m-%d %H:%M} UTC: {silence.because}"
