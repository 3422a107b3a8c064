"""What of the pool is seen by whom."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.link import OutsideUse

from ..fleet.visibility import VisibleFleet
from .plan import PoolNode
from .service import PoolService


def due(claims: Iterable[Claim], now: float) -> list[Claim]:
    """All but reservations of which the time has not come."""
    return [each for each in claims if each.starts_at is None or each.starts_at <= now]


@dataclass(frozen=True, slots=True)
class PoolQueries:
    service: PoolService

    def nodes(self, visible: VisibleFleet) -> list[PoolNode]:
        return [node for node in self.service.nodes if visible.sees_node(node.id)]

    def outside(self, node_id: str) -> tuple[OutsideUse, ...]:
        """Who uses GPUs of that node without a lease."""
        return next((node.report.outside for node in self.service.nodes if node.id == node_id), ())

    def waiting(self, visible: VisibleFleet, own: Collection[str]) -> list[Claim]:
        """With those that nodes are being asked to take."""
        service = self.service
        return self.seen([*service.waiting(service.nodes),
                          *(each.claim for each in service.pending.values())], visible, own)

    def seen(self, claims: Collection[Claim], visible: VisibleFleet, own: Collection[str]
             ) -> list[Claim]:
        """A claim that any node could meet is seen by those who see them all, and by its owner."""
        nodes = self.nodes(visible)
        names = {name for node in nodes for name in (node.id, node.host)}
        sees_all = len(nodes) == len(self.service.nodes)
        return [each for each in claims if each.owner in own or (
            names.issuperset(each.hosts) if each.hosts else sees_all)]
