"""Backfill by how long runs took before, where a site has switched that on. Pure.

Only what is kept for the head of the queue is at stake, and only by as much as a run outlives its
prediction. What is reserved goes by terms, as ever."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpudeck.pool.core.claims import Claim, Lease, expected_end
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import Placement, Placer


@dataclass(slots=True)
class PredictedBackfill:
    """Backfill in one pass. `predicted_s`: of claims and leases, by id, how long they probably take
    in all."""

    predicted_s: Mapping[str, float]
    _placer_of: Callable[[Iterable[Node]], Placer]
    _now: float
    _until: float = field(init=False, default=0.0)
    _placer: Placer | None = field(init=False, default=None)  # as if nothing were kept for the head
    _full: set[tuple[object, ...]] = field(init=False, default_factory=set)

    def ends(self, leases: Iterable[Lease]) -> list[Lease]:
        """Return the leases with the ends that are predicted, never later than by their terms."""
        return [lease if lease.id not in self.predicted_s else replace(lease, until=min(
            expected_end(lease, self._now),
            max(lease.since + self.predicted_s[lease.id], self._now + 1.0))) for lease in leases]

    def begin(self, placer: Placer, until: float) -> None:
        """Begin, before anything is kept in `placer` for the head, which begins at `until`."""
        self._placer, self._until = self._placer_of(placer.nodes.values()), until

    def find(self, claim: Claim, wants: tuple[object, ...], closed: Container[str]
             ) -> Placement | None:
        """Find GPUs for a claim that probably ends by then."""
        took_s = self.predicted_s.get(claim.id)
        if self._placer is None or took_s is None or self._now + took_s > self._until or (
                wants in self._full):
            return None
        placement = self._placer.find(claim, self._now, closed)
        if placement is None:
            self._full.add(wants)
        return placement

    def take(self, placement: Placement) -> None:
        if self._placer is not None:
            take(self._placer, placement)


def take(placer: Placer, placement: Placement) -> None:
    """Take GPUs, also those that another placer has found: each keeps other GPUs for somebody."""
    exact = placer.exactly(placement.claim, placement.grants)
    assert exact is not None, "it was free a moment ago"
    placer.take(exact)
