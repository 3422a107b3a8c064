"""What a Rule of Nodes looked at, out of history, for a rehearsal: each second of their Gpus, put
together as life does, and minutes made of those."""

from collections.abc import Iterator, Mapping

import numpy as np

from ...fleet.fleet import Fleet
from ...fleet.mig import NO_PARENT
from ...history.grid import HistoryGrid, Name
from ...history.protocol import RuleHistory
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import MINUTE_S, ClosedRuleMinute
from ..core.node_targets import nodes_in_scope
from ..core.numbers import number_of_nodes
from ..core.rule import CompiledRule
from ..core.rule_signal import Floats, SignalTerm
from ..core.rule_tracker import RuleTracker
from ..core.state_machine import Mask, Rows
from .engine import AnyFloats, RehearsalChunk, pieces
from .gpus import refuse_too_long, refuse_unrecorded

CELLS = 4_000_000  # of one number in memory at once
AT_ONCE_S = 300  # at least, and in whole ones of these


class NodeRehearsalSource:
    reads_s = 1

    def __init__(self, spans: RuleHistory, fleet: Fleet, ready: CompiledRule) -> None:
        self._spans = spans
        self._fleet = fleet
        self._ready = ready
        self.step_s = ready.period_s
        self._names = sorted(RuleTracker(ready).names)
        self._gpus: dict[Name, int] = {}
        self.rows: dict[str, int] = {}
        refuse_unrecorded(ready)

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        refuse_too_long("a rule of nodes looks at each second of their GPUs",
                        max(1, len(self._fleet)), end - start)
        for first, last in pieces(start, end, seconds_at_once(self._fleet)):
            yield self._stretch(first, last)

    def _stretch(self, first: int, last: int) -> RehearsalChunk:
        grid = HistoryGrid(first, 1, last - first, self._gpus)
        self._spans.past({name: frozenset(("mean",)) for name in self._names}, grid)
        for _, node_id in self._gpus:
            self.rows.setdefault(node_id, len(self.rows))
        found = {name: self._of_nodes(name, grid) for name in self._names}
        return chunk_of_seconds(first, self.step_s, found, self._scope())

    def _of_nodes(self, name: str, grid: HistoryGrid) -> Floats:
        """Nodes x seconds."""
        values = grid.of(name, "mean")
        if values is None:
            return np.full((len(self.rows), grid.width), np.nan)
        slots = [self._fleet.slot_on(node, gpu) for gpu, node in self._gpus]
        is_board = np.array([slot is None or self._fleet.parent[slot] == NO_PARENT
                             for slot in slots], bool)
        node_at = np.array([self.rows[node] for _, node in self._gpus], np.intp)
        # As a live rule adds them up.
        by = np.argsort([-1 if slot is None else slot for slot in slots], kind="stable")
        return number_of_nodes(name, values[by].astype(float), node_at[by], np.ones(len(by), bool),
                               is_board[by], len(self.rows))

    def _scope(self) -> Mask:
        """As it would be answered now."""
        if self._ready.scope is None:
            return np.ones(len(self.rows), bool)
        meant = nodes_in_scope(self._fleet, self._ready.scope, 0.0)
        nodes = [self._fleet.nodes.get(node_id) for node_id in self.rows]
        return np.array([node is not None and bool(meant[node.at]) for node in nodes], bool)

    def name(self, row: int) -> AlertTarget:
        node_id = list(self.rows)[row]
        node = self._fleet.nodes.get(node_id)
        return AlertTarget(node_id, node_id, node_id if node is None else node.hello.host)


def seconds_at_once(fleet: Fleet) -> int:
    return min(3_600, max(1, CELLS // max(1, len(fleet)) // AT_ONCE_S) * AT_ONCE_S)


def chunk_of_seconds(first: int, step_s: int, found: Mapping[str, Floats], scope: Mask
                     ) -> RehearsalChunk:
    """`found`: targets x seconds, of which a rule by the minute sees closed minutes."""
    width = next(iter(found.values())).shape[1]
    minutes = {name: closed(values) for name, values in found.items()} if step_s > 1 else {}

    def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
        by_second = found[term.name]
        return (minutes[term.name].values(term.how) if minutes else by_second)[rows]

    return RehearsalChunk(first, step_s, width // step_s, len(scope), values, scope)


def closed(seconds: Floats) -> ClosedRuleMinute:
    """Second after second, as life adds them up."""
    parts = seconds.reshape(len(seconds), -1, MINUTE_S)
    there = ~np.isnan(parts)
    total = np.zeros(parts.shape[:2])
    for second in range(MINUTE_S):
        total += np.where(there[..., second], parts[..., second], 0.0)
    n = there.sum(axis=2).astype(np.float64)
    low = np.where(there, parts, np.inf).min(axis=2)
    high = np.where(there, parts, -np.inf).max(axis=2)
    return ClosedRuleMinute(n, low, total / np.maximum(n, 1), high)
