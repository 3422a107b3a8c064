"""Rehearsal data for rules of nodes: each second of their GPUs, combined as a live rule does, and
minutes made of those."""

from collections.abc import Iterator

import numpy as np

from ...history.columns.grid import HistoryGrid
from ..core.firing_alerts import AlertTarget
from ..core.node_targets import nodes_in_scope
from ..core.numbers import number_of_nodes
from ..core.rule_signal import Floats
from ..core.state_machine import Mask
from .engine import RehearsalChunk, chunk_of_seconds
from .source import RehearsalSource


class NodeRehearsalSource(RehearsalSource):
    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        for first, last in self._by_seconds("a rule of nodes reads every second of their GPUs",
                                            start, end):
            grid = HistoryGrid(first, 1, last - first, self._gpus)
            self.spans.past({name: frozenset(("mean",)) for name in self._names}, grid)
            for _, node_id in self._gpus:
                self._nodes.setdefault(node_id, len(self._nodes))
            yield chunk_of_seconds(first, self.step_s, {
                name: self._of_nodes(name, grid) for name in self._names}, self._scope())

    def _of_nodes(self, name: str, grid: HistoryGrid) -> Floats:
        """Return nodes x seconds."""
        values = grid.of(name, "mean")
        if values is None:
            return np.full((len(self._nodes), grid.width), np.nan)
        slots = self._slots(self._gpus)
        is_board = np.array([self._is_board(slot) for slot in slots], bool)
        node_at = np.array([self._nodes[node] for _, node in self._gpus], np.intp)
        # In the order in which a live rule adds them up.
        by = np.argsort([-1 if slot is None else slot for slot in slots], kind="stable")
        return number_of_nodes(name, values[by].astype(float), node_at[by], np.ones(len(by), bool),
                               is_board[by], len(self._nodes))

    def _scope(self) -> Mask:
        nodes = [self.fleet.nodes.get(node_id) for node_id in self._nodes]
        if self.ready.scope is None:
            return np.ones(len(nodes), bool)
        in_scope = nodes_in_scope(self.fleet, self.ready.scope, 0.0)
        return np.array([node is not None and bool(in_scope[node.at]) for node in nodes], bool)

    def name(self, row: int) -> AlertTarget:
        node_id = list(self._nodes)[row]
        return AlertTarget(node_id, node_id, self._host(node_id))
