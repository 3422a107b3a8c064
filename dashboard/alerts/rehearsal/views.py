"""Rehearsals as the API shows them. Pure."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..core.rule import Of, Rule, Severity
from .record import RehearsalAlertRecord, RehearsalRecord, RehearsalVictim, State

Seconds = Annotated[float, Meta(ge=0, le=1e11)]


class NewBacktest(Struct, forbid_unknown_fields=True):
    """`rule`: as it is being written; it needs not be kept."""

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
    """`why`: of one of `refused`, by what its node permits now."""

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
    (`grain_s` 60). A rule that holds less than five minutes looks at every second in life: of GPUs
    those are read, as long as they are kept, and of tasks and jobs history has their minutes."""

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
    """Without their alerts, victims and refusals: one by one they have them."""

    items: list[BacktestView]


def backtest_view(of: RehearsalRecord, is_short: bool = False) -> BacktestView:
    return BacktestView(
        of.id, of.rule, of.rule_version, of.rule.of, of.rule.severity, of.start, of.end, of.by,
        of.asked_at, of.grain_s, of.off_by_s, of.state, of.progress, of.why, of.targets,
        of.alerts_count,
        [] if is_short else [_alert(each) for each in of.alerts], of.victims_count,
        [] if is_short else [_victim(each) for each in of.victims], of.gpu_hours, of.refused_count,
        [] if is_short else [_victim(each) for each in of.refused], of.approved_by, of.approved_at)


def _alert(of: RehearsalAlertRecord) -> RehearsalAlertView:
    return RehearsalAlertView(of.target.key, of.target.node_id, of.target.host, of.target.place,
                              [*of.target.users], of.since, of.fired_at, of.ended_at, of.value,
                              of.comebacks, [*of.acts])


def _victim(of: RehearsalVictim) -> RehearsalVictimView:
    return RehearsalVictimView(of.target.key, of.target.node_id, of.target.host, [*of.target.users],
                               of.do, of.at, of.gpu_hours, of.why)
