"""Collection of all targets of rules at one moment."""

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
        """Return the identity of a row, at less cost than its whole name."""

    def matters_to(self, row: int) -> list[tuple[str, str]]: ...


class RuleTargetCollector:
    """Keeps from one step to the next which row stands for which target."""

    def __init__(self, fleet: Fleet, events: RecentEvents) -> None:
        self._fleet = fleet
        self._uses = GpuUseTable(fleet)
        self._xids = XidCounter(events)
        self._hands = fleet.hands

    def prepare(self) -> Iterator[None]:
        """Prepare the expensive part of the next step in parts. A step that was not prepared does
        all of it."""
        return self._uses.prepare()

    def look(self, now: float, mono: float, listens_since: float,
             revoked: Collection[str] = (), hub: HubSelfMetrics = CALM,
             unused: Callable[[], Mapping[str, float]] = dict) -> Mapping[Of, NamedRuleTargets]:
        """Return all targets, by kind. `revoked`: nodes whose silence is no news. `unused`: GPUs
        allocated without a process, by node."""
        uses = self._uses
        uses.look()
        self._xids.look(now)
        fresh = np.flatnonzero(self._fleet.hand[: len(self._fleet)] > self._hands)
        self._hands = self._fleet.hands
        moment = EvaluationContext(self._fleet, now, mono, listens_since, uses, self._xids, fresh,
                                   hub, frozenset(revoked), unused)
        return {
            "gpu": GpuTargets(moment),
            "task": WorkloadTargets(moment, "task", uses.tasks, uses.row),
            "job": WorkloadTargets(moment, "job", uses.jobs, uses.job[uses.row]),
            "owner": WorkloadTargets(moment, "owner", uses.owners, uses.owner[uses.row]),
            "node": NodeTargets(moment),
            "fleet": FleetTarget(moment),
        }
