"""Queries of the pool, by what an actor may see."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpudeck.contract.pool_link import OutsideUse
from gpudeck.pool.core.claims import Claim

from ..fleet.visibility import VisibleFleet
from .plan import PoolNode
from .service import PoolService


def due(claims: Iterable[Claim], now: float) -> list[Claim]:
    """Return all claims but reservations whose time has not come."""
    return [claim for claim in claims if claim.starts_at is None or claim.starts_at <= now]


@dataclass(frozen=True, slots=True)
class PoolQueries:
    service: PoolService

    def nodes(self, visible: VisibleFleet) -> list[PoolNode]:
        return [node for node in self.service.nodes if visible.sees_node(node.id)]

    def outside(self, node_id: str) -> tuple[OutsideUse, ...]:
        """Return who uses GPUs of that node without a lease."""
        return next((node.report.outside for node in self.service.nodes if node.id == node_id), ())

    def waiting(self, visible: VisibleFleet, own: Collection[str]) -> list[Claim]:
        """Return waiting claims, with those that nodes are being asked to take."""
        service = self.service
        return self.visible_claims(
            [*service.waiting(service.nodes),
             *(offer.claim for offer in service.pending.values())], visible, own)

    def places(self, visible: VisibleFleet, own: Collection[str]) -> Mapping[str, int]:
        """Return, for who sees a part of the fleet, the places in the queue among the claims that
        they see; others are not counted. None for who sees all."""
        planned = self.service.planned
        if planned is None or visible.is_whole:
            return {}
        visible_ids = {claim.id for claim in self.waiting(visible, own)}
        return {claim_id: place for place, claim_id in enumerate(
            (claim_id for claim_id in planned.outcome.order if claim_id in visible_ids), 1)}

    def visible_claims(self, claims: Collection[Claim], visible: VisibleFleet, own: Collection[str]
                       ) -> list[Claim]:
        """Return the visible claims. One that any node could meet is visible to those who see them
        all, and to its owner."""
        nodes = self.nodes(visible)
        names = {name for node in nodes for name in (node.id, node.host)}
        sees_all = visible.is_whole or 0 < len(nodes) == len(self.service.nodes)
        return [claim for claim in claims if claim.owner in own or (
            names.issuperset(claim.hosts) if claim.hosts else sees_all)]
