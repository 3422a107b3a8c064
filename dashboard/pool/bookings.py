"""What the hub keeps for claims whose time is to come, or for which others make room."""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import Booking, Claim, Lease
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import PlacementContext
from gpudeck.pool.core.preemption import Preemption
from gpudeck.pool.core.reservations import book, first_start

from ..errors import InvalidChangeError
from .store import PoolStore

log = logging.getLogger("gpudeck.pool")

MOVE_WITHIN_S = 600.0  # until then what is kept for it may become well again
AHEAD_MOST_S = 90 * 86_400.0
BOOKINGS_MOST = 1_024
_ANY = PlacementContext(mix=ClaimMix(()))


@dataclass(slots=True)
class PoolBookings:
    store: PoolStore
    all: dict[str, Booking] = field(init=False, default_factory=dict)  # by claim
    never: dict[str, str] = field(init=False, default_factory=dict)  # claim to why

    def open(self) -> None:
        self.all = {each.claim.id: each for each in self.store.bookings()}

    def reserve(self, claim: Claim, well: Sequence[Node], leases: Collection[Lease], strategy: str,
                now: float) -> None:
        """Raises InvalidChangeError where it cannot be kept, and says when it could."""
        assert claim.starts_at is not None
        why = _why_not(claim, claim.starts_at - now, len(self.all))
        if why:
            raise InvalidChangeError(why)
        given = well, leases, self.all.values(), strategy, _ANY, now
        grants = book(claim, claim.starts_at, *given)
        if grants is None:
            first = first_start(claim, claim.starts_at, *given)
            raise InvalidChangeError("not enough matching GPUs are free for all of that time" + (
                "" if first is None else f"; they are from {_utc(first)}"))
        self._put(Booking(claim, grants, claim.starts_at))

    def try_reserve(self, claim: Claim, well: Sequence[Node], leases: Collection[Lease],
                    strategy: str, now: float) -> bool:
        """Once: its node tells whoever asked, and drops it."""
        if claim.id in self.never:
            return False
        try:
            self.reserve(claim, well, leases, strategy, now)
        except InvalidChangeError as why:
            self.never[claim.id] = str(why)
            return False
        return True

    def make_room(self, preemption: Preemption, now: float) -> None:
        """Not kept over a restart: who has to go is then looked at anew."""
        claim = preemption.claim
        self.all[claim.id] = Booking(claim, (preemption.grant,), now)

    def renew(self, waiting: Collection[str], preempting: Collection[str], well: Sequence[Node],
              leases: Collection[Lease], strategy: str, now: float) -> list[Claim]:
        """`waiting`: claims that still want what is kept for them. Returns those that are over."""
        for each in list(self.all.values()):
            if each.claim.id not in waiting or (
                    each.claim.starts_at is None and each.claim.id not in preempting):
                self.drop(each.claim.id)
        self.never = {claim_id: why for claim_id, why in self.never.items() if claim_id in waiting}
        over = [each.claim for each in self.all.values() if each.ends_at <= now]
        there = {uuid for node in well for uuid in node.uuids}
        for each in list(self.all.values()):
            if now < each.starts_at <= now + MOVE_WITHIN_S and not each.uuids <= there:
                others = [other for other in self.all.values() if other is not each]
                grants = book(each.claim, each.starts_at, well, leases, others, strategy, _ANY, now)
                if grants is not None:
                    log.info("reservation_moved claim=%s", each.claim.id)
                    self._put(Booking(each.claim, grants, each.starts_at))
        return over

    def kept(self, claim_id: str) -> frozenset[str]:
        """GPUs."""
        booking = self.all.get(claim_id)
        return frozenset() if booking is None else booking.uuids

    def drop(self, claim_id: str) -> None:
        if self.all.pop(claim_id, None) is not None:
            self.store.remove_booking(claim_id)

    def _put(self, booking: Booking) -> None:
        self.store.put_booking(booking)
        self.all[booking.claim.id] = booking


def _why_not(claim: Claim, ahead_s: float, there: int) -> str:
    if claim.is_share:
        return "a reservation is for whole GPUs: leave share out"
    if ahead_s < 0:
        return "its start is in the past"
    if ahead_s > AHEAD_MOST_S:
        return f"it starts in more than {AHEAD_MOST_S / 86_400:.0f} days"
    return "" if there < BOOKINGS_MOST else f"there are {BOOKINGS_MOST} reservations already"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at + 59.999))
