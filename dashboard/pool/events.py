"""Events of the pool for the rest of the hub."""

from dataclasses import dataclass

from gpudeck.contract.pool_link import ClaimStanding, ReportedEnd, ReportedLease
from gpudeck.pool.core.claims import Claim


@dataclass(frozen=True, slots=True)
class LeaseChanged:
    """A lease was granted, is held otherwise than before, or has ended. `end` None of one that
    `is_held` no more: its node has not said how."""

    node_id: str
    lease: ReportedLease
    is_held: bool
    end: ReportedEnd | None = None


@dataclass(frozen=True, slots=True)
class ClaimChanged:
    """A claim has begun to wait. `standing` None: it waits no more."""

    claim: Claim
    standing: ClaimStanding | None
