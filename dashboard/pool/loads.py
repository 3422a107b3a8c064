"""Load of nodes in the last ten minutes, for the strategies that go by it."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from gpudeck.measures.metrics import Absence
from gpudeck.pool.core.inventory import MeasuredLoad
from gpudeck.pool.core.strategies import STRATEGIES

from ..fleet.fleet import Fleet, GpuStatus

EVERY_S, SPAN_S = 20.0, 600.0


@dataclass(slots=True)
class NodeLoads:
    """Load of each node, measured only while a strategy needs it: in the first ten minutes it is
    the mean since then."""

    fleet: Fleet
    _looks: deque[tuple[float, Mapping[str, float]]] = field(init=False, default_factory=deque)

    def of(self, strategy: str, node_ids: Sequence[str], mono: float) -> dict[str, MeasuredLoad]:
        """Return the loads; nothing where the strategy does not go by them. Of a node whose GPUs
        say nothing the utilization is None."""
        if not STRATEGIES[strategy].is_measured:
            self._looks.clear()
            return {}
        if not self._looks or mono - self._looks[-1][0] >= EVERY_S:
            self._looks.append((mono, self._utilization(mono)))
        while mono - self._looks[0][0] > SPAN_S:
            self._looks.popleft()
        return {node_id: MeasuredLoad(self._mean(node_id), self._tasks(node_id))
                for node_id in node_ids}

    def _mean(self, node_id: str) -> float | None:
        """Return the mean in whole percent: finer values mean nothing, and set every node apart."""
        values = [look[node_id] for _, look in self._looks if node_id in look]
        return float(round(fmean(values))) if values else None

    def _tasks(self, node_id: str) -> int:
        node = self.fleet.nodes.get(node_id)
        return len(node.tasks) if node is not None and node.are_tasks_known else 0

    def _utilization(self, mono: float) -> Mapping[str, float]:
        """Return the mean of each node's GPUs now."""
        column = self.fleet.column("util_pct", mono)
        slots = np.flatnonzero((self.fleet.statuses(mono) == GpuStatus.OK)
                               & (column.absent == Absence.PRESENT)
                               & ~self.fleet.viewed[: len(self.fleet)])
        at, count = self.fleet.node_at[slots], len(self.fleet.node_ids)
        numbers = np.bincount(at, minlength=count)
        sums = np.bincount(at, column.values[slots], minlength=count)
        return {self.fleet.node_ids[place]: float(sums[place] / numbers[place])
                for place in np.flatnonzero(numbers)}
