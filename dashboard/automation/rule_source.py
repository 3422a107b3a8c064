"""Rules as a source of intents: what they want done about firing alerts, and everything that holds
them back."""

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import chain

import numpy as np

from gpudeck import rungs
from gpudeck.actions import MetricBound, RuleCondition
from gpudeck.ladder import LadderRung, So

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.pending_alerts import pending_alerts
from ..alerts.core.promotion import effective
from ..alerts.core.rule import ACTED_ON, CompiledRule
from ..alerts.core.rule_signal import RuleSignal, RuleThreshold
from ..alerts.core.rule_tracker import RuleTracker
from ..alerts.core.silence import Mute, Silence
from ..alerts.core.state_machine import EvaluationHealth
from ..alerts.service import AlertService
from ..alerts.silences import SilenceService
from ..alerts.views import NO_DETAIL, AlertDetail
from ..fleet.fleet import Node
from ..fleet.mig import NO_PARENT
from .brakes import BrakeService
from .holds import HubHolds
from .intents import ActionIntent, IntentMode
from .ladder_runs import LadderRun
from .ladder_state import RETURN_WITHIN_S
from .rule_cordons import CordonRequest
from .service import LadderService
from .views import ladder_view

BOUNDS = ("sm_pct", "busy_pct", "mem_used_bytes", "age_s")
PLAIN = re.compile(r"\s*(?:(?:avg|min|max)\s*\(\s*)?([a-z_]+)\s*"
                   r"(?:,\s*\d+(?:s|min|m|h|d)\s*\))?\s*")
MODES: Mapping[str, IntentMode] = {"dry_run": "dry_run", "confirm": "confirm", "auto": "auto"}
LOOK_SLACK_S = 5.0
SEEN_WITHIN_S = 30.0  # two periods of the numbers that are read most rarely
SECONDS = re.compile(r"\b\d+ s\b")


