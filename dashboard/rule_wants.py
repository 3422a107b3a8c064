"""The Rules as a source of Wants: their Alerts, and all that holds them back."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .alerts import AlertDesk
from .brakes import Brakes
from .core.alerts.acting import MODES, Acting, Beside, Kept
from .core.alerts.alerts import Alert
from .core.alerts.promotion import effective
from .core.alerts.watch import Watch
from .core.wants import Want
from .holds import Holds
from .keeps import Keeps
from .maintenance import MaintenanceDesk


@dataclass(frozen=True, slots=True)
class RuleWants:
    desk: AlertDesk
    brakes: Brakes
    keeps: Keeps
    holds: Holds
    maintenance: MaintenanceDesk

    def __call__(self) -> Iterable[Want]:
        """A storm is looked for first, so that nothing of it is done."""
        acting = self._acting()
        for rule_id, alerts in self._by_rule(acting).items():
            self._look_for_storm(rule_id, alerts)
        return acting.wants()

    def _acting(self) -> Acting:
        now = time.time()
        beside = Beside([each for each in self.desk.silences.values() if each.is_on(now)],
                        self._held, self._kept)
        return Acting(self.desk.fleet, now, time.monotonic(), self.desk.alerts.open(),
                      self.desk.ready, self.desk.evaluator.watches, beside)

    def _by_rule(self, acting: Acting) -> dict[str, list[Alert]]:
        found: dict[str, list[Alert]] = {}
        for _, alert in acting.open:
            ready = acting.ready.get(alert.rule_id)
            if ready is not None and ready.has_ladder and effective(
                    ready.rule, acting.now) in MODES:
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

    def _kept(self, task_ids: Iterable[str]) -> Kept | None:
        keep = self.keeps.of_any(task_ids)
        if keep is None:
            return None
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(keep.until))
        why = f": {keep.because}" if keep.because else ""
        return Kept(keep.until, f"{keep.by} asked that it be kept until {until}{why}")

    def holds_of(self) -> dict[str, list[str]]:
        """Of each Alert that fires, also of those whose Rule only observes."""
        acting = self._acting()
        return {alert.id: list(acting.holds(row, alert)) for row, alert in acting.open}


def targets_of(watch: Watch) -> int:
    """How many it is about: in its scope, and there."""
    size = len(watch.seen.scope)
    return int((watch.seen.scope & ~np.isnan(watch.machine.seen_at[:size])).sum())
