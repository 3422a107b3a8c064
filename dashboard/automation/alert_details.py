"""Details of alerts: why nothing is done about them now, and their ladders."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..alerts.core.firing_alerts import Alert
from ..alerts.views import NO_DETAIL, AlertDetail
from .ladder_runs import LadderRun
from .rule_planner import key_of
from .rule_source import RuleIntentSource
from .service import LadderService
from .views import ladder_view

SECONDS = re.compile(r"\b\d+ s\b")


@dataclass(frozen=True, slots=True)
class AlertDetails:
    """Why nothing is done about an alert now, with past and coming steps."""

    source: RuleIntentSource
    ladders: LadderService

    def all(self) -> dict[str, AlertDetail]:
        runs = {run.intent.alert_id: run for run in self.ladders.runs}
        return {alert_id: self._of(detail, runs.get(alert_id))
                for alert_id, detail in self.source.details_of().items()}

    def of(self, alert: Alert) -> AlertDetail:
        return self._of(self.source.details_of(alert).get(alert.id, NO_DETAIL),
                        self.ladders.runs.find(key_of(alert)))

    def _of(self, detail: AlertDetail, run: LadderRun | None) -> AlertDetail:
        if run is None:
            return detail
        why = self.ladders.guards.holds_of(run)
        return AlertDetail(distinct_holds((*detail.holds, *why)), detail.inhibited_by,
                           ladder_view(run.climb, run.intent, why, self.ladders.clock.utc))


def distinct_holds(holds: Iterable[str]) -> list[str]:
    """Return the holds without repeats: the same one may differ by a second when computed twice."""
    holds_by_text: dict[str, str] = {}
    for hold in holds:
        holds_by_text.setdefault(SECONDS.sub("", hold), hold)
    return list(holds_by_text.values())
