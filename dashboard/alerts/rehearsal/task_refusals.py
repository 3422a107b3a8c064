"""Whether what a ladder would have done could have been done, by who was there in that minute."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpudeck.action_table import ON_RUNG
from gpudeck.actions import Refusal
from gpudeck.ladder import Do
from gpudeck.rungs import refusal
from gpudeck.wire import Task

from ...fleet.fleet import Fleet
from ..core.minute_aggregates import MINUTE_S
from ..core.rung_facts import Place, job_of, rung_target
from ..core.state_machine import Rows


@dataclass(slots=True)
class TaskPresence:
    """Of a stretch: which task of which target was there in which minute. `told`: each task with
    its node, as history knows it."""

    t0: int
    minute: Rows
    target: Rows
    task: Rows
    told: Sequence[tuple[str, Task]]
    _order: Rows = field(init=False)
    _jobs: dict[Place, list[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._order = np.argsort(self.minute, kind="stable")
        for number, (node_id, task) in enumerate(self.told):
            self._jobs.setdefault(job_of(node_id, task), []).append(number)

    def refusal(self, fleet: Fleet, node_id: str, target: int, do: Do, at: float) -> Refusal | None:
        """`at`: the end of the minute that it is about."""
        minute = int(at - self.t0) // MINUTE_S - 1
        first, last = np.searchsorted(self.minute, (minute, minute + 1), sorter=self._order)
        here = self._order[first:last]
        mine = np.unique(self.task[here[self.target[here] == target]])
        meant = [self.told[number] for number in mine.tolist()]
        node_id = meant[0][0] if meant else node_id
        tree = [] if not meant else [
            self.told[number][1] for number in self._jobs[job_of(*meant[0])]
            if number in self.task[here]]
        return refusal(ON_RUNG[do], rung_target(fleet, node_id, meant, tree))
