"""The Rules as a source of Wants: their Alerts, and all that holds them back."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..actions.holds import HoldService
from ..actions.owner_keeps import OwnerKeepService
from ..alerts.core.firing_alerts import Alert
from ..alerts.core.rule_tracker import RuleTracker
from ..alerts.core.silence import Mute
from ..alerts.service import AlertService
from ..alerts.silences import SilenceService
from ..alerts.views import AlertDetail
from .brakes import BrakeService
from .intents import ActionIntent
from .ladder_state import RETURN_WITHIN_S
from .maintenance import MaintenanceService
from .rule_intents import RuleIntentContext, RuleIntentPlanner, RuleOwnerKeep, key_of
from .service import LadderRun, LadderService
from .views import ladder_view


@dataclass(frozen=True, slots=True)
class RuleIntentSource:
    desk: AlertService
    silences: SilenceService
    brakes: BrakeService
    keeps: OwnerKeepService
    holds: HoldService
    maintenance: MaintenanceService
    began_mono: float = field(default_factory=lambda: time.monotonic())

    def __call__(self) -> Iterable[ActionIntent]:
        """A storm is looked for first, so that nothing of it is done."""
        acting = self._acting()
        for rule_id, alerts in self._by_rule(acting).items():
            self._look_for_storm(rule_id, alerts)
        return acting.wants()

    def _acting(self) -> RuleIntentPlanner:
        now = time.time()
        beside = RuleIntentContext(self.silences.active(now), self._held, self._kept)
        return RuleIntentPlanner(self.desk.fleet, now, time.monotonic(), self.desk.alerts.open(),
                                 self.desk.ready, self.desk.evaluator.watches, self.desk.matters_to,
                                 beside, self.began_mono + RETURN_WITHIN_S)

    def _by_rule(self, acting: RuleIntentPlanner) -> dict[str, list[Alert]]:
        found: dict[str, list[Alert]] = {}
        for _, alert in acting.open:
            if acting.mode(alert.rule_id) is not None:
                found.setdefault(alert.rule_id, []).append(alert)
        return found

    def _look_for_storm(self, rule_id: str, alerts: list[Alert]) -> None:
        watch = self.desk.evaluator.watches.get(rule_id)
        if watch is not None:
            self.brakes.look_for_storm(f"rule {rule_id}", [each.fired_at for each in alerts],
                                       targets_of(watch))

    def _held(self, node_id: str) -> str | None:
        one = self.maintenance.of(node_id)
        if one is not None:
            return one.sentence
        refusal = self.holds.refusal(node_id)
        return None if refusal is None else refusal.sentence

    def _kept(self, task_ids: Iterable[str]) -> RuleOwnerKeep | None:
        keep = self.keeps.of_any(task_ids)
        if keep is None:
            return None
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(keep.until))
        why = f": {keep.because}" if keep.because else ""
        return RuleOwnerKeep(keep.until, f"{keep.by} asked that it be kept until {until}{why}")

    def mute(self) -> Mute:
        """Of whom nobody is told now: by a silence, or because another Alert stands above it."""
        seen: list[tuple[RuleIntentPlanner, dict[str, int]]] = []

        def is_muted(alert: Alert) -> bool:
            if not seen:  # often nobody asks
                acting = self._acting()
                seen.append((acting, {each.id: row for row, each in acting.open}))
            acting, rows = seen[0]
            return acting.is_muted(rows.get(alert.id), alert)

        return is_muted

    def holds_of(self, alert: Alert | None = None) -> dict[str, list[str]]:
        """Of each Alert that fires, also of those whose Rule only observes; or of this one."""
        acting = self._acting()
        return {each.id: list(acting.holds(row, each)) for row, each in acting.open
                if alert is None or each.id == alert.id}


SECONDS = re.compile(r"\b\d+ s\b")


@dataclass(frozen=True, slots=True)
class AlertDetails:
    """Why nothing is done about an Alert now, and what was and will be."""

    wants: RuleIntentSource
    ladders: LadderService

    def all(self) -> dict[str, AlertDetail]:
        kept = self.ladders.by_alert()
        return {alert_id: self._of(holds, kept.get(alert_id))
                for alert_id, holds in self.wants.holds_of().items()}

    def of(self, alert: Alert) -> AlertDetail:
        return self._of(self.wants.holds_of(alert).get(alert.id, []),
                        self.ladders.find(key_of(alert)))

    def _of(self, holds: list[str], kept: LadderRun | None) -> AlertDetail:
        if kept is None:
            return holds, None
        why = self.ladders.holds_of(kept)
        return each_once((*holds, *why)), ladder_view(
            kept.climb, kept.want, why, self.ladders.utc)


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
