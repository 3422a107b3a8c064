"""REST of the pool."""

import time
from dataclasses import dataclass

from ..access.policy import Role
from ..access.requests import asker
from ..access.routes import Route, see
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import page
from . import views
from .plan import PoolNode
from .service import PoolService


@dataclass(frozen=True, slots=True)
class PoolApi:
    service: PoolService
    visible_fleets: VisibleFleetCache

    def _nodes(self) -> list[PoolNode]:
        visible = self.visible_fleets.seen_by(asker())
        return [node for node in self.service.nodes if visible.sees_node(node.id)]

    def pool(self) -> views.PoolView:
        nodes = self._nodes()
        return views.pool_view(nodes, self.service.waiting(nodes), self.service.policy.strategy,
                               self.service.is_on)

    def leases(self) -> views.LeaseList:
        return views.LeaseList(*page(views.lease_views(self._nodes(), time.time()),
                                     lambda each: each.id))

    def claims(self) -> views.ClaimList:
        nodes = self._nodes()
        made = self.service.made
        found = [] if made is None else views.claim_views(
            {each.id: each for each in self.service.waiting(nodes)}, made, nodes,
            self.service.pending, time.time())
        return views.ClaimList(*page(found, lambda each: each.id))


ROUTES = (
    Route("GET pool", PoolApi.pool, "get_pool", see(Role.VIEWER),
          "What the pool has by model: free, leased, not given out; how much is waited for."),
    Route("GET leases", PoolApi.leases, "list_leases", see(Role.VIEWER),
          "Who holds which GPUs until when, and since when a lease is not used.", is_list=True),
    Route("GET claims", PoolApi.claims, "list_claims", see(Role.VIEWER),
          "The queue in its order: who waits for what, why, and for how long at most.",
          is_list=True),
)
