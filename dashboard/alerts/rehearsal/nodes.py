"""What a Rule of Nodes looked at, out of history, for a rehearsal: each second of their Gpus, put
together as life does, and minutes made of those."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ...fleet.fleet import Fleet
from ...fleet.mig import NO_PARENT
from ...history.grid import HistoryGrid, Name
from ...history.protocol import RuleHistory
from ..core.firing_alerts import AlertTarget
from ..core.minute_aggregates import ClosedRuleMinute
from ..core.rule import CompiledRule
from ..core.rule_signal import Floats, SignalTerm
from ..core.rule_tracker import RuleTracker
from ..core.state_machine import Mask, Rows
from .engine import AnyFloats, RehearsalChunk, pieces
from .gpus import MOST_SECONDS, CannotRehearseError

CELLS = 4_000_000  # of one number in memory at once
AT_ONCE_S = 300  # at least, and in whole ones of these
MINUTE_S = 60


@dataclass(slots=True)
class NodeGpuValues:
    """One number of all Gpus that count, Gpus x seconds, those of a Node side by side."""

    values: Floats
    starts: Rows  # where the next Node begins

    def total(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self.starts, axis=0), np.float64)


def _mean(gpus: NodeGpuValues) -> Floats:
    """Of those that tell it."""
    there = ~np.isnan(gpus.values)
    count = gpus.total(there.astype(np.float64))
    total = gpus.total(np.where(there, gpus.values, 0.0))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _whole(gpus: NodeGpuValues) -> Floats:
    """Not known where one of them does not tell."""
    return gpus.total(gpus.values)


def _most(gpus: NodeGpuValues) -> Floats:
    return np.asarray(np.fmax.reduceat(gpus.values, gpus.starts, axis=0))


NUMBERS: dict[str, Callable[[NodeGpuValues], Floats]] = {
    "util_pct": _mean, "power_w": _whole, "temp_c": _most}
OF_BOARDS = frozenset(("power_w", "temp_c"))  # instances of a board are counted with it


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
        odd = [name for name in self._names if name not in NUMBERS]
        if odd:
            raise CannotRehearseError(f"history does not keep {' and '.join(odd)} of a node: this "
                                      "rule "
                                      "can only be watched live")

    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]:
        many = max(1, len(self._fleet))
        if many * (end - start) > MOST_SECONDS:
            raise CannotRehearseError(
                f"a rule of nodes looks at each second of their Gpus: over {many:,} Gpus at most "
                f"{MOST_SECONDS // many // 3_600} hours at once")
        at_once_s = min(3_600, max(1, CELLS // many // AT_ONCE_S) * AT_ONCE_S)
        for first, last in pieces(start, end, at_once_s):
            yield self._stretch(first, last)

    def _stretch(self, first: int, last: int) -> RehearsalChunk:
        grid = HistoryGrid(first, 1, last - first, self._gpus)
        self._spans.past({name: frozenset(("mean",)) for name in self._names}, grid)
        for _, node_id in self._gpus:
            self.rows.setdefault(node_id, len(self.rows))
        found = {name: self._of_nodes(name, grid) for name in self._names}
        width = (last - first) // self.step_s
        if self.step_s == MINUTE_S:
            minutes = {name: closed(values) for name, values in found.items()}

        def values(term: SignalTerm, rows: Rows | slice) -> AnyFloats:
            if self.step_s == MINUTE_S:
                return minutes[term.name].values(term.how)[rows]
            return found[term.name][rows]

        return RehearsalChunk(first, self.step_s, width, len(self.rows), values, self._scope())

    def _of_nodes(self, name: str, grid: HistoryGrid) -> Floats:
        """Nodes x seconds."""
        found = np.full((len(self.rows), grid.width), np.nan)
        of_gpus = grid.of(name, "mean")
        if of_gpus is None:
            return found
        slots = [self._fleet.slot_on(node, gpu) for gpu, node in self._gpus]
        counts = np.array([name not in OF_BOARDS or slot is None
                           or self._fleet.parent[slot] == NO_PARENT for slot in slots], bool)
        at = np.array([self.rows[node] for _, node in self._gpus], np.intp)
        # By slot within a Node, as life adds them up.
        by = np.lexsort((np.array([-1 if slot is None else slot for slot in slots]), at))
        by = by[counts[by]]
        if len(by):
            starts = np.flatnonzero(np.append(True, np.diff(at[by]) != 0))
            found[at[by][starts]] = NUMBERS[name](NodeGpuValues(of_gpus[by].astype(np.float64),
                                                                starts))
        return found

    def _scope(self) -> Mask:
        """Whose Gpus are all meant, as it would be answered now."""
        if self._ready.scope is None:
            return np.ones(len(self.rows), bool)
        fleet, size = self._fleet, len(self._fleet)
        there, at = ~fleet.retired[:size], fleet.node_at[:size]
        meant = there & self._ready.scope.matches(fleet, 0.0)[:size]
        of_node, mine = (np.bincount(at[which], minlength=len(fleet.node_ids))
                         for which in (there, meant))
        nodes = [fleet.nodes.get(node_id) for node_id in self.rows]
        return np.array([node is not None and 0 < of_node[node.at] == mine[node.at]
                         for node in nodes], bool)

    def name(self, row: int) -> AlertTarget:
        node_id = list(self.rows)[row]
        node = self._fleet.nodes.get(node_id)
        return AlertTarget(node_id, node_id, node_id if node is None else node.hello.host)


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
