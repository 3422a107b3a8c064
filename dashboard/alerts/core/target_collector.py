"""All that Rules can be about, at one moment."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

import numpy as np

from ...fleet.events import RecentEvents
from ...fleet.fleet import Fleet
from .firing_alerts import AlertTarget
from .gpu_targets import CALM, EvaluationContext, GpuTargets, HubSelfMetrics
from .gpu_uses import GpuUseTable
from .node_targets import FleetTarget, NodeTargets
from .rule import Of
from .rule_tracker import RuleTargets
from .workload_targets import WorkloadTargets
from .xid_counts import XidCounter


class NamedRuleTargets(RuleTargets, Protocol):
    def name(self, row: int) -> AlertTarget: ...

    def identity(self, row: int) -> str:
        """Who that is, at less cost than its whole name."""

    def matters_to(self, row: int) -> list[tuple[str, str]]: ...


class RuleTargetCollector:
    """What is kept from one look to the next: whose row is whose."""

    def __init__(self, fleet: Fleet, events: RecentEvents) -> None:
        self._fleet = fleet
        self._uses = GpuUseTable(fleet)
        self._xids = XidCounter(events)
        self._hands = fleet.hands

    def prepare(self) -> Iterator[None]:
        """Of the next look, what takes long, in parts. A look that was not prepared does it all."""
        return self._uses.prepare()

    def look(self, now: float, mono: float, listens_since: float,
             left: Collection[str] = (), hub: HubSelfMetrics = CALM,
             unused: Callable[[], Mapping[str, float]] = dict) -> Mapping[Of, NamedRuleTargets]:
        """`left`: Nodes that were sent away. `unused`: allocated without a process."""
        uses = self._uses
        uses.look()
        self._xids.look(now)
        fresh = np.flatnonzero(self._fleet.hand[: len(self._fleet)] > self._hands)
        self._hands = self._fleet.hands
        moment = EvaluationContext(self._fleet, now, mono, listens_since, uses, self._xids, fresh,
                                   hub, frozenset(left), unused)
        return {
            "gpu": GpuTargets(moment),
            "task": WorkloadTargets(moment, "task", uses.tasks, uses.row),
            "job": WorkloadTargets(moment, "job", uses.jobs, uses.job[uses.row]),
            "owner": WorkloadTargets(moment, "owner", uses.owners, uses.owner[uses.row]),
            "node": NodeTargets(moment),
            "fleet": FleetTarget(moment),
        }
