"""Alerts: one Rule that fires for one target, from its first moment to its last.

What the evaluator says moved becomes records here. Pure: who a row is, is asked of the caller.
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
# More than this are no news to anybody, and each is kept for days.
OF_ONE_NODE = ((HOUR_S, 1_000),)
KEPT_S = 3_600.0  # after its end, to explain what others see in their windows still
MOVING: tuple[Of, ...] = ("task", "job", "owner")
# Why an alert ended, in words.
ENDED = {"resolved": "the condition is not met any more", "gone": "the target is gone",
         "no data": "there was no data for too long", "edited": "its rule was changed",
         "restart": "the hub was restarted",
         "reset": "the brakes were reset", "clock": "the hub's clock was set"}


class AlertTarget(Struct, frozen=True):
    """Who a target is, for good: `key` is never another's."""

    key: str
    node_id: str
    host: str
    place: str = ""  # of a GPU on its Node
    users: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # it, or those it is on; of a Node and the fleet not said


class Alert(Struct, frozen=True):
    id: str
    rule_id: str
    version: str
    title: str
    severity: Severity
    of: Of
    target: AlertTarget
    state: State
    since: float  # it is so
    fired_at: float
    changed_at: float
    value: float | None
    comebacks: int = 0
    ended_at: float | None = None
    why: str = ""


Name = Callable[[Of, int], AlertTarget]


class FiringAlerts:
    """Those that fire now, by Rule and row."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Alert] = {}
        self._over: deque[Alert] = deque(maxlen=1_000)
        self._budget = NodeBudget(OF_ONE_NODE)
        self.left_out = 0  # there were too many of one node

    def charge(self, node_id: str, fired_at: float, count: int) -> None:
        """Those of before the hub's restart."""
        self._budget.charge(node_id, [(fired_at, count)])

    def firing(self) -> list[Alert]:
        return list(self._open.values())

    def ended_of_late(self, now: float) -> Iterable[Alert]:
        while self._over and now - (self._over[0].ended_at or now) > KEPT_S:
            self._over.popleft()
        return self._over

    def open(self) -> list[tuple[int, Alert]]:
        """Each with its row."""
        return [(row, alert) for (_, row), alert in self._open.items()]

    def take(self, moved: RulePhaseChange, name: Name) -> Iterable[Alert]:
        """Those that began, changed or ended."""
        for row in map(int, moved.moves.rows):
            found = self._moved(moved, row, name)
            if found is not None:
                yield found

    def _moved(self, moved: RulePhaseChange, row: int, name: Name) -> Alert | None:
        key = (moved.watch.ready.rule.id, row)
        known, after = self._open.get(key), moved.moves.after
        if known is None:
            if after is not AlertPhase.FIRING:
                return None  # it was pending, and that is all it was
            alert = self._begun(moved, row, name)
            if alert.target.node_id and not self._budget.take(alert.target.node_id, 1, moved.at):
                self.left_out += 1
                return None
        elif after is AlertPhase.INACTIVE:
            del self._open[key]
            self._over.append(_ended(known, moved.at, moved.moves.reason))
            return self._over[-1]
        else:
            alert = replace(
                known, state=STATE_OF[after], changed_at=moved.at, value=_value(moved, row),
                comebacks=known.comebacks + (moved.moves.reason == "breach"))
        self._open[key] = alert
        return alert

    def _begun(self, moved: RulePhaseChange, row: int, name: Name) -> Alert:
        ready, machine = moved.watch.ready, moved.watch.machine
        rule, target = ready.rule, name(ready.rule.of, row)
        return Alert(alert_id(rule.id, target.key, moved.at), rule.id, ready.version,
                     rule.title, rule.severity, rule.of, target, "firing",
                     float(machine.since[row]), moved.at, moved.at, _value(moved, row))

    def follow(self, gpus_of: Callable[[Of, int], tuple[str, ...]]) -> list[Alert]:
        """Who moves on to other GPUs takes its Alert along."""
        found = []
        for key, alert in self._open.items():
            gpus = gpus_of(alert.of, key[1]) if alert.of in MOVING else ()
            if gpus and gpus != alert.target.gpus:
                found.append(replace(alert, target=replace(alert.target, gpus=gpus)))
                self._open[key] = found[-1]
        return found

    def adopt(self, row: int, alert: Alert) -> None:
        """One that fired before the hub was restarted, and goes on."""
        self._open[alert.rule_id, row] = alert

    def drop(self, rule_ids: Iterable[str], now: float, why: str) -> list[Alert]:
        """These Rules start over or were removed."""
        gone = set(rule_ids)
        dropped = [key for key in self._open if key[0] in gone]
        return [_ended(self._open.pop(key), now, why) for key in dropped]


def alert_id(rule_id: str, key: str, fired_at: float) -> str:
    return f"{rule_id}/{key}/{int(fired_at * 1_000)}"


def _ended(alert: Alert, now: float, reason: str) -> Alert:
    return replace(alert, state="ended", ended_at=now, changed_at=now,
                   why=ENDED.get(reason, reason))


def ended_by_restart(alert: Alert, now: float) -> Alert:
    return _ended(alert, now, "restart")


def _value(moved: RulePhaseChange, row: int) -> float | None:
    value = float(moved.watch.seen.values[row])
    return None if math.isnan(value) else value
