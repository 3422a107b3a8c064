"""Brakes: limits on automatic actions of rules and quotas (docs/rules-that-act.md). Pure.

They limit harm, not words: notifying an owner costs no budget, and only a storm and the breaker
stop that too. Counted actions outlive a restart, and so does the breaker.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from ..alerts.core.rule import BUDGET_MOST_S

HOUR_S = 3_600.0
FLEET_S = 600.0
FLEET_MOST = 10
FLEET_SHARE = 0.05
PACE_S = 1.0
STORM_S = 60.0
STORM_TARGETS = 5
STORM_SHARE = 0.2
MAX_SPENT = 4_096

Name = Literal["node", "cause", "fleet", "pace", "storm", "breaker"]


class Brake(Struct, frozen=True):
    name: Name
    title: str
    limit: str
    lets_go: str  # when, or who releases it


# In the order in which they are checked and reported.
TABLE: tuple[Brake, ...] = (
    Brake("breaker", "Breaker", "opens when the fleet's limit is reached, when an action ends "
                                "unknown "
          "or affects another task, or when an action cannot be recorded",
          "an admin resets it, with a reason; waiting actions are dropped"),
    Brake("storm", "Storm guard", f"a rule that starts firing for {STORM_TARGETS} targets and "
          f"{STORM_SHARE:.0%} of its scope within {STORM_S:.0f} s", "an admin resets it"),
    Brake("node", "In flight on a node", "1 action at a time",
          "the action's outcome is known, and a sample from after it has arrived"),
    Brake("cause", "Of one rule", "its own budget; 5 actions in 10 min unless it sets less",
          "older actions leave the window"),
    Brake("fleet", "Fleet", f"{FLEET_SHARE:.0%} of the nodes, at least 1 and at most {FLEET_MOST}, "
          f"in {FLEET_S / 60:.0f} min", "never automatically: it opens the breaker"),
    Brake("pace", "Pace", f"1 action per {PACE_S:.0f} s", "a second later"),
)


class BrakeTrip(Struct, frozen=True):
    """A brake that holds until an admin resets it."""

    at: float
    brake: Name
    sentence: Annotated[str, Meta(max_length=1_024)]


class CountedAction(Struct, frozen=True):
    """An automatic action, counted from the moment it was decided."""

    at: float
    source: str
    node_id: str


class BrakeState(Struct, frozen=True):
    """The stored state of the brakes. Times are UTC."""

    spent: tuple[CountedAction, ...] = ()
    breaker: BrakeTrip | None = None
    storms: dict[str, BrakeTrip] = {}


@dataclass(frozen=True, slots=True)
class BrakeRequest:
    """A request to act now. `busy`: nodes with an action in flight."""

    source: str
    node_id: str
    acts: int  # the budget of the rule or quota itself
    within_s: float
    nodes: int  # in the fleet
    busy: frozenset[str]


@dataclass(frozen=True, slots=True)
class BrakeBlock:
    brake: Name
    sentence: str


def fleet_most(nodes: int) -> int:
    return min(FLEET_MOST, max(1, int(nodes * FLEET_SHARE)))


def count(state: BrakeState, now: float, within_s: float, source: str | None = None) -> int:
    """Count actions within a span. A clock that was set back frees no budget: actions that lie
    ahead still count."""
    return sum(action.at > now - within_s and source in (None, action.source)
               for action in state.spent)


def mutes(state: BrakeState, source: str) -> list[BrakeBlock]:
    """Return why not even the owner is notified."""
    blocks = []
    if state.breaker is not None:
        blocks.append(BrakeBlock("breaker", "the breaker is open: " + state.breaker.sentence))
    if source in state.storms:
        blocks.append(BrakeBlock("storm", state.storms[source].sentence))
    return blocks


def holds(state: BrakeState, request: BrakeRequest, now: float) -> list[BrakeBlock]:
    """Return why this action is not done now."""
    blocks = mutes(state, request.source)
    if request.node_id in request.busy:
        blocks.append(BrakeBlock("node", "another action is in progress on this node; one at a "
                                        "time"))
    if count(state, now, request.within_s, request.source) >= request.acts:
        blocks.append(BrakeBlock("cause", f"its budget of {_acts(request.acts)} in "
                                 f"{_span(request.within_s)} is used up"))
    if count(state, now, FLEET_S) >= fleet_most(request.nodes):
        blocks.append(BrakeBlock("fleet", f"the fleet's limit of "
                                 f"{_acts(fleet_most(request.nodes))} in "
                                          f"{_span(FLEET_S)} is used up"))
    if count(state, now, PACE_S):
        blocks.append(BrakeBlock("pace", f"one action per {PACE_S:.0f} s, and there was one "
                                        "just now"))
    return blocks


def spend(state: BrakeState, source: str, node_id: str, now: float) -> BrakeState:
    recent = tuple(action for action in state.spent if action.at > now - BUDGET_MOST_S)
    return replace(state, spent=(*recent, CountedAction(now, source, node_id))[-MAX_SPENT:])


def refunded(state: BrakeState, action: CountedAction) -> BrakeState:
    remaining = list(state.spent)
    if action in remaining:
        remaining.remove(action)
    return replace(state, spent=tuple(remaining))


def storm(source: str, began: Iterable[float], targets: int, now: float) -> BrakeTrip | None:
    """Return the trip of a rule that starts to fire for too many targets at once. `began`: when it
    began to fire for each of its firing targets."""
    new = sum(now - at <= STORM_S for at in began)
    if new < STORM_TARGETS or new < STORM_SHARE * targets:
        return None
    return BrakeTrip(now, "storm", f"{source} began to fire for {new} of {targets} targets within "
                                   f"{STORM_S:.0f} s, which looks like wrong data and not like "
                                   f"{new} offenders; an admin checks and resets it")


def with_breaker(state: BrakeState, trip: BrakeTrip) -> BrakeState:
    """Return the state with the breaker open. The first reason stays: a later one may only follow
    from it."""
    return state if state.breaker is not None else replace(state, breaker=trip)


def with_storm(state: BrakeState, source: str, trip: BrakeTrip) -> BrakeState:
    return state if source in state.storms else replace(
        state, storms=state.storms | {source: trip})


def reset(state: BrakeState) -> BrakeState:
    """Return the state without trips. Counted actions stay counted."""
    return replace(state, breaker=None, storms={})


def _acts(number: int) -> str:
    return f"{number} action{'s' * (number != 1)}"


def _span(seconds: float) -> str:
    if seconds >= HOUR_S and seconds % HOUR_S == 0:
        return f"{seconds / HOUR_S:.0f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
