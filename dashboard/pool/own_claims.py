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
        self.all: dict[str, Claim] = {each.id: each for each in store.claims()}
        self._offered: dict[str, set[str]] = {}
        for claim_id, node_id in store.offered():
            self._offered.setdefault(claim_id, set()).add(node_id)

    def put(self, claim: Claim) -> None:
        self._store.put_claim(claim)
        self.all[claim.id] = claim

    def remove(self, claim_id: str) -> None:
        self.all.pop(claim_id, None)  # whatever the store says: it must not be met twice
        self._offered.pop(claim_id, None)
        self._removed.add(claim_id)
        self.remove_stored()

    def remove_stored(self) -> None:
        for claim_id in list(self._removed):
            self._store.remove_claim(claim_id)
            self._removed.discard(claim_id)

    def offer(self, offers: Collection[Placement]) -> None:
        those = [(each.claim.id, grant.node) for each in offers if each.claim.id in self.all
                 for grant in each.grants]
        if those:
            self._store.put_offered(those)
        for claim_id, node_id in those:
            self._offered.setdefault(claim_id, set()).add(node_id)

    def is_offered(self, claim_id: str, node_id: str) -> bool:
        return node_id in self._offered.get(claim_id, ())

    def as_of(self, node_id: str, pending: Mapping[str, PendingOffer]) -> HubClaims:
        own = {each.id for each in self.all.values() if each.hosts == (node_id,)}
        offered = {each for each, nodes in self._offered.items() if node_id in nodes}
        asked = {each for each, offer in pending.items()
                 if any(grant.node == node_id for grant in offer.grants)}
        return HubClaims(self.all, own, own | offered | asked)
