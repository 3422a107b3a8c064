"""Rehearsals as the API shows them. Pure."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..core.rule import Of, Rule, Severity
from .record import RehearsalAlertRecord, RehearsalRecord, RehearsalVictim, State

Seconds = Annotated[float, Meta(ge=0, le=1e11)]


class NewBacktest(Struct, forbid_unknown_fields=True):
    """`rule`: as it is being written; it does not have to be stored."""

    rule: dict[str, Any]
    start: Seconds
    end: Seconds


class RehearsalAlertView(Struct):
    target: str
    node: str
    host: str
    place: str
    users: list[str]
    since: float
    fired_at: float
    ended_at: float | None
    value: float | None
    comebacks: int
    acts: list[tuple[str, float]]


class RehearsalVictimView(Struct):
    """`why`: for one in `refused`, the reason by what its node permits now."""

    target: str
    node: str
    host: str
    users: list[str]
    do: str
    at: float
    gpu_hours: float | None
    why: str


class BacktestView(Struct):
    """`off_by_s`: by how much life may differ. 0: it is the same computation, over closed minutes
    (`grain_s` 60). A live rule that holds less than five minutes reads every second: for GPUs those
    seconds are rehearsed for as long as history keeps them, for tasks and jobs it has their
    minutes. Of an owner it does not keep when in a minute a task began or ended: always 60."""

    id: str
    rule: Rule
    rule_version: str
    of: Of
    severity: Severity
    start: float
    end: float
    by: str
    asked_at: float
    grain_s: int
    off_by_s: int
    state: State
    progress: float
    why: str
    targets: int
    alerts_count: int
    alerts: list[RehearsalAlertView]
    victims_count: int
    victims: list[RehearsalVictimView]
    gpu_hours: float | None
    refused_count: int
    refused: list[RehearsalVictimView]
    approved_by: str | None
    approved_at: float | None


class BacktestList(Struct):
    """Rehearsals without alerts, victims and refusals; `GET` of one has them."""

    items: list[BacktestView]


def backtest_view(record: RehearsalRecord, is_short: bool = False) -> BacktestView:
    return BacktestView(
        record.id, record.rule, record.rule_version, record.rule.of, record.rule.severity,
        record.start, record.end, record.by, record.asked_at, record.grain_s, record.off_by_s,
        record.state, record.progress, record.why, record.targets, record.alerts_count,
        [] if is_short else [_alert(alert) for alert in record.alerts], record.victims_count,
        [] if is_short else [_victim(victim) for victim in record.victims], record.gpu_hours,
        record.refused_count,
        [] if is_short else [_victim(victim) for victim in record.refused], record.approved_by,
        record.approved_at)


def _alert(alert: RehearsalAlertRecord) -> RehearsalAlertView:
    target = alert.target
    return RehearsalAlertView(target.key, target.node_id, target.host, target.place,
                              [*target.users], alert.since, alert.fired_at, alert.ended_at,
                              alert.value, alert.comebacks, [*alert.acts])


def _victim(victim: RehearsalVictim) -> RehearsalVictimView:
    target = victim.target
    return RehearsalVictimView(target.key, target.node_id, target.host, [*target.users],
                               victim.do, victim.at, victim.gpu_hours, victim.why)