@dataclass(frozen=True, slots=True)
class RuleIntentPlanner:
    """The alerts of one moment, and the actions that their rules want."""

    alerts: AlertService
    now: float
    mono: float
    open: Sequence[tuple[int, Alert]]  # by row
    recently_ended: Iterable[Alert]
    silences: Sequence[Silence]
    hub_holds: HubHolds
    # Monotonic: by then the targets from before a restart have been seen again.
    returned_by: float
    _modes: dict[str, IntentMode | None] = field(default_factory=dict)
    _matters: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _gpus_of: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    _pending: dict[str, list[tuple[int, Alert]]] = field(default_factory=dict)
    # What all intents of one rule have in common.
    _templates: dict[str, tuple[tuple[LadderRung, ...], RuleCondition]] = field(
        default_factory=dict)

    def intents(self) -> Iterator[ActionIntent]:
        for row, alert in self.open:
            mode = self.mode(alert.rule_id)
            if mode is not None:
                yield self._intent(row, alert, self.alerts.ready[alert.rule_id], mode)

    def cordons(self) -> Iterator[CordonRequest]:
        """Yield requests for cordons; for a MIG instance its board is cordoned."""
        for row, alert in self.open:
            mode, ready = self.mode(alert.rule_id), self.alerts.ready.get(alert.rule_id)
            slot = self.alerts.fleet.slot_on(alert.target.node_id, alert.target.key)
            if (ready is None or not ready.rule.cordon or mode is None or slot is None
                or self._condition_met(row, alert) != "yes"):
                continue
            parent, rule = int(self.alerts.fleet.parent[slot]), ready.rule
            yield CordonRequest(
                f"rule {rule.id}", key_of(alert)[0].partition(" ")[2], alert.target.node_id,
                alert.target.host, self.alerts.fleet.uuids[slot if parent == NO_PARENT else parent],
                alert.id, condition(ready).text, mode,
                (*self.holds(row, alert, self.inhibitors(row, alert)), *self.mutes(alert)),
                rule.budget.acts, float(ready.budget_s))

    def mode(self, rule_id: str) -> IntentMode | None:
        """Return the mode of a rule; None: it only observes, or has nothing to do."""
        if rule_id not in self._modes:
            ready = self.alerts.ready.get(rule_id)
            self._modes[rule_id] = None if ready is None or not ready.has_ladder else MODES.get(
                effective(ready.rule, self.now))
        return self._modes[rule_id]

    def _intent(self, row: int, alert: Alert, ready: CompiledRule, mode: IntentMode
                ) -> ActionIntent:
        rule, target, task_ids = ready.rule, alert.target, self.task_ids(row, alert)
        if rule.id not in self._templates:
            self._templates[rule.id] = tuple(
                LadderRung(do, float(after_s)) for do, after_s in ready.steps), condition(ready)
        rungs, rule_condition = self._templates[rule.id]
        cause, episode = key_of(alert)
        return ActionIntent(
            cause=cause, source=f"rule {rule.id}", title=rule.title, target=episode,
            node_id=target.node_id, host=target.host, task_ids=task_ids,
            owner=target.users[0] if len(target.users) == 1 else None, rungs=rungs, mode=mode,
            condition_met=self._condition_met(row, alert),
            sample_age_s=self._age_s(alert, task_ids), since=alert.fired_at,
            sentence=rule_condition.text, acts=rule.budget.acts,
            within_s=float(ready.budget_s),
            holds=tuple(self.holds(row, alert, self.inhibitors(row, alert))),
            mutes=tuple(self.mutes(alert)),
            keep=self.hub_holds.keep_of(target.node_id, task_ids) if task_ids else None,
            alert_id=alert.id, condition=rule_condition, place=place_of(alert),
            goes_on=self._goes_on(row, alert), skips_refused=rule.when_refused == "skip")

    def _goes_on(self, row: int, alert: Alert) -> bool:
        """Return whether the condition has been met since the start of the hub. A target that comes
        back later was not observed in between: it starts over."""
        watch = self.alerts.evaluator.watches.get(alert.rule_id)
        if watch is None or watch.machine.has_rested[row]:
            return False
        ready, span_s = watch.ready, _span_s(watch.ready)
        since_mono = self.mono - (self.now - alert.since)
        return since_mono <= self.returned_by + span_s + 2 * ready.period_s

    def _condition_met(self, row: int, alert: Alert) -> So:
        watch = self.alerts.evaluator.watches.get(alert.rule_id)
        health = () if watch is None else watch.machine.health
        if row >= len(health) or health[row] != EvaluationHealth.OK:
            return "unknown"
        return "yes" if alert.state == "firing" else "clearing"

    # -- targets

    def task_ids(self, row: int, alert: Alert) -> tuple[str, ...]:
        return tuple(task_id for node_id, task_id in self._tasks(row, alert)
                     if node_id == alert.target.node_id)

    def _tasks(self, row: int, alert: Alert) -> list[tuple[str, str]]:
        """Return all tasks that would be acted on; nothing can be ended for a GPU or a node."""
        if alert.id not in self._matters:
            self._matters[alert.id] = (
                self.alerts.matters_to(alert.of, row) if alert.of in ACTED_ON else [])
        return self._matters[alert.id]

    def _age_s(self, alert: Alert, task_ids: tuple[str, ...]) -> float | None:
        """Return the age of the oldest number that counts; 0 for targets without GPUs, as those are
        known now."""
        if alert.of not in ("gpu", "task", "job"):
            return 0.0
        node = self.alerts.fleet.nodes.get(alert.target.node_id)
        if node is None:
            return None
        slots = self._slots(node, alert, task_ids)
        age_s = max((self.mono - float(self.alerts.fleet.sampled_mono[slot]) for slot in slots),
                    default=math.inf)
        return max(age_s, 0.0) if math.isfinite(age_s) else None

    def _slots(self, node: Node, alert: Alert, task_ids: tuple[str, ...]) -> set[int]:
        if alert.of == "gpu":
            slot = self.alerts.fleet.slot_on(node.hello.node_id, alert.target.key)
            return set() if slot is None else {slot}
        order = [] if node.listing is None else node.listing.order
        return {order[use.gpu] for use in node.uses
                if use.task_id in task_ids and use.gpu < len(order)}

    # -- reasons not to act

    def holds(self, row: int, alert: Alert, inhibitors: Iterable[Alert]) -> Iterator[str]:
        for silence in self._silences_of(alert):
            if silence.holds_acts:
                yield _silence_text(silence)
        for other in inhibitors:
            yield f"inhibited by {other.title!r} on {other.target.host or 'the fleet'}"
        if self.mode(alert.rule_id) is None:
            return  # nothing would be done anyway
        yield from self._unreliable(row, alert)
        if (reason := self.hub_holds.on_node(alert.target.node_id)) is not None:
            yield reason
        watch = self.alerts.evaluator.watches.get(alert.rule_id)
        if watch is not None:
            yield from watch.holds(row, self.now)
        # An action stays on its node.
        elsewhere = {node_id for node_id, _ in self._tasks(row, alert)} - {alert.target.node_id}
        for hold in rungs.by_nodes("end", len(elsewhere)):
            yield hold.sentence

    def mutes(self, alert: Alert) -> Iterator[str]:
        return (_silence_text(silence) for silence in self._silences_of(alert) if silence.mutes)

    def is_muted(self, row: int | None, alert: Alert) -> bool:
        """Return whether no notification is sent for it now; row None: it has been resolved."""
        return any(True for _ in self.mutes(alert)) or (row is not None and (
            any(True for _ in self.inhibitors(row, alert)) or self._awaits_cause(row, alert)))

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

    def _silences_of(self, alert: Alert) -> Iterator[Silence]:
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
        for other_row, other in chain(self.open, past):
            if (other.rule_id in ready.rule.inhibited_by
                    and self._stands_above(other_row, other, row, alert)):
                yield other

    def _stands_above(self, other_row: int | None, other: Alert, row: int, alert: Alert) -> bool:
        """Return whether an alert is above another in the fleet; `other_row` None: it has ended."""
        match other.of:
            case "fleet":
                return True
            case "owner":
                return bool(set(other.target.users) & set(alert.target.users))
            case "node":
                return other.target.node_id in {alert.target.node_id} | {
                    node_id for node_id, _ in self._tasks(row, alert)}
            case "gpu":
                return (other.target.node_id, other.target.key) in self._gpus(row, alert)
            case _ if alert.of == "gpu":
                return (alert.target.node_id, alert.target.key) in (
                    {(other.target.node_id, uuid) for uuid in other.target.gpus}
                    if other_row is None else self._gpus(other_row, other))
            case _:
                return (other.target.node_id, other.target.key) == (
                    alert.target.node_id, alert.target.key)

    def _gpus(self, row: int, alert: Alert) -> set[tuple[str, str]]:
        """Return the nodes and UUIDs of its GPUs, on all nodes of a job, and the boards of MIG
        instances."""
        if alert.id in self._gpus_of:
            return self._gpus_of[alert.id]
        fleet, gpus = self.alerts.fleet, {(alert.target.node_id, alert.target.key)}
        for node_id, task_ids in self._by_node(row, alert).items():
            node = fleet.nodes.get(node_id)
            if node is not None:
                slots = self._slots(node, alert, task_ids)
                boards = {int(fleet.parent[slot]) for slot in slots} - {NO_PARENT}
                gpus |= {(node_id, fleet.uuids[slot]) for slot in slots | boards}
        self._gpus_of[alert.id] = gpus
        return gpus

    def _by_node(self, row: int, alert: Alert) -> dict[str, tuple[str, ...]]:
        task_ids: dict[str, tuple[str, ...]] = {alert.target.node_id: ()}
        for node_id, task_id in self._tasks(row, alert):
            task_ids[node_id] = (*task_ids.get(node_id, ()), task_id)
        return task_ids

    def _unreliable(self, row: int, alert: Alert) -> Iterator[str]:
        """Yield reasons that hold for all rules: below a silent node, a missing driver or a lost
        GPU, nothing is sure."""
        node = self.alerts.fleet.nodes.get(alert.target.node_id)
        if node is None:
            return
        if not node.connected or node.state != "live":
            yield "its node is not connected at the moment"
        elif node.beat is not None and node.beat.reader != "ok":
            yield f"its node does not read its GPUs (reader: {node.beat.reader})"
        slots = self._slots(node, alert, self.task_ids(row, alert))
        if any(self.alerts.fleet.reported[slot] == 2 for slot in slots):
            yield "one of its GPUs is lost"
        if any(self.alerts.fleet.reported[slot] == 3 for slot in slots):
            yield "every driver call for one of its GPUs fails"


