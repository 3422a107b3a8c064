"""Rules as a source of intents, for the ladders."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.rule_tracker import RuleTracker
from ..alerts.core.silence import Mute
from ..alerts.service import AlertService
from ..alerts.silences import SilenceService
from ..alerts.views import AlertDetail
from .alert_mutes import AlertMutes
from .alert_targets import AlertTargets
from .brakes import BrakeService
from .holds import HubHolds
from .intents import ActionIntent
from .ladder_state import RETURN_WITHIN_S
from .rule_cordons import CordonRequest
from .rule_planner import RuleIntentPlanner


@dataclass(frozen=True, slots=True)
class RuleIntentSource:
    alerts: AlertService
    silences: SilenceService
    brakes: BrakeService
    hub_holds: HubHolds
    began_mono: float = field(default_factory=lambda: time.monotonic())

    def __call__(self) -> Iterable[ActionIntent]:
        """Yield intents. Storms are detected first, so that no action of one is done."""
        planner, fired_at = self._planner(), dict[str, list[float]]()
        for _, alert in planner.targets.open:
            if planner.mode(alert.rule_id) is not None:
                fired_at.setdefault(alert.rule_id, []).append(alert.fired_at)
        for rule_id, began in fired_at.items():
            if (watch := self.alerts.evaluator.watches.get(rule_id)) is not None:
                self.brakes.look_for_storm(f"rule {rule_id}", began, targets_of(watch))
        return planner.intents()

    def _planner(self) -> RuleIntentPlanner:
        now = time.time()
        alerts = self.alerts.alerts
        targets = AlertTargets(self.alerts, time.monotonic(), alerts.open())
        unseen = {alert.id: alert for alert in self.alerts.restart.waiting()}
        mutes = AlertMutes(self.alerts, targets, now, alerts.recently_ended(now), unseen,
                           self.silences.active(now))
        return RuleIntentPlanner(self.alerts, targets, mutes, self.hub_holds, now,
                                 self.began_mono + RETURN_WITHIN_S)

    def cordons(self) -> Iterable[CordonRequest]:
        return self._planner().cordons()

    def mute(self) -> Mute:
        """Return a test for alerts without notifications now: silenced, or suppressed by another
        alert."""
        @cache
        def moment() -> tuple[RuleIntentPlanner, dict[str, int]]:  # often not needed
            planner = self._planner()
            return planner, {alert.id: row for row, alert in planner.targets.open}

        def is_muted(alert: Alert) -> bool:
            planner, rows = moment()
            return planner.mutes.is_muted(rows.get(alert.id), alert)

        return is_muted

    def details_of(self, alert: Alert | None = None) -> dict[str, AlertDetail]:
        """Return the holds and the inhibitors of each firing alert, also of rules that only
        observe; or of this one."""
        planner = self._planner()
        details = {}
        for row, firing in planner.targets.open:
            if alert is None or firing.id == alert.id:
                inhibitors = [*planner.mutes.inhibitors(row, firing)]
                details[firing.id] = AlertDetail([*planner.holds(row, firing, inhibitors)],
                                                 [other.id for other in inhibitors])
        return details


def targets_of(watch: RuleTracker) -> int:
    """Return the number of targets that are in scope and present."""
    size = len(watch.last_values.scope)
    return int((watch.last_values.scope & ~np.isnan(watch.machine.seen_at[:size])).sum())
