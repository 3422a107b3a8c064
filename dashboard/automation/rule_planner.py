"""Actions that rules want done about firing alerts, and everything that holds them back."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpudeck.contract import rungs
from gpudeck.contract.actions import MetricBound, RuleCondition
from gpudeck.contract.ladder import LadderRung, So

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.measure import measure_of_limit
from ..alerts.core.promotion import effective
from ..alerts.core.rule import CompiledRule
from ..alerts.core.rule_signal import RuleSignal, RuleThreshold
from ..alerts.core.state_machine import EvaluationHealth
from ..alerts.service import AlertService
from ..fleet.mig import NO_PARENT
from .alert_mutes import AlertMutes, silence_text, span_s
from .alert_targets import AlertTargets
from .holds import HubHolds
from .intents import ActionIntent, IntentMode
from .rule_cordons import CordonRequest

BOUNDS = ("sm_pct", "busy_pct", "mem_used_bytes", "age_s")
PLAIN = re.compile(r"\s*(?:(?:avg|min|max)\s*\(\s*)?([a-z_]+)\s*"
                   r"(?:,\s*\d+(?:s|min|m|h|d)\s*\))?\s*")
MODES: Mapping[str, IntentMode] = {"dry_run": "dry_run", "confirm": "confirm", "auto": "auto"}


@dataclass(frozen=True, slots=True)
class RuleIntentPlanner:
    """The actions that rules want at one moment."""

    alerts: AlertService
    targets: AlertTargets
    mutes: AlertMutes
    hub_holds: HubHolds
    now: float
    # Monotonic: by then the targets from before a restart have been seen again.
    returned_by: float
    _modes: dict[str, IntentMode | None] = field(default_factory=dict)
    # What all intents of one rule have in common.
    _templates: dict[str, tuple[tuple[LadderRung, ...], RuleCondition]] = field(
        default_factory=dict)

    def intents(self) -> Iterator[ActionIntent]:
        for row, alert in self.targets.open:
            mode = self.mode(alert.rule_id)
            if mode is not None:
                yield self._intent(row, alert, self.alerts.ready[alert.rule_id], mode)

    def cordons(self) -> Iterator[CordonRequest]:
        """Yield requests for cordons; for a MIG instance its board is cordoned."""
        for row, alert in self.targets.open:
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
                (*self.holds(row, alert, self.mutes.inhibitors(row, alert)),
                 *self.mutes.mutes(alert)),
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
        rule, target, task_ids = ready.rule, alert.target, self.targets.task_ids(row, alert)
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
            sample_age_s=self.targets.age_s(alert, task_ids), since=alert.fired_at,
            sentence=rule_condition.text, acts=rule.budget.acts,
            within_s=float(ready.budget_s),
            holds=tuple(self.holds(row, alert, self.mutes.inhibitors(row, alert))),
            mutes=tuple(self.mutes.mutes(alert)),
            keep=self.hub_holds.keep_of(target.node_id, task_ids) if task_ids else None,
            alert_id=alert.id, condition=rule_condition, place=place_of(alert),
            goes_on=self._goes_on(row, alert), skips_refused=rule.when_refused == "skip")

    def _goes_on(self, row: int, alert: Alert) -> bool:
        """Return whether the condition has been met since the start of the hub. A target that comes
        back later was not observed in between: it starts over."""
        watch = self.alerts.evaluator.watches.get(alert.rule_id)
        if watch is None or watch.machine.has_rested[row]:
            return False
        since_mono = self.targets.mono - (self.now - alert.since)
        return (since_mono
                <= self.returned_by + span_s(watch.ready) + 2 * watch.ready.period_s)

    def _condition_met(self, row: int, alert: Alert) -> So:
        watch = self.alerts.evaluator.watches.get(alert.rule_id)
        health = () if watch is None else watch.machine.health
        if row >= len(health) or health[row] != EvaluationHealth.OK:
            return "unknown"
        return "yes" if alert.state == "firing" else "clearing"

    def holds(self, row: int, alert: Alert, inhibitors: Iterable[Alert]) -> Iterator[str]:
        for silence in self.mutes.silences_of(alert):
            if silence.holds_acts:
                yield silence_text(silence)
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
        nodes = {node_id for node_id, _ in self.targets.tasks(row, alert)}
        elsewhere = nodes - {alert.target.node_id}
        for hold in rungs.by_nodes("end", len(elsewhere)):
            yield hold.sentence

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
        slots = self.targets.slots(node, alert, self.targets.task_ids(row, alert))
        if any(self.alerts.fleet.reported[slot] == 2 for slot in slots):
            yield "one of its GPUs is lost"
        if any(self.alerts.fleet.reported[slot] == 3 for slot in slots):
            yield "every driver call for one of its GPUs fails"


def key_of(alert: Alert) -> tuple[str, str]:
    """Return the key of the climb for this alert; another episode is another climb."""
    return (f"rule {alert.rule_id}@{alert.version[:8]}",
            f"{place_of(alert)} {int(alert.fired_at * 1_000)}")


def place_of(alert: Alert) -> str:
    return f"{alert.target.node_id} {alert.target.key}"


def _sentence(ready: CompiledRule) -> str:
    rule = ready.rule
    hold = f" for {rule.for_}" if ready.for_s else ""
    further = "".join(f", and {_condition_words(*bound)}" for bound in ready.where)
    return f"{rule.title}: {_condition_words(ready.signal, ready.fire)}{hold}{further}"[:400]


def _condition_words(signal: RuleSignal, limit: RuleThreshold) -> str:
    return f"{signal.text} {measure_of_limit(signal, limit).limit_words()}"


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
