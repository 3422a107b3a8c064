"""Evaluates the rules in force once a second and keeps their alerts; acting on alerts is done
elsewhere."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import gevent
import numpy as np

from ..fleet.events import RecentEvents
from ..fleet.fleet import Fleet
from ..fleet.node_budget import HOUR_S
from ..history.reads.protocol import RuleHistory
from ..runtime.dispatcher import Dispatcher
from ..runtime.native_threads import in_thread
from .active_rules import ActiveRules
from .alert_writer import AlertWriter
from .core.evaluator import RuleEvaluator
from .core.firing_alerts import KEPT_S, MOST_KEPT, Alert, FiringAlerts
from .core.gpu_targets import HubSelfMetrics
from .core.minute_aggregates import ClosedRuleMinute
from .core.restart_state import RuleStateRestore, remember
from .core.rule import CompiledRule, Of
from .core.rule_tracker import SKEW_S
from .core.state_machine import AlertPhase
from .core.target_collector import NamedRuleTargets, RuleTargetCollector
from .events import AlertChanged, RulesChanged
from .rehearsal.gpus import LIVE, closed_minute
from .store import CANNOT_STORE, AlertsStore

log = logging.getLogger("gpudeck.alerts")

EVERY_S = 1.0
FORGET_EVERY_S = 3_600.0
REMEMBER_EVERY_S = 30.0
REMEMBER_SOON_S = 2.0  # what happened once: a hub that is killed then would not see it again
RESTORE_EVERY_S = 10.0
FOLLOW_EVERY_S = 10.0
BLIND_WITHIN_S = 60.0
FAILS_FROM = 3  # steps in a row


@dataclass(frozen=True, slots=True)
class AlertSources:
    """Sources of the values that rules read. `revoked`: nodes whose silence is no alert.
    `hub_metrics`: metrics of the hub itself that this service does not know. `history` None:
    minutes are aggregated here alone."""

    fleet: Fleet
    events: RecentEvents
    revoked: Callable[[], Collection[str]]
    hub_metrics: Callable[[], HubSelfMetrics]
    unused: Callable[[], Mapping[str, float]]  # GPUs allocated without a process, by node
    history: RuleHistory | None


class AlertService:
    """The state of all rules and alerts. `targets`: those of the last step."""

    def __init__(self, sources: AlertSources, rules: ActiveRules, store: AlertsStore,
                 events: Dispatcher) -> None:
        self._sources = sources
        self.fleet = sources.fleet
        self._rules = rules
        self._store = store
        self._events = events
        self._collector = RuleTargetCollector(sources.fleet, sources.events)
        self.targets: Mapping[Of, NamedRuleTargets] = {}
        self.since_mono = time.monotonic()  # evaluated without interruption since then
        self._forgot_mono = -FORGET_EVERY_S
        self.stepped_mono = self.since_mono
        self._remembered_mono = -REMEMBER_EVERY_S
        self._has_news_of_past = False  # that is not stored yet
        self._restore_at = 0.0
        self._followed_mono = self.since_mono
        self._measured_mono: float | None = None
        self._delays: list[tuple[float, float]] = []  # of the last minute: when, by how many s
        self._clock_ahead_s: float | None = None  # of the monotonic one
        self._writer = AlertWriter(store)
        self._lacks_minute = False  # history did not return the last one
        self.evaluator = RuleEvaluator(() if sources.history is None else LIVE)
        self.alerts = FiringAlerts()
        for node_minute in store.fired_since(time.time() - HOUR_S):
            self.alerts.charge(*node_minute)
        self.alerts.remember_ended(store.ended_since(time.time() - KEPT_S, MOST_KEPT))
        self._apply_rules()
        self.restart = RuleStateRestore(store.memory(), store.open_alerts(),
                                         self.evaluator.watches, time.time())
        store.put_alerts(self.restart.ended_alerts)
        events.listen(RulesChanged, lambda _: self._apply_rules())

    @property
    def ready(self) -> dict[str, CompiledRule]:
        return self._rules.ready

    def _apply_rules(self) -> None:
        ready = self._rules.ready
        removed = [rule_id for rule_id in self.evaluator.watches if rule_id not in ready]
        restarted = [*self.evaluator.set_rules(ready), *removed]
        self._publish(self.alerts.drop(restarted, time.time(), "edited"))

    # -- time

    def step(self, now: float, mono: float) -> None:
        self._detect_clock_step(now, mono)
        closed = self._closed_minute(now)
        for _ in self._collector.prepare():
            gevent.sleep(0)  # so that agents do not wait for all of it
        mono = time.monotonic()  # history may have taken a while
        self.targets = targets = self._collector.look(
            now, mono, self.since_mono, self._sources.revoked(), self._hub_metrics(mono),
            self._sources.unused)
        self._restore_states(now)
        for moved in self.evaluator.step(targets, now, closed):
            self._publish([alert for change in moved for alert in self.alerts.take(
                change, lambda of, row: targets[of].name(row))])
            self._has_news_of_past |= any(change.watch.ready.is_of_past and change.moves.after
                                          in (AlertPhase.PENDING, AlertPhase.FIRING)
                                          for change in moved)
            gevent.sleep(0)
        self._follow(mono)
        for rule_id, watch in self.evaluator.watches.items():
            if watch.failures == 1:
                log.error("rule_failed rule=%s why=%r", rule_id, watch.trouble)
        self.stepped_mono = mono
        self._writer.flush()
        self._remember(now, mono)

    def close(self) -> None:
        """Store what the last step knew: the next start goes on from there."""
        if self.targets:
            self._remember(time.time(), math.inf)

    def _remember(self, now: float, mono: float) -> None:
        try:
            every_s = REMEMBER_SOON_S if self._has_news_of_past else REMEMBER_EVERY_S
            if mono - self._remembered_mono >= every_s:
                self._remembered_mono, self._has_news_of_past = mono, False
                self._store.put_memory(remember(self.evaluator.watches, self._identity, now,
                                                self.restart))
            if mono - self._forgot_mono >= FORGET_EVERY_S:
                self._forgot_mono = mono
                self._store.forget(now)
        except CANNOT_STORE as error:
            self._writer.report(error)

    def _identity(self, of: Of, row: int) -> str | None:
        targets = self.targets[of]
        return targets.identity(row) if row < len(targets.there) and targets.there[row] else None

    def _detect_clock_step(self, now: float, mono: float) -> None:
        """Compare with the monotonic clock, which is never set. Rules that act restart, as their
        samples carry times from before the step."""
        before, self._clock_ahead_s = self._clock_ahead_s, now - mono
        if before is None or abs(self._clock_ahead_s - before) <= SKEW_S:
            return
        by_s = self._clock_ahead_s - before
        log.warning("clock_set by_s=%.1f; rules that act begin again", by_s)
        self.evaluator.shift_clock(by_s)
        self.since_mono = mono
        self._restore_at = 0.0
        self.restart_acting_rules("clock")

    def _hub_metrics(self, mono: float) -> HubSelfMetrics:
        """Return the hub's metrics, with the time in which no rule was evaluated: an alert about
        that must not be missed because no rule is evaluated."""
        last, self._measured_mono = self._measured_mono, mono
        late_s = 0.0 if last is None else max(0.0, mono - last - EVERY_S)
        self._delays = [(at, delay_s) for at, delay_s in self._delays if mono - at < BLIND_WITHIN_S]
        self._delays.append((mono, late_s))
        blind_s = min(BLIND_WITHIN_S, sum(delay_s for _, delay_s in self._delays))
        return dataclasses.replace(self._sources.hub_metrics(), blind_s=blind_s,
                                   rules_failing=len(self.failing()))

    def failing(self) -> dict[str, str]:
        """Return rules that are not evaluated, or not correctly, with the reason."""
        reasons = {rule_id: "it is no longer valid: edit it" for rule_id
                   in self._rules.rules if rule_id not in self._rules.ready}
        for rule_id, watch in self.evaluator.watches.items():
            if watch.failures >= FAILS_FROM:
                reasons[rule_id] = watch.trouble
            elif self._lacks_minute and self.evaluator.is_of_history(watch):
                reasons[rule_id] = "history did not return the last minute; see the hub's log"
        return reasons

    def _closed_minute(self, now: float) -> Mapping[str, ClosedRuleMinute] | None:
        """Read the minute that has just ended from history, as a rehearsal will read it."""
        minute_request, history = self.evaluator.minutes_request(now), self._sources.history
        if minute_request is None or history is None:
            return None
        self._lacks_minute = False
        try:
            grid = in_thread(lambda: history.minute(minute_request.start, minute_request.ends))
        except Exception as error:
            self._lacks_minute = True
            log.error("rules_without_minute start=%d why=%r", minute_request.start, str(error))
            return None
        return closed_minute(grid, self.fleet, minute_request)

    def _restore_states(self, now: float) -> None:
        """Restore states from before a restart. Retried, as a target may appear some time after the
        hub."""
        if self.restart.is_over or now < self._restore_at:
            return
        self._restore_at = now + RESTORE_EVERY_S
        rows: dict[Of, dict[str, int]] = {}

        def rows_of(of: Of) -> dict[str, int]:
            if of not in rows:
                targets = self.targets[of]
                present = targets.there.copy()
                present[targets.fresh] = False  # a row of another target is emptied first
                rows[of] = {targets.identity(row): row for row in map(int, np.flatnonzero(present))}
            return rows[of]

        self._publish(self.restart.restore(self.evaluator.watches, rows_of, self.alerts, now))

    def _follow(self, mono: float) -> None:
        """Update the GPUs of alerts whose targets have moved."""
        if mono - self._followed_mono < FOLLOW_EVERY_S:
            return
        self._followed_mono = mono

        def gpus_of(of: Of, row: int) -> tuple[str, ...]:
            targets = self.targets[of]
            is_present = row < len(targets.there) and targets.there[row]
            return targets.name(row).gpus if is_present else ()

        self._publish(self.alerts.follow(gpus_of))

    def _publish(self, alerts: Collection[Alert]) -> None:
        self._writer.put(alerts)
        for alert in alerts:
            self._events.dispatch(AlertChanged(alert))

    def forgive(self, mono: float) -> None:
        """Restart the count of silence: the hub itself was stopped, so nodes are not to blame."""
        self.since_mono = mono

    def restart_acting_rules(self, why: str = "reset") -> None:
        """Put rules that act at rest, after the brakes were reset or the clock was set: what held
        before is over."""
        acting = [rule_id for rule_id, ready in self.ready.items()
                  if ready.has_ladder and ready.rule.mode != "observe"]
        restarted = self.evaluator.restart(acting)
        self._publish(self.alerts.drop(restarted, time.time(), why))

    def go_on(self, alerts: Collection[Alert]) -> None:
        """Add alerts as if they had fired before a restart of the hub; open alerts stay as they
        are."""
        open_keys = {(alert.rule_id, alert.target.key) for alert in self.firing()}
        fresh = [alert for alert in alerts if (alert.rule_id, alert.target.key) not in open_keys]
        self.restart.add(fresh)
        self._restore_at = 0.0
        self._publish(fresh)

    # -- for what acts and notifies

    @property
    def is_recovering(self) -> bool:
        """Return whether alerts were open when the hub stopped and no step has checked them
        since."""
        return not self.targets and bool(self.restart.waiting())

    def firing(self) -> list[Alert]:
        return self.alerts.firing()

    def matters_to(self, of: Of, row: int) -> list[tuple[str, str]]:
        """Return the node and id of the tasks that this row stood for at the last step."""
        targets = self.targets.get(of)
        return [] if targets is None else targets.matters_to(row)
