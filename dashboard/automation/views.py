"""Ladders, brakes and maintenance, as the API and the pages show them. Pure."""

from collections.abc import Callable, Iterable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from gpudeck.ladder import LadderClimb

from ..alerts.core.rule import Mode
from ..alerts.views import CompletedStepView, LadderView, RungView
from . import brake_limits
from .brake_limits import BrakeRequest, BrakeState, BrakeTrip
from .intents import WAITS, ActionIntent
from .store import MaintenanceWindow

Text = Annotated[str, Meta(max_length=400)]
Word = Annotated[str, Meta(max_length=1_024)]
STORMS_SAID = 2


def ladder_view(climb: LadderClimb, want: ActionIntent, holds: list[str],
                utc: Callable[[float], float]) -> LadderView:
    rung = climb.next_rung if climb.is_open else None
    is_due = climb.state == "waiting"
    return LadderView(
        want.mode, climb.state, None if rung is None else rung.do,
        utc(climb.due_at) if is_due and rung is not None else None, climb.why,
        is_due and holds == [WAITS], [*want.task_ids],
        [RungView(each.do, each.after_s) for each in climb.rungs],
        [CompletedStepView(each.do, utc(each.at),
                           None if each.ended_at is None else utc(each.ended_at),
                           each.outcome, each.sentence) for each in climb.done])


class BrakeView(brake_limits.Brake, frozen=True):
    """`used` of `most`; both None where it is not about a number."""

    holds: bool
    used: int | None
    most: int | None
    sentence: str


class StormTripView(Struct):
    source: str
    trip: BrakeTrip


class CountedActionView(Struct):
    at: float
    source: str
    node: str


class BrakesView(Struct):
    breaker: BrakeTrip | None
    storms: list[StormTripView]
    brakes: list[BrakeView]
    in_flight: list[str]  # nodes
    spent: list[CountedActionView]  # of the last hour, newest first


def brakes_view(state: BrakeState, nodes: int, busy: Iterable[str], sees: Callable[[str], bool],
                now: float) -> BrakesView:
    """Of nodes that are not seen, the numbers alone."""
    busy = sorted(busy)
    used: dict[str, int] = {"fleet": brake_limits.count(state, now, brake_limits.FLEET_S),
            "pace": brake_limits.count(state, now, brake_limits.PACE_S), "node": len(busy),
            "storm": len(state.storms), "breaker": int(state.breaker is not None)}
    most: dict[str, int] = {"fleet": brake_limits.fleet_most(nodes), "pace": 1}
    fleet_ask = BrakeRequest("", "", 1, 0.0, nodes, frozenset())
    said: dict[str, str] = {
        each.brake: each.sentence for each in brake_limits.holds(state, fleet_ask, now)
        if each.brake != "cause"}
    if state.storms:
        said["storm"] = _storms_words(state)
    if busy:
        said["node"] = f"actions are running on {len(busy)} node{'s' * (len(busy) > 1)}"
    shown = [BrakeView(**asdict(each), holds=each.name in said, used=used.get(each.name),
                       most=most.get(each.name), sentence=said.get(each.name, ""))
             for each in brake_limits.TABLE]
    recent = [each for each in reversed(state.spent) if each.at > now - brake_limits.HOUR_S]
    return BrakesView(
        state.breaker, [StormTripView(*each) for each in sorted(state.storms.items())],
        shown, [node_id for node_id in busy if sees(node_id)],
        [CountedActionView(each.at, each.source, each.node_id) for each in recent
         if sees(each.node_id)])


def _storms_words(state: BrakeState) -> str:
    """Many rules at once are one thing that happened."""
    sentences = [trip.sentence for trip in state.storms.values()]
    more = len(sentences) - STORMS_SAID
    return "; ".join(sentences[:STORMS_SAID]) + (
        f"; and {more} more rule{'s' * (more != 1)}" if more > 0 else "")


class BreakerReset(Struct, forbid_unknown_fields=True):
    """Resume automatic actions; waiting ones are dropped."""

    reason: Text


class LadderConfirmation(Struct, forbid_unknown_fields=True):
    """`preview`: of exactly what the rule wants now."""

    preview: Word
    reason: Text = ""


class RuleModeChange(Struct, forbid_unknown_fields=True):
    """`expires`: of auto, the last day on which it acts, such as 2027-01-31."""

    mode: Mode
    expires: Annotated[str, Meta(max_length=10)] | None = None


class NewMaintenance(Struct, forbid_unknown_fields=True):
    because: Text
    until: float


class MaintenanceView(Struct):
    node: str
    host: str
    by: str
    because: str
    since: float
    until: float


class MaintenanceList(Struct):
    items: list[MaintenanceView]


def maintenance_view(one: MaintenanceWindow, host: str) -> MaintenanceView:
    return MaintenanceView(one.node_id, host, one.by, one.because, one.since, one.until)
