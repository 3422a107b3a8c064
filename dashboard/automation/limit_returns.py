"""Takes back what a ladder has limited, as soon as what it was limited for is over: the alert has
cleared, its rule is gone or may not act any more, or its task has ended and others come to the GPU.

What is limited is read from what nodes say of their timed limits, so that nothing is forgotten in a
restart. A limit that cannot be taken back now ends by itself at its time.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from gpudeck.actions import (
    COMMAND_LASTS_S,
    NO_TASK,
    ActionParams,
    CommandActor,
    Refusal,
)
from gpudeck.limits import LimitRelease, TimedLimit

from ..actions.commander import new_id
from ..actions.lifecycle import CommandRecord
from ..fleet.fleet import Fleet, Node
from ..runtime.runner import Loop
from .dispatch import ActionDispatcher
from .intents import asker_of
from .ladder_runs import LadderRuns
from .ladder_state import RETURN_WITHIN_S

EVERY_S = 5.0
AGAIN_AFTER_S = 60.0
AT_ONCE = 4  # of one look: each waits for its node
VERSIONED = "@"  # in the name of each rule that acts: a person's limit is not looked up
BECAUSE = "what it was limited for is over"


Purpose = tuple[str, str]  # what a task is limited by, and the task


def is_due(ordered: CommandRecord | None, wanted: Collection[Purpose]) -> bool:
    """Whether what a limit was set for is over. `ordered`: the command that began it; without it,
    or where it was no ladder's, the limit is not ours."""
    if ordered is None or ordered.asker.kind != "rule" or ordered.action != "limit":
        return False
    return not ordered.is_open and (ordered.asker.name, ordered.task_id or "") not in wanted


@dataclass(slots=True)
class LimitReturns:
    """`began_mono`: of this hub; rules that were firing before do so again within a while."""

    fleet: Fleet
    runs: LadderRuns
    dispatcher: ActionDispatcher
    began_mono: float = field(default_factory=time.monotonic)
    _tried: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        return Loop("limits of ladders", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        if mono - self.began_mono < RETURN_WITHIN_S:
            return
        due = [*self._due(mono)][:AT_ONCE]
        for node, limit in due:
            self._tried[(node.hello.node_id, limit.gpu_uuid)] = mono
            self._take_back(node, limit, now)
        self._tried = {key: at for key, at in self._tried.items() if mono - at < AGAIN_AFTER_S}

    def _due(self, mono: float) -> Iterator[tuple[Node, TimedLimit]]:
        wanted = {(asker_of(run.intent), task_id) for run in self.runs
                  if run.climb.state != "over" and run.intent.mode != "dry_run"
                  for task_id in run.intent.task_ids}
        for node_id, node in self.fleet.nodes.items():
            if node.limits is None or not node.connected:
                continue
            for limit in node.limits.leases:
                tried = self._tried.get((node_id, limit.gpu_uuid))
                if VERSIONED not in limit.by or (tried is not None
                                                 and mono - tried < AGAIN_AFTER_S):
                    continue
                if is_due(self.dispatcher.find(limit.lease_id), wanted):
                    yield node, limit

    def _take_back(self, node: Node, limit: TimedLimit, now: float) -> Refusal | CommandRecord:
        """By the rule that has set it: at its node, no other one may."""
        params = ActionParams(setting=LimitRelease(limit.gpu_uuid, limit.what))
        node_id = node.hello.node_id
        found = self.dispatcher.look(node_id, NO_TASK, "release_limit", params)
        if isinstance(found, Refusal):
            return found
        if found.refusals:
            return found.refusals[0]
        record = CommandRecord(new_id(now), "release_limit", node_id, node.hello.host,
                               CommandActor("rule", limit.by), BECAUSE, now, now,
                               now + COMMAND_LASTS_S, params, bystanders=len(found.bystanders))
        return self.dispatcher.order(record, found, None, detail={"limited_by": limit.lease_id})
