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
    failed: dict[str, str] = field(init=False, default_factory=dict)  # claim to why
    _began: dict[str, float] = field(init=False, default_factory=dict)  # monotonic; never twice

    def begin(self, claim: Claim, free: Mapping[str, Node], leases: Sequence[Lease],
              least_run_s: float, now: float, mono: float) -> Preemption | None:
        """For the head of the queue: who makes room for it, if anybody does."""
        if claim.id in self._began or len(self.all) >= AT_ONCE:
            return None
        taken = {each.id for found in self.all.values() for each in found.victims}
        found = preemption(claim, free, [each for each in leases if each.id not in taken],
                           least_run_s, now)
        if found is not None:
            self.all[claim.id] = found
            self._began[claim.id] = mono
        return found

    def renew(self, waiting: Collection[str], stopped: Mapping[str, str], mono: float) -> None:
        """What was begun for a claim ends with its waiting, or when one of those who have to go
        cannot be made to. `stopped`: lease to why."""
        for claim_id, found in list(self.all.items()):
            if whys := [stopped[each.id] for each in found.victims if each.id in stopped]:
                del self.all[claim_id]
                self.failed[claim_id] = f"no GPUs are taken back for it: {whys[0]}"
        self.failed = {claim_id: why for claim_id, why in self.failed.items()
                       if claim_id in waiting}
        self._began = {claim_id: at for claim_id, at in self._began.items() if claim_id in waiting}
        self.all = {claim_id: found for claim_id, found in self.all.items()
                    if claim_id in waiting and mono - self._began[claim_id] < GIVE_UP_S}

    def of_node(self, node_id: str) -> dict[str, str]:
        """Lease to why it is taken back."""
        return {each.id: why(found) for found in self.all.values() for each in found.victims
                if each.grants[0].node == node_id}

    @property
    def notes(self) -> dict[str, str]:
        """Claim to how it is with what is taken back for it."""
        return self.failed | {claim_id: f"{len(found.victims)} "
                              f"lease{'s are' if len(found.victims) > 1 else ' is'} being taken "
                              "back for it" for claim_id, found in self.all.items()}

    def victims(self) -> Iterator[tuple[Preemption, Lease]]:
        for found in self.all.values():
            for each in found.victims:
                yield found, each


def why(found: Preemption) -> str:
    claim = found.claim
    return (f"{claim.owner} has asked for {words(claim)} with priority {claim.priority}, and this "
            "lease may be taken back for that")