def _explains(ended_at: float, ready: CompiledRule, alert: Alert, now: float) -> bool:
    """Return whether a cause that ended at `ended_at` may explain this alert."""
    looks_s = 2 * ready.period_s + LOOK_SLACK_S
    return (alert.since <= ended_at + looks_s
            and now <= ended_at + _span_s(ready) + ready.keep_s + looks_s + SEEN_WITHIN_S)


def _span_s(ready: CompiledRule) -> float:
    return max(signal.span_s for signal in (ready.signal, *(signal_ for signal_, _ in ready.where)))


def key_of(alert: Alert) -> tuple[str, str]:
    """Return the key of the climb for this alert; another episode is another climb."""
    return (f"rule {alert.rule_id}@{alert.version[:8]}",
            f"{place_of(alert)} {int(alert.fired_at * 1_000)}")


def place_of(alert: Alert) -> str:
    return f"{alert.target.node_id} {alert.target.key}"


def _silence_text(silence: Silence) -> str:
    until = datetime.fromtimestamp(silence.until, UTC)
    return f"silenced by {silence.by} until {until:%Y-%m-%d %H:%M} UTC: {silence.because}"


def _sentence(ready: CompiledRule) -> str:
    rule = ready.rule
    hold = f" for {rule.for_}" if ready.for_s else ""
    further = "".join(f", and {text}" for text in rule.where)
    return f"{rule.title}: {rule.signal} {rule.fire}{hold}{further}"[:400]


