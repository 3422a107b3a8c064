"""Takes back limits set by ladders as soon as their reason is over: the alert has cleared, its rule
is gone or may not act any more, or its task has ended and others use the GPU.

The limits are read from the timed limits that nodes report, so that a restart forgets none. A limit
that cannot be taken back now ends by itself at its time.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from gpudeck.contract.actions import COMMAND_LASTS_S, NO_TASK, ActionParams, CommandActor, Refusal
from gpudeck.contract.limits import LimitRelease, TimedLimit

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
AT_ONCE = 4  # per step: each waits for its node
VERSIONED = "@"  # in the name of each rule that acts: people's limits are not looked up
BECAUSE = "what it was limited for is over"


Purpose = tuple[str, str]  # a rule or quota, and the task that it limits


def is_due(order: CommandRecord | None, purposes: Collection[Purpose]) -> bool:
    """Return whether the reason of a limit is over. `order`: the command that set it; without one,
    or if it was not a ladder's, the limit is left alone."""
    if order is None or order.asker.kind != "rule" or order.action != "limit":
        return False
    return not order.is_open and (order.asker.name, order.task_id or "") not in purposes


@dataclass(slots=True)
class LimitReturns:
    """Takes back limits. `began_mono`: start of this hub; rules that were firing before fire again
    within a while."""

    fleet: Fleet
    runs: LadderRuns
    dispatcher: ActionDispatcher
    began_mono: float = field(default_factory=time.monotonic)
    _tried_mono: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        return Loop("limits of ladders", self.step, EVERY_S)

    def step(self, now: float, mono: float) -> None:
        if mono - self.began_mono < RETURN_WITHIN_S:
            return
        due = [*self._due(mono)][:AT_ONCE]
        for node, limit in due:
            self._tried_mono[(node.hello.node_id, limit.gpu_uuid)] = mono
            self._take_back(node, limit, now)
        self._tried_mono = {key: at for key, at in self._tried_mono.items()
                            if mono - at < AGAIN_AFTER_S}

    def _due(self, mono: float) -> Iterator[tuple[Node, TimedLimit]]:
        purposes = {(asker_of(run.intent), task_id) for run in self.runs
                    if run.climb.state != "over" and run.intent.mode != "dry_run"
                    for task_id in run.intent.task_ids}
        for node_id, node in self.fleet.nodes.items():
            if node.limits is None or not node.connected:
                continue
            for limit in node.limits.leases:
                tried_mono = self._tried_mono.get((node_id, limit.gpu_uuid))
                if VERSIONED not in limit.by or (tried_mono is not None
                                                 and mono - tried_mono < AGAIN_AFTER_S):
                    continue
                if is_due(self.dispatcher.find(limit.lease_id), purposes):
                    yield node, limit

    def _take_back(self, node: Node, limit: TimedLimit, now: float) -> Refusal | CommandRecord:
        """Release a limit in the name of the rule that set it: its node accepts no other."""
        params = ActionParams(setting=LimitRelease(limit.gpu_uuid, limit.what))
        node_id = node.hello.node_id
        preview = self.dispatcher.preview(node_id, NO_TASK, "release_limit", params)
        if isinstance(preview, Refusal):
            return preview
        if preview.refusals:
            return preview.refusals[0]
        record = CommandRecord(new_id(now), "release_limit", node_id, node.hello.host,
                               CommandActor("rule", limit.by), BECAUSE, now, now,
                               now + COMMAND_LASTS_S, params, bystanders=len(preview.bystanders))
        return self.dispatcher.order(record, preview, None, detail={"limited_by": limit.lease_id})
