"""GPU memory that a tenant has: of boards and MIG instances that it shares with others, its part.
Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import WHOLE_MILLI, Claim

Users = dict[str, float | None]  # bytes by user; None: not known
NOBODYS = ""  # user of tasks whose owner is not known


@dataclass(slots=True)
class HeldMemory:
    """Memory of each GPU, by its slot: of the GPU, used by tasks, and leased."""

    total: dict[int, float | None] = field(default_factory=dict)
    uses: dict[int, Users] = field(default_factory=dict)
    leases: dict[int, Users] = field(default_factory=dict)
    slots_of: dict[str, set[int]] = field(default_factory=dict)

    def add_use(self, user: str | None, slot: int, total: float | None, amount: float | None
                ) -> None:
        """`user` None: whose task it is, is not known; the GPU is then not the tenant's alone."""
        self._add(NOBODYS if user is None else user, slot, total, amount, self.uses)

    def add_lease(self, claim: Claim, slot: int, total: float | None) -> None:
        self._add(claim.owner, slot, total, leased_bytes(claim, total), self.leases)

    def _add(self, user: str, slot: int, total: float | None, amount: float | None,
             to: dict[int, Users]) -> None:
        self.total[slot] = total
        self.slots_of.setdefault(user, set()).add(slot)
        users = to.setdefault(slot, {})
        had = users.get(user, 0.0)
        users[user] = None if had is None or amount is None else had + amount

    def of(self, members: Collection[str]) -> float | None:
        """Return the bytes that these users have together; None: a part of it is not known. A GPU
        on which nobody else is counts whole, whatever of it they use."""
        amounts = [self._on(slot, members)
                   for slot in {slot for user in members for slot in self.slots_of.get(user, ())}]
        return _total(amounts)

    def _on(self, slot: int, members: Collection[str]) -> float | None:
        uses, leases = self.uses.get(slot, {}), self.leases.get(slot, {})
        if uses.keys() | leases.keys() <= {*members}:
            return self.total[slot]
        # What is leased to others is theirs, also while they do not use it.
        parts = [_part(user, leases, uses) for user in members if user in leases or user in uses]
        return _total(parts)


def _part(user: str, leases: Mapping[str, float | None], uses: Mapping[str, float | None]
          ) -> float | None:
    return leases[user] if user in leases else uses[user]


def _total(amounts: Sequence[float | None]) -> float | None:
    numbers = [amount for amount in amounts if amount is not None]
    return sum(numbers) if len(numbers) == len(amounts) else None


def leased_bytes(claim: Claim, total: float | None) -> float | None:
    """Return the memory that a lease gives of a GPU; None: not known."""
    if not claim.is_share:
        return total
    if claim.mem_bytes is not None:
        return float(claim.mem_bytes)
    return None if total is None else total * claim.share_milli / WHOLE_MILLI
