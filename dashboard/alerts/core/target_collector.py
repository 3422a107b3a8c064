"""All that Rules can be about, at one moment."""

from collections.abc import Collection, Mapping
from typing import Protocol

from ...fleet.events import Events
from ...fleet.fleet import Fleet
from .firing_alerts import Named
from .gpu_targets import CALM, GpuScene, HubSays, Moment
from .gpu_uses import UseTable
from .node_targets import FleetScene, NodeScene
from .rule import Of
from .rule_tracker import Scene
from .workload_targets import UseScene
from .xid_counts import Xids


class NamedScene(Scene, Protocol):
    def name(self, row: int) -> Named: ...

    def identity(self, row: int) -> str:
        """Who that is, at less cost than its whole name."""

    def matters_to(self, row: int) -> list[tuple[str, str]]: ...


class Scenes:
    """What is kept from one look to the next: whose row is whose."""

    def __init__(self, fleet: Fleet, events: Events) -> None:
        self._fleet = fleet
        self._uses = UseTable(fleet)
        self._xids = Xids(events)

    def look(self, now: float, mono: float, listens_since: float,
             left: Collection[str] = (), hub: HubSays = CALM) -> Mapping[Of, NamedScene]:
        """`left`: Nodes that were sent away."""
        self._uses.look()
        self._xids.look(now)
        moment = Moment(self._fleet, now, mono, listens_since, self._uses, self._xids,
                        hub)
        return self._of(moment, frozenset(left))

    def _of(self, moment: Moment, left: frozenset[str]) -> Mapping[Of, NamedScene]:
        uses = self._uses
        return {
            "gpu": GpuScene(moment),
            "task": UseScene(moment, "task", uses.tasks, uses.row),
            "job": UseScene(moment, "job", uses.jobs, uses.job[uses.row]),
            "owner": UseScene(moment, "owner", uses.owners, uses.owner[uses.row]),
            "node": NodeScene(moment, left),
            "fleet": FleetScene(moment, left),
        }
