"""Refusals of a ladder's steps in the past, by the tasks that were present in that minute."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.actions import Refusal
from gpudeck.contract.ladder import Do
from gpudeck.contract.rungs import refusal
from gpudeck.contract.wire import Task

from ...fleet.fleet import Fleet
from ..core.minute_aggregates import MINUTE_S
from ..core.rung_facts import Place, job_of, rung_target
from ..core.state_machine import Rows


@dataclass(slots=True)
class TaskPresence:
    """Tasks in a chunk: which task of which target was present in which minute. `past_tasks`: each
    task with its node, as history knows it."""

    t0: int
    minute: Rows
    target: Rows
    task: Rows
    past_tasks: Sequence[tuple[str, Task]]
    _order: Rows = field(init=False)
    _jobs: dict[Place, list[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._order = np.argsort(self.minute, kind="stable")
        for number, (node_id, task) in enumerate(self.past_tasks):
            self._jobs.setdefault(job_of(node_id, task), []).append(number)

    def refusal(self, fleet: Fleet, node_id: str, target: int, do: Do, at: float) -> Refusal | None:
        """Return why a step could not have been done. `at`: the end of the minute in question."""
        minute = int(at - self.t0) // MINUTE_S - 1
        first, last = np.searchsorted(self.minute, (minute, minute + 1), sorter=self._order)
        here = self._order[first:last]
        mine = np.unique(self.task[here[self.target[here] == target]])
        members = [self.past_tasks[number] for number in mine.tolist()]
        node_id = members[0][0] if members else node_id
        tree = [] if not members else [
            self.past_tasks[number][1] for number in self._jobs[job_of(*members[0])]
            if number in self.task[here]]
        return refusal(ON_RUNG[do], rung_target(fleet, node_id, members, tree))
