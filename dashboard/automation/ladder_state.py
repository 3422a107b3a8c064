"""What of the climbs is kept over a restart of the hub, and which go on after it. Pure.

A short stop is like a gap in the samples: whoever was told is not told again, and whoever waited
waits again. After a longer one nobody knows what was so meanwhile: all begins at the first rung.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gpudeck.ladder import LadderClimb, resumed, settle

from ..actions.lifecycle import CommandRecord
from .intents import ActionIntent, IntentMode, outcome_of

# The source of all Quotas together: many owners may be over at once and nothing be wrong, so they
# share what the fleet bears and wait for it. To hit the fleet's own bound would open the breaker.
QUOTAS = "quotas"
# Agents that come back all at once are all here by then, and summed up.
RETURN_WITHIN_S = 120.0
GAP_MOST_S = 600.0  # as long as an alert waits for samples before it ends
BACK_S = 5.0  # a clock that was set back by more says nothing of how long it was
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
    """`before`: of the last restart, what has not come again. Of rules that is not kept twice:
    what was so in between nobody noted."""
    found = [SavedLadderClimb(intent.source, place_of(intent)[1], intent.mode, _short(climb),
                              command_id)
             for climb, intent, command_id in climbs
             if climb.done and climb.state not in ("resting", "over")]
    found += [each for each in before if each.source == QUOTAS]
    return SavedLadderState(now, tuple(found[:MOST]))


def restored(saved: SavedLadderState | None, now: float) -> dict[Place, SavedLadderClimb]:
    if saved is None or not -BACK_S <= now - saved.at <= GAP_MOST_S:
        return {}
    return {(each.climb.cause, each.place): each for each in saved.climbs}


def goes_on(was: SavedLadderClimb | None, intent: ActionIntent, record: CommandRecord | None,
            now: float) -> LadderClimb | None:
    """None: it begins at the first rung. A notification in a dry run does not count.
    `record`: of the
    step that was acting, with what became of it since."""
    if was is None or not intent.goes_on or was.mode != intent.mode or (
            was.climb.rungs != intent.rungs):
        return None
    climb, outcome = was.climb, None if record is None else outcome_of(record)
    if climb.state == "acting" and outcome is not None:
        climb = settle(climb, *outcome, now)
    return replace(resumed(climb, now), target=intent.target)


def _short(climb: LadderClimb) -> LadderClimb:
    return replace(climb, why=climb.why[:MAX_SENTENCE], done=tuple(
        replace(each, sentence=each.sentence[:MAX_SENTENCE]) for each in climb.done))
