"""All that Rules can be about, at one moment."""

from collections.abc import Collection, Mapping
from typing import Protocol

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

    def look(self, now: float, mono: float, listens_since: float,
             left: Collection[str] = (), hub: HubSelfMetrics = CALM
             ) -> Mapping[Of, NamedRuleTargets]:
        """`left`: Nodes that were sent away."""
        uses = self._uses
        uses.look()
        self._xids.look(now)
        moment = EvaluationContext(self._fleet, now, mono, listens_since, uses, self._xids, hub,
                                   frozenset(left))
        return {
            "gpu": GpuTargets(moment),
            "task": WorkloadTargets(moment, "task", uses.tasks, uses.row),
            "job": WorkloadTargets(moment, "job", uses.jobs, uses.job[uses.row]),
            "owner": WorkloadTargets(moment, "owner", uses.owners, uses.owner[uses.row]),
            "node": NodeTargets(moment),
            "fleet": FleetTarget(moment),
        }
