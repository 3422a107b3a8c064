"""The record of a rehearsal: the request, the result, and who approved it."""

from typing import Literal

from msgspec import Struct

from ..core.firing_alerts import AlertTarget
from ..core.rule import Rule
from .engine import RehearsedAlert

State = Literal["running", "done", "failed"]
MOST_LISTED = 1_000


class RehearsalAlertRecord(Struct, frozen=True):
    """An alert that there would have been."""

    target: AlertTarget
    since: float
    fired_at: float
    ended_at: float | None  # None: still firing at the end of the span
    value: float | None
    comebacks: int
    acts: tuple[tuple[str, float], ...]


class RehearsalVictim(Struct, frozen=True):
    """A target that the ladder would have reached. `gpu_hours`: what it had held by then, as far
    back as history goes; that would be lost. `why`: reason why it could not have been reached."""

    target: AlertTarget
    do: str
    at: float
    gpu_hours: float | None
    why: str = ""


class RehearsalRecord(Struct, frozen=True):
    id: str
    rule: Rule
    rule_id: str
    rule_version: str
    start: float
    end: float
    by: str
    asked_at: float
    grain_s: int  # each second, or closed minutes
    state: State = "running"
    progress: float = 0.0
    why: str = ""
    targets: int = 0
    alerts_count: int = 0
    alerts: tuple[RehearsalAlertRecord, ...] = ()
    victims_count: int = 0
    victims: tuple[RehearsalVictim, ...] = ()
    gpu_hours: float | None = None
    refused_count: int = 0
    refused: tuple[RehearsalVictim, ...] = ()
    approved_by: str | None = None
    approved_at: float | None = None
    off_by_s: int = 0  # by how much life may differ; 0: it is the same computation


def alert_record(alert: RehearsedAlert, target: AlertTarget) -> RehearsalAlertRecord:
    return RehearsalAlertRecord(target, alert.since, alert.fired_at, alert.ended_at, alert.value,
                                alert.comebacks, alert.acts)
