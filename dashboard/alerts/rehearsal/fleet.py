"""Rehearsal data for rules of the fleet: each second of all GPUs, combined as a live rule does, and
minutes made of those.

Seconds without any sample say nothing: this hub may have been down. A node that was cut off and
delivered its samples later was not silent, as far as history knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpudeck.contract.wire import GPU_STATES

from ...fleet.fleet import SILENT_AFTER_S, STALE_AFTER_S
from ...history.columns.grid import SEEN, HistoryGrid
from ..core.firing_alerts import AlertTarget
from ..core.node_targets import FLEET_KEY
from ..core.numbers import number_of_fleet
from ..core.rule_signal import Floats
from ..core.state_machine import Mask, Rows
from .engine import RehearsalChunk, chunk_of_seconds
from .fleet_replay import FleetStateReplay, ReplayedFleetState, ReplayedSamples
from .source import CannotRehearseError, RehearsalSource

OK, LOST = (GPU_STATES.index(state) for state in ("ok", "lost"))
METRICS = frozenset(("util_pct", "power_w"))
OF_THE_HUB = frozenset(("rules_failing", "blind_s", "brakes_on", "is_unrecorded",
                        "disk_refuses", "hub_clock_skew_s"))


@dataclass(frozen=True, slots=True)
class FleetTimeline:
    """The fleet, second by second, as columns of numbers. `is_board`: of each GPU; MIG instances
    count with their board. `boards_of_node`: how many each node has now."""

    state: ReplayedFleetState
    node_at: Rows
    is_board: Mask
    boards_of_node: Rows

    def is_there(self) -> Mask:
        return self.state.is_there

    def is_silent(self) -> Mask:
        return self.state.is_silent

    def boards(self) -> Floats:
        """Return how many boards there are; a node not heard of yet counts with as many as it has
        now."""
        state = self.state
        unheard = (state.is_there & ~state.is_heard) * self.boards_of_node[:, None]
        listed = state.is_listed & self.is_board[:, None]
        return np.asarray(listed.sum(axis=0) + unheard.sum(axis=0), float)

    def is_lost(self) -> Mask:
        state = self.state
        is_lost = state.is_listed & (state.state == LOST) & ~state.is_silent[self.node_at]
        return np.asarray(is_lost & self.is_board[:, None])

    def live(self, name: str) -> Floats:
        state = self.state
        works = state.is_listed & (state.state == OK) & (state.age_s < STALE_AFTER_S)
        works &= ~state.is_silent[self.node_at]
        return np.where(works, state.values[name], np.nan)


class FleetRehearsalSource(RehearsalSource):
    def _refuse(self) -> None:
        of_hub = sorted(OF_THE_HUB & self.ready.names)
        if of_hub:
            raise CannotRehearseError(f"data about the hub itself, such as {' and '.join(of_hub)}, "
                                      "is not in history: this rule can only be watched live")
        super()._refuse()

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        spans = self._by_seconds("a rule about the fleet reads every second of all GPUs",
                                 start, end)
        first_known = start - int(SILENT_AFTER_S)
        begins = self.spans.begins(1)
        replay = FleetStateReplay(max(first_known, start if begins is None else begins))
        self._look(replay, first_known, start)  # to know the nodes that are silent at the start
        for first, last in spans:
            whole = self._look(replay, first, last)
            numbers = {name: np.where(whole.state.is_blind, np.nan, number_of_fleet(
                name, whole))[None] for name in self._names}
            yield chunk_of_seconds(first, self.step_s, numbers, np.ones(1, bool))

    def _look(self, replay: FleetStateReplay, first: int, last: int) -> FleetTimeline:
        grid = HistoryGrid(first, 1, last - first, self._gpus)
        self.spans.seen(grid)
        metrics = METRICS.intersection(self._names)
        if metrics:
            self.spans.past({name: frozenset(("mean",)) for name in metrics}, grid)
        here = [at for at, (_, node) in enumerate(self._gpus) if node not in self.members.revoked]
        names = [name for name in self._gpus if name[1] not in self.members.revoked]
        node_at = np.array([self._nodes.setdefault(node, len(self._nodes)) for _, node in names],
                           np.intp)
        self._number_the_unheard(last)
        samples = ReplayedSamples(first, _of(grid, SEEN)[here], {name: _of(grid, name)[here]
                                                             for name in metrics})
        since = np.array([self.members.since.get(node, np.inf) for node in self._nodes], float)
        return FleetTimeline(
            replay.take(samples, node_at, since), node_at,
            np.array([self._is_board(slot) for slot in self._slots(names)], bool),
            np.array([sum(map(self._is_board, self._listed(node))) for node in self._nodes],
                     np.intp))

    def _number_the_unheard(self, last: int) -> None:
        """Number nodes not heard of yet that have GPUs and belonged to this hub by then: they are
        missing."""
        for node_id in list(self.fleet.nodes):  # a copy, as the hub keeps running
            since = self.members.since.get(node_id, np.inf)
            if since < last and self._listed(node_id) and node_id not in self.members.revoked:
                self._nodes.setdefault(node_id, len(self._nodes))

    def _listed(self, node_id: str) -> list[int]:
        """Return the slots that a node has now."""
        node = self.fleet.nodes.get(node_id)
        return [] if node is None or node.listing is None else list(node.listing.order)

    def name(self, row: int) -> AlertTarget:
        return AlertTarget(FLEET_KEY, "", "")


def _of(grid: HistoryGrid, name: str) -> Floats:
    means = grid.of(name, "mean")
    return np.full((len(grid.rows), grid.width), np.nan) if means is None else (
        means.astype(np.float64))
