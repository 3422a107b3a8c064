"""Tasks, nodes and GPUs that alerts are about, at one moment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.rule import ACTED_ON
from ..alerts.service import AlertService
from ..fleet.fleet import Node
from ..fleet.mig import NO_PARENT


@dataclass(frozen=True, slots=True)
class AlertTargets:
    """The open alerts of one moment, each with its row among the targets of its rule."""

    alerts: AlertService
    mono: float
    open: Sequence[tuple[int, Alert]]
    _matters: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _gpus_of: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def task_ids(self, row: int, alert: Alert) -> tuple[str, ...]:
        return tuple(task_id for node_id, task_id in self.tasks(row, alert)
                     if node_id == alert.target.node_id)

    def tasks(self, row: int, alert: Alert) -> list[tuple[str, str]]:
        """Return all tasks that would be acted on; nothing can be ended for a GPU or a node."""
        if alert.id not in self._matters:
            self._matters[alert.id] = (
                self.alerts.matters_to(alert.of, row) if alert.of in ACTED_ON else [])
        return self._matters[alert.id]

    def age_s(self, alert: Alert, task_ids: tuple[str, ...]) -> float | None:
        """Return the age of the oldest number that counts; 0 for targets without GPUs, as those are
        known now."""
        if alert.of not in ("gpu", "task", "job"):
            return 0.0
        node = self.alerts.fleet.nodes.get(alert.target.node_id)
        if node is None:
            return None
        slots = self.slots(node, alert, task_ids)
        age_s = max((self.mono - float(self.alerts.fleet.sampled_mono[slot]) for slot in slots),
                    default=math.inf)
        return max(age_s, 0.0) if math.isfinite(age_s) else None

    def slots(self, node: Node, alert: Alert, task_ids: tuple[str, ...]) -> set[int]:
        if alert.of == "gpu":
            slot = self.alerts.fleet.slot_on(node.hello.node_id, alert.target.key)
            return set() if slot is None else {slot}
        order = [] if node.listing is None else node.listing.order
        return {order[use.gpu] for use in node.uses
                if use.task_id in task_ids and use.gpu < len(order)}

    def gpus(self, row: int, alert: Alert) -> set[tuple[str, str]]:
        """Return the nodes and UUIDs of its GPUs, on all nodes of a job, and the boards of MIG
        instances."""
        if alert.id in self._gpus_of:
            return self._gpus_of[alert.id]
        fleet, gpus = self.alerts.fleet, {(alert.target.node_id, alert.target.key)}
        for node_id, task_ids in self._by_node(row, alert).items():
            node = fleet.nodes.get(node_id)
            if node is not None:
                slots = self.slots(node, alert, task_ids)
                boards = {int(fleet.parent[slot]) for slot in slots} - {NO_PARENT}
                gpus |= {(node_id, fleet.uuids[slot]) for slot in slots | boards}
        self._gpus_of[alert.id] = gpus
        return gpus

    def _by_node(self, row: int, alert: Alert) -> dict[str, tuple[str, ...]]:
        task_ids: dict[str, tuple[str, ...]] = {alert.target.node_id: ()}
        for node_id, task_id in self.tasks(row, alert):
            task_ids[node_id] = (*task_ids.get(node_id, ()), task_id)
        return task_ids
