"""Climbs that are stored over a restart of the hub, and that go on after it. Pure.

A short stop is like a gap in the samples: an owner who was notified is not notified again, and a
waiting climb waits again. After a longer one nobody knows what happened in between: every climb
starts at the first rung.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gpudeck.contract.ladder import LadderClimb, resumed, settle

from ..actions.lifecycle import CommandRecord
from .intents import ActionIntent, IntentMode, outcome_of

# The source of all quotas together: many owners may rightly be over at once, so they share what
# the fleet allows and wait for it. Reaching the fleet's own limit would open the breaker.
QUOTAS = "quotas"
# Agents that all reconnect at once are connected and counted by then.
RETURN_WITHIN_S = 120.0
GAP_MOST_S = 600.0  # as long as an alert waits for samples before it ends
BACK_S = 5.0  # a clock that was set back by more does not tell how long the stop was
MOST = 2_000
MAX_SENTENCE = 160
Place = tuple[str, str]  # cause, and target without its episode


class SavedLadderClimb(Struct, frozen=True):
    source: str
    place: str
    mode: IntentMode
    climb: LadderClimb
    command_id: str | None = None  # of the step that was acting


class SavedLadderState(Struct, frozen=True):
    at: float  # UTC
    climbs: tuple[SavedLadderClimb, ...] = ()


def place_of(intent: ActionIntent) -> Place:
    return intent.cause, intent.place or intent.target


def saved_state(climbs: Iterable[tuple[LadderClimb, ActionIntent, str | None]],
                before: Iterable[SavedLadderClimb], now: float) -> SavedLadderState:
    """Return what to save. `before`: climbs of the last restart that have not come back. Those of
    rules are not saved twice: nobody noted what happened in between."""
    saved_climbs = [SavedLadderClimb(intent.source, place_of(intent)[1], intent.mode, _short(climb),
                                     command_id)
                    for climb, intent, command_id in climbs
                    if climb.done and climb.state not in ("resting", "over")]
    saved_climbs += [climb for climb in before if climb.source == QUOTAS]
    return SavedLadderState(now, tuple(saved_climbs[:MOST]))


def restored(saved: SavedLadderState | None, now: float) -> dict[Place, SavedLadderClimb]:
    if saved is None or not -BACK_S <= now - saved.at <= GAP_MOST_S:
        return {}
    return {(entry.climb.cause, entry.place): entry for entry in saved.climbs}


def continued_climb(saved: SavedLadderClimb | None, intent: ActionIntent,
                    record: CommandRecord | None, now: float) -> LadderClimb | None:
    """Return the climb that goes on; None: it starts at the first rung. A notification in a dry run
    does not count. `record`: of the step that was in progress, with its outcome since."""
    if saved is None or not intent.goes_on or saved.mode != intent.mode or (
            saved.climb.rungs != intent.rungs):
        return None
    climb, outcome = saved.climb, None if record is None else outcome_of(record)
    if climb.state == "acting" and outcome is not None:
        climb = settle(climb, *outcome, now)
    return replace(resumed(climb, now), target=intent.target)


def _short(climb: LadderClimb) -> LadderClimb:
    return replace(climb, why=climb.why[:MAX_SENTENCE], done=tuple(
        replace(completed, sentence=completed.sentence[:MAX_SENTENCE]) for completed in climb.done))
