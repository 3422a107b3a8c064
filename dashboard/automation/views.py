"""Ladders, brakes and maintenance, as the API and the pages show them. Pure."""

from collections.abc import Callable, Iterable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from gpudeck.contract.ladder import LadderClimb

from ..alerts.views import CompletedStepView, LadderView, RungView
from . import brake_limits
from .brake_limits import BrakeRequest, BrakeState, BrakeTrip
from .intents import WAITS, ActionIntent
from .store import MaintenanceWindow

Text = Annotated[str, Meta(max_length=400)]
Word = Annotated[str, Meta(max_length=1_024)]
STORMS_SHOWN = 2


def ladder_view(climb: LadderClimb, intent: ActionIntent, holds: list[str],
                utc: Callable[[float], float]) -> LadderView:
    rung = climb.next_rung if climb.is_open else None
    is_due = climb.state == "waiting"
    return LadderView(
        intent.mode, climb.state, None if rung is None else rung.do,
        utc(climb.due_at) if is_due and rung is not None else None, climb.why,
        is_due and holds == [WAITS], [*intent.task_ids],
        [RungView(step.do, step.after_s) for step in climb.rungs],
        [CompletedStepView(step.do, utc(step.at),
                           None if step.ended_at is None else utc(step.ended_at),
                           step.outcome, step.sentence) for step in climb.done])


class BrakeView(brake_limits.Brake, frozen=True):
    """A brake as shown: `used` of `most`; both None for a brake without a number."""

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
    """Return the state of all brakes; of nodes that the caller may not see, only their number."""
    busy = sorted(busy)
    used: dict[str, int] = {"fleet": brake_limits.count(state, now, brake_limits.FLEET_S),
            "pace": brake_limits.count(state, now, brake_limits.PACE_S), "node": len(busy),
            "storm": len(state.storms), "breaker": int(state.breaker is not None)}
    most: dict[str, int] = {"fleet": brake_limits.fleet_most(nodes), "pace": 1}
    fleet_request = BrakeRequest("", "", 1, 0.0, nodes, frozenset())
    sentences: dict[str, str] = {
        block.brake: block.sentence for block in brake_limits.holds(state, fleet_request, now)
        if block.brake != "cause"}
    if state.storms:
        sentences["storm"] = _storms_words(state)
    if busy:
        sentences["node"] = f"actions are running on {len(busy)} node{'s' * (len(busy) > 1)}"
    brake_views = [
        BrakeView(**asdict(brake), holds=brake.name in sentences, used=used.get(brake.name),
                  most=most.get(brake.name), sentence=sentences.get(brake.name, ""))
        for brake in brake_limits.TABLE]
    recent = [action for action in reversed(state.spent) if action.at > now - brake_limits.HOUR_S]
    return BrakesView(
        state.breaker, [StormTripView(*entry) for entry in sorted(state.storms.items())],
        brake_views, [node_id for node_id in busy if sees(node_id)],
        [CountedActionView(action.at, action.source, action.node_id) for action in recent
         if sees(action.node_id)])


def _storms_words(state: BrakeState) -> str:
    """Return the trips of storms in one sentence: many rules at once are one event."""
    sentences = [trip.sentence for trip in state.storms.values()]
    more = len(sentences) - STORMS_SHOWN
    return "; ".join(sentences[:STORMS_SHOWN]) + (
        f"; and {more} more rule{'s' * (more != 1)}" if more > 0 else "")


class BreakerReset(Struct, forbid_unknown_fields=True):
    """Resume automatic actions; waiting ones are dropped."""

    reason: Text


class LadderConfirmation(Struct, forbid_unknown_fields=True):
    """`preview`: a preview of exactly what the rule wants now."""

    preview: Word
    reason: Text = ""


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


def maintenance_view(window: MaintenanceWindow, host: str) -> MaintenanceView:
    return MaintenanceView(window.node_id, host, window.by, window.because, window.since,
                           window.until)
