"""Alerts: one rule that fires for one target, from its first moment to its last.

Turns phase changes of the evaluator into records. Pure: the caller names the target of a row.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...fleet.node_budget import HOUR_S, NodeBudget
from .evaluator import RulePhaseChange
from .rule import Of, Severity
from .state_machine import AlertPhase

State = Literal["pending", "firing", "resolving", "ended"]
STATE_OF: dict[AlertPhase, State] = {
    AlertPhase.FIRING: "firing", AlertPhase.RESOLVING: "resolving", AlertPhase.INACTIVE: "ended"}
# More tell nobody anything new, and each is stored for days.
OF_ONE_NODE = ((HOUR_S, 1_000),)
KEPT_S = 3_600.0  # after its end, to explain what rolling windows still show
MOST_KEPT = 1_000
MOVING: tuple[Of, ...] = ("task", "job", "owner")
# Why an alert ended, as shown to people.
ENDED = {"resolved": "the condition is not met any more",
         "memory": "no longer watched: it began longer ago than the rule looks back",
         "gone": "the target is gone", "no data": "there was no data for too long",
         "edited": "its rule was changed", "restart": "the hub was restarted",
         "reset": "the brakes were reset", "clock": "the hub's clock was set"}
BY_ITSELF = frozenset(ENDED[why] for why in ("resolved", "memory", "gone", "no data"))


class AlertTarget(Struct, frozen=True):
    """The lasting identity of a target: `key` is never reused for another."""

    key: str
    node_id: str
    host: str
    place: str = ""  # of a GPU on its Node
    users: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # the GPU itself, or those it uses; empty for a Node and the fleet


class Alert(Struct, frozen=True):
    id: str
    rule_id: str
    version: str
    title: str
    severity: Severity
    of: Of
    target: AlertTarget
    state: State
    since: float  # the condition is met
    fired_at: float
    changed_at: float
    value: float | None
    comebacks: int = 0
    ended_at: float | None = None
    why: str = ""


Name = Callable[[Of, int], AlertTarget]


class FiringAlerts:
    """Alerts that fire now, by rule and row."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Alert] = {}
        self._recently_ended: deque[Alert] = deque(maxlen=MOST_KEPT)
        self._budget = NodeBudget(OF_ONE_NODE)
        self.left_out = 0  # too many of one node

    def charge(self, node_id: str, fired_at: float, count: int) -> None:
        """Charge alerts from before the hub's restart to the budget of their node."""
        self._budget.charge(node_id, [(fired_at, count)])

    def remember_ended(self, alerts: Iterable[Alert]) -> None:
        """Add alerts that ended before the hub's restart, the last to end last: what they explain
        may still show."""
        self._recently_ended.extend(alert for alert in alerts if alert.why in BY_ITSELF)

    def firing(self) -> list[Alert]:
        return list(self._open.values())

    def recently_ended(self, now: float) -> Iterable[Alert]:
        while self._recently_ended and now - (self._recently_ended[0].ended_at or now) > KEPT_S:
            self._recently_ended.popleft()
        return self._recently_ended

    def open(self) -> list[tuple[int, Alert]]:
        """Return open alerts, each with its row."""
        return [(row, alert) for (_, row), alert in self._open.items()]

    def take(self, moved: RulePhaseChange, name: Name) -> Iterable[Alert]:
        """Apply a phase change and return the alerts that began, changed or ended."""
        for row in map(int, moved.moves.rows):
            alert = self._apply_to_row(moved, row, name)
            if alert is not None:
                yield alert

    def _apply_to_row(self, moved: RulePhaseChange, row: int, name: Name) -> Alert | None:
        key = (moved.watch.ready.rule.id, row)
        open_alert, after = self._open.get(key), moved.moves.after
        if open_alert is None:
            if after is not AlertPhase.FIRING:
                return None  # it was only ever pending
            alert = self._new_alert(moved, row, name)
            if alert.target.node_id and not self._budget.take(alert.target.node_id, 1, moved.at):
                self.left_out += 1
                return None
        elif after is AlertPhase.INACTIVE:
            del self._open[key]
            self._recently_ended.append(_end(open_alert, moved.at, _reason(moved, open_alert)))
            return self._recently_ended[-1]
        else:
            alert = replace(
                open_alert, state=STATE_OF[after], changed_at=moved.at, value=_value(moved, row),
                comebacks=open_alert.comebacks + (moved.moves.reason == "breach"))
        self._open[key] = alert
        return alert

    def _new_alert(self, moved: RulePhaseChange, row: int, name: Name) -> Alert:
        ready, machine = moved.watch.ready, moved.watch.machine
        rule, target = ready.rule, name(ready.rule.of, row)
        return Alert(alert_id(rule.id, target.key, moved.at), rule.id, ready.version,
                     rule.title, rule.severity, rule.of, target, "firing",
                     float(machine.since[row]), moved.at, moved.at, _value(moved, row))

    def follow(self, gpus_of: Callable[[Of, int], tuple[str, ...]]) -> list[Alert]:
        """Update the GPUs of alerts whose targets have moved, and return those alerts."""
        updated = []
        for key, alert in self._open.items():
            gpus = gpus_of(alert.of, key[1]) if alert.of in MOVING else ()
            if gpus and gpus != alert.target.gpus:
                updated.append(replace(alert, target=replace(alert.target, gpus=gpus)))
                self._open[key] = updated[-1]
        return updated

    def adopt(self, row: int, alert: Alert) -> None:
        """Add an alert that fired before the hub was restarted and goes on."""
        self._open[alert.rule_id, row] = alert

    def drop(self, rule_ids: Iterable[str], now: float, why: str) -> list[Alert]:
        """End the alerts of rules that start over or were removed."""
        restarted = set(rule_ids)
        dropped = [key for key in self._open if key[0] in restarted]
        return [_end(self._open.pop(key), now, why) for key in dropped]


def alert_id(rule_id: str, key: str, fired_at: float) -> str:
    return f"{rule_id}/{key}/{int(fired_at * 1_000)}"


def _reason(moved: RulePhaseChange, alert: Alert) -> str:
    """Return why an alert ends. What happened longer ago than the rule looks back may be as it was
    still."""
    memory_s = moved.watch.ready.signal.memory_s
    is_forgotten = memory_s is not None and moved.at - alert.since >= memory_s
    return "memory" if is_forgotten and moved.moves.reason == "resolved" else moved.moves.reason


def _end(alert: Alert, now: float, reason: str) -> Alert:
    return replace(alert, state="ended", ended_at=now, changed_at=now,
                   why=ENDED.get(reason, reason))


def ended_by_restart(alert: Alert, now: float) -> Alert:
    return _end(alert, now, "restart")


def _value(moved: RulePhaseChange, row: int) -> float | None:
    value = float(moved.watch.last_values.values[row])
    return None if math.isnan(value) else value
