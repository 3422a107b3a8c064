"""Waits for the next checkpoint of a task before it is touched, and touches nothing where none
comes in time."""

import time
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from gpudeck.contract.action_table import ROWS, ShownAction
from gpudeck.contract.actions import ActionParams, Preview, Refusal, Victim
from gpudeck.words.actions import age, clock

from ...telemetry.write_bursts import CheckpointPace
from ..context import NodeContext
from ..targets import TargetProcessSet
from .execution import ActionRefusedError

INTERVALS_MOST = 2
LOOK_EVERY_S = 0.5
UNKNOWN = Refusal("condition", (
    "no rhythm of checkpoints is known of it: at least three have to be seen, as writes to this "
    "node's disks while its GPUs rest, at intervals that differ by no more than 20 %. Nothing was "
    "touched; do it without waiting for one."))


def paces_of(context: NodeContext, victims: Iterable[Victim], at: float
             ) -> dict[str, CheckpointPace]:
    """Return the pace of each victim that writes checkpoints, by task."""
    watch = context.tasks.recent.checkpoints
    return {victim.task_id: pace for victim in victims if victim.task_id is not None
            and (pace := watch.pace(victim.task_id, at)) is not None}


def longest_s(params: ActionParams, paces: Iterable[CheckpointPace]) -> float:
    """Return how long to wait at most, in seconds; 0: nobody wants to wait."""
    within_s = params.checkpoint_within_s
    if within_s is UNSET:
        return 0.0
    return min(within_s, INTERVALS_MOST * max((pace.every_s for pace in paces), default=0.0))


def waits(action: ShownAction, params: ActionParams) -> bool:
    return (params.checkpoint_within_s is not UNSET and params.checkpoint_within_s > 0
            and takes_wait(action))


def takes_wait(action: ShownAction) -> bool:
    return any(param.name == "checkpoint_within_s" for param in ROWS[action].params)


def flaws(action: ShownAction, params: ActionParams, paces: dict[str, CheckpointPace]
          ) -> tuple[Refusal, ...]:
    return (UNKNOWN,) if waits(action, params) and not paces else ()


def warnings(action: ShownAction, params: ActionParams, paces: dict[str, CheckpointPace], at: float
             ) -> Iterator[str]:
    if not paces or not takes_wait(action):
        return
    pace = max(paces.values(), key=lambda one: one.last.ended_at)
    yield (f"It writes a checkpoint every {age(pace.every_s)}; the last one was done "
           f"{age(max(0.0, at - pace.last.ended_at))} ago.")
    if waits(action, params):
        yield (f"Its next checkpoint is waited for, up to {age(longest_s(params, paces.values()))}."
               " If none comes until then, nothing is touched. Other actions on this node wait as "
               "well.")


def wait(context: NodeContext, preview: Preview, targets: TargetProcessSet) -> float:
    """Return when its next checkpoint was done. Raises ActionRefusedError where none came, or
    somebody has stopped actions meanwhile."""
    since, deadline = time.time(), time.monotonic()
    paces = paces_of(context, preview.victims, since)
    if not paces:
        raise ActionRefusedError(UNKNOWN)
    most_s = longest_s(preview.params, paces.values())
    deadline += most_s
    watch = context.tasks.recent.checkpoints
    while targets.living():
        if (hold := targets.hold()) is not None:
            raise ActionRefusedError(hold)
        if (written_at := watch.written_since(paces, since, LOOK_EVERY_S)) is not None:
            return written_at
        if time.monotonic() >= deadline:
            raise ActionRefusedError(Refusal(
                "condition", f"no checkpoint was written within {age(most_s)}; nothing was "
                             "touched"))
    raise ActionRefusedError(Refusal("gone", "it ended by itself while its next checkpoint was "
                                             "waited for; nothing was touched"))


def step_words(written_at: float) -> str:
    return f"its checkpoint was done at {clock(written_at)}"
