"""Claims that were made at the hub, and which nodes they were offered to: on disk before that, so
that a hub which starts again knows whose lease meets one of them."""

from collections.abc import Collection, Mapping

from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.placement import Placement

from .claim_ids import HubClaims
from .plan import PendingOffer
from .store import PoolStore


class OwnClaims:
    def __init__(self, store: PoolStore) -> None:
        self._store = store
        self._removed: set[str] = set()
        self.all: dict[str, Claim] = {claim.id: claim for claim in store.claims()}
        self._offered: dict[str, set[str]] = {}
        for claim_id, node_id in store.offered():
            self._offered.setdefault(claim_id, set()).add(node_id)

    def put(self, claim: Claim) -> None:
        self._store.put_claim(claim)
        self.all[claim.id] = claim

    def remove(self, claim_id: str) -> None:
        self.all.pop(claim_id, None)  # even if the store fails: it must not be met twice
        self._offered.pop(claim_id, None)
        self._removed.add(claim_id)
        self.remove_stored()

    def remove_stored(self) -> None:
        for claim_id in list(self._removed):
            self._store.remove_claim(claim_id)
            self._removed.discard(claim_id)

    def offer(self, offers: Collection[Placement]) -> None:
        pairs = [(offer.claim.id, grant.node) for offer in offers if offer.claim.id in self.all
                 for grant in offer.grants]
        if pairs:
            self._store.put_offered(pairs)
        for claim_id, node_id in pairs:
            self._offered.setdefault(claim_id, set()).add(node_id)

    def is_offered(self, claim_id: str, node_id: str) -> bool:
        return node_id in self._offered.get(claim_id, ())

    def as_of(self, node_id: str, pending: Mapping[str, PendingOffer]) -> HubClaims:
        own = {claim.id for claim in self.all.values() if claim.hosts == (node_id,)}
        offered = {claim_id for claim_id, nodes in self._offered.items() if node_id in nodes}
        pending_ids = {claim_id for claim_id, offer in pending.items()
                       if any(grant.node == node_id for grant in offer.grants)}
        return HubClaims(self.all, own, own | offered | pending_ids)