def condition(ready: CompiledRule) -> RuleCondition:
    """Return as much of the condition as an agent can check in one sample of the task."""
    bounds = [] if ready.rule.of != "task" else [
        bound for signal, limit in ((ready.signal, ready.fire), *ready.where)
        if (bound := _bound(signal, limit)) is not None]
    return RuleCondition(tuple(bounds[:8]), _sentence(ready))


def _bound(signal: RuleSignal, limit: RuleThreshold) -> MetricBound | None:
    match_ = PLAIN.fullmatch(signal.text)
    if match_ is None or match_[1] not in BOUNDS or not 0 <= limit.number <= 1e18:
        return None
    op = "=" if limit.op == "==" else limit.op
    return MetricBound(match_[1], op, limit.number)  # type: ignore[arg-type]


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
        for _, alert in planner.open:
            if planner.mode(alert.rule_id) is not None:
                fired_at.setdefault(alert.rule_id, []).append(alert.fired_at)
        for rule_id, began in fired_at.items():
            if (watch := self.alerts.evaluator.watches.get(rule_id)) is not None:
                self.brakes.look_for_storm(f"rule {rule_id}", began, targets_of(watch))
        return planner.intents()

    def _planner(self) -> RuleIntentPlanner:
        now = time.time()
        alerts = self.alerts.alerts
        return RuleIntentPlanner(self.alerts, now, time.monotonic(), alerts.open(),
                                 alerts.recently_ended(now), self.silences.active(now),
                                 self.hub_holds, self.began_mono + RETURN_WITHIN_S)

    def cordons(self) -> Iterable[CordonRequest]:
        return self._planner().cordons()

    def mute(self) -> Mute:
        """Return a test for alerts without notifications now: silenced, or suppressed by another
        alert."""
        @cache
        def moment() -> tuple[RuleIntentPlanner, dict[str, int]]:  # often not needed
            planner = self._planner()
            return planner, {alert.id: row for row, alert in planner.open}

        def is_muted(alert: Alert) -> bool:
            planner, rows = moment()
            return planner.is_muted(rows.get(alert.id), alert)

        return is_muted

    def details_of(self, alert: Alert | None = None) -> dict[str, AlertDetail]:
        """Return the holds and the inhibitors of each firing alert, also of rules that only
        observe; or of this one."""
        planner = self._planner()
        details = {}
        for row, firing in planner.open:
            if alert is None or firing.id == alert.id:
                inhibitors = [*planner.inhibitors(row, firing)]
                details[firing.id] = AlertDetail([*planner.holds(row, firing, inhibitors)],
                                                 [other.id for other in inhibitors])
        return details


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


def targets_of(watch: RuleTracker) -> int:
    """Return the number of targets that are in scope and present."""
    size = len(watch.last_values.scope)
    return int((watch.last_values.scope & ~np.isnan(watch.machine.seen_at[:size])).sum())
