"""The record of a rehearsal: what was asked, what would have been, and who has approved it."""

from typing import Literal

from msgspec import Struct

from ..core.firing_alerts import AlertTarget
from ..core.rule import Rule
from .engine import RehearsedAlert

State = Literal["running", "done", "failed"]
MOST_LISTED = 1_000


class RehearsalAlertRecord(Struct, frozen=True):
    """One alert that there would have been."""

    target: AlertTarget
    since: float
    fired_at: float
    ended_at: float | None  # None: it was still so at the end of the span
    value: float | None
    comebacks: int
    acts: tuple[tuple[str, float], ...]


class RehearsalVictim(Struct, frozen=True):
    """Whom its ladder would have reached. `gpu_hours`: what it had held by then, as far as history
    goes back; that is what would be lost. `why`: it could not have been reached."""

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


def told(alert: RehearsedAlert, target: AlertTarget) -> RehearsalAlertRecord:
    return RehearsalAlertRecord(target, alert.since, alert.fired_at, alert.ended_at, alert.value,
                                alert.comebacks, alert.acts)
