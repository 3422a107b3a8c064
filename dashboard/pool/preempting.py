"""Leases that are being taken back for a claim of higher priority. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import Claim, Lease
from gpudeck.pool.core.feasibility import words
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.preemption import Preemption, preemption

AT_ONCE = 4
GIVE_UP_S = 1_800.0  # a lease that could not be ended by then will not be


@dataclass(slots=True)
class Preemptions:
    all: dict[str, Preemption] = field(init=False, default_factory=dict)  # by claim
    _began: dict[str, float] = field(init=False, default_factory=dict)  # monotonic; never twice

    def begin(self, claim: Claim, free: Mapping[str, Node], leases: Sequence[Lease], now: float,
              mono: float) -> Preemption | None:
        """For the head of the queue: who makes room for it, if anybody does."""
        if claim.id in self._began or len(self.all) >= AT_ONCE:
            return None
        taken = {each.id for found in self.all.values() for each in found.victims}
        found = preemption(claim, free, [each for each in leases if each.id not in taken], now)
        if found is not None:
            self.all[claim.id] = found
            self._began[claim.id] = mono
        return found

    def renew(self, waiting: Collection[str], mono: float) -> None:
        """What was begun for a claim ends with its waiting."""
        self._began = {claim_id: at for claim_id, at in self._began.items() if claim_id in waiting}
        self.all = {claim_id: found for claim_id, found in self.all.items()
                    if claim_id in waiting and mono - self._began[claim_id] < GIVE_UP_S}

    def of_node(self, node_id: str) -> dict[str, str]:
        """Lease to why it is taken back."""
        return {each.id: why(found) for found in self.all.values() for each in found.victims
                if each.grants[0].node == node_id}

    def victims(self) -> Iterator[tuple[Preemption, Lease]]:
        for found in self.all.values():
            for each in found.victims:
                yield found, each


def why(found: Preemption) -> str:
    claim = found.claim
    return (f"{claim.owner} has asked for {words(claim)} with priority {claim.priority}, and this "
            "lease may be taken back for that")
