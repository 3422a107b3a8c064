"""Rules as a source of intents: their alerts, and all that holds them back."""

import re
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
from .brakes import BrakeService
from .holds import HubHolds
from .intents import ActionIntent
from .ladder_runs import LadderRun
from .ladder_state import RETURN_WITHIN_S
from .rule_intents import RuleIntentPlanner, key_of
from .service import LadderService
from .views import ladder_view


@dataclass(frozen=True, slots=True)
class RuleIntentSource:
    alerts: AlertService
    silences: SilenceService
    brakes: BrakeService
    hub_holds: HubHolds
    began_mono: float = field(default_factory=lambda: time.monotonic())

    def __call__(self) -> Iterable[ActionIntent]:
        """A storm is looked for first, so that nothing of it is done."""
        planner, fired_at = self._planner(), dict[str, list[float]]()
        for _, alert in planner.open:
            if planner.mode(alert.rule_id) is not None:
                fired_at.setdefault(alert.rule_id, []).append(alert.fired_at)
        for rule_id, began in fired_at.items():
            if (watch := self.alerts.evaluator.watches.get(rule_id)) is not None:
                self.brakes.look_for_storm(f"rule {rule_id}", began, targets_of(watch))
        return planner.intents()

    def _planner(self) -> RuleIntentPlanner:
        now, alerts = time.time(), self.alerts
        return RuleIntentPlanner(alerts.fleet, now, time.monotonic(), alerts.alerts.open(),
                                 alerts.ready, alerts.evaluator.watches, alerts.matters_to,
                                 self.silences.active(now), self.hub_holds,
                                 self.began_mono + RETURN_WITHIN_S)

    def mute(self) -> Mute:
        """Of whom nobody is told now: by a silence, or because another Alert stands above it."""
        @cache
        def moment() -> tuple[RuleIntentPlanner, dict[str, int]]:  # often nobody asks
            planner = self._planner()
            return planner, {each.id: row for row, each in planner.open}

        def is_muted(alert: Alert) -> bool:
            planner, rows = moment()
            return planner.is_muted(rows.get(alert.id), alert)

        return is_muted

    def holds_of(self, alert: Alert | None = None) -> dict[str, list[str]]:
        """Of each Alert that fires, also of those whose Rule only observes; or of this one."""
        planner = self._planner()
        return {each.id: list(planner.holds(row, each)) for row, each in planner.open
                if alert is None or each.id == alert.id}


SECONDS = re.compile(r"\b\d+ s\b")


@dataclass(frozen=True, slots=True)
class AlertDetails:
    """Why nothing is done about an Alert now, and what was and will be."""

    source: RuleIntentSource
    ladders: LadderService

    def all(self) -> dict[str, AlertDetail]:
        runs = {run.intent.alert_id: run for run in self.ladders.runs}
        return {alert_id: self._of(holds, runs.get(alert_id))
                for alert_id, holds in self.source.holds_of().items()}

    def of(self, alert: Alert) -> AlertDetail:
        return self._of(self.source.holds_of(alert).get(alert.id, []),
                        self.ladders.runs.find(key_of(alert)))

    def _of(self, holds: list[str], run: LadderRun | None) -> AlertDetail:
        if run is None:
            return holds, None
        why = self.ladders.guards.holds_of(run)
        return each_once((*holds, *why)), ladder_view(run.climb, run.intent, why,
                                                      self.ladders.clock.utc)


def each_once(holds: Iterable[str]) -> list[str]:
    """The same hold was asked for twice, and a second may have passed between."""
    found: dict[str, str] = {}
    for hold in holds:
        found.setdefault(SECONDS.sub("", hold), hold)
    return list(found.values())


def targets_of(watch: RuleTracker) -> int:
    """How many it is about: in its scope, and there."""
    size = len(watch.seen.scope)
    return int((watch.seen.scope & ~np.isnan(watch.machine.seen_at[:size])).sum())
