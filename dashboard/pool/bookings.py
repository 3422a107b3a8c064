"""What the hub keeps for claims whose time is to come, or for which others make room."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gpudeck.pool.core.claims import Booking, Claim, Lease
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.preemption import Preemption
from gpudeck.pool.core.reservations import ReservationError, moved, reserve, reserved_from
from gpudeck.times import utc_words

from ..errors import InvalidChangeError
from .store import PoolStore

log = logging.getLogger("gpudeck.pool")

BOOKINGS_MOST = 1_024


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
        try:
            self._put(reserve(claim, well, leases, self.all.values(), BOOKINGS_MOST, strategy, now))
        except ReservationError as why:
            raise InvalidChangeError(str(why) + (
                "" if why.first is None else f"; they are from {utc_words(why.first)}")) from why

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
        if claim.id not in self.all:  # a reservation has its own, from its own time on
            self.all[claim.id] = Booking(claim, (preemption.grant,), now)

    def renew(self, waiting: Collection[str], preempting: Collection[str], well: Sequence[Node],
              leases: Collection[Lease], strategy: str, now: float) -> list[Claim]:
        """`waiting`: claims that still want what is kept for them. Returns those that are over."""
        for each in list(self.all.values()):
            if each.claim.id not in waiting or (
                    each.claim.starts_at is None and each.claim.id not in preempting):
                self.drop(each.claim.id)
        over = [each.claim for each in self.all.values() if each.ends_at <= now]
        for each in list(moved(self.all.values(), well, leases, strategy, now)):
            log.info("reservation_moved claim=%s", each.claim.id)
            self._put(each)
        return over

    def forget_refused(self, known: Collection[str]) -> None:
        """`known`: claims that wait, or that a node which is away has said last: it may be back at
        any time, and says nothing new at first."""
        self.never = {claim_id: why for claim_id, why in self.never.items() if claim_id in known}

    def kept(self, claim_id: str) -> frozenset[str]:
        """GPUs."""
        booking = self.all.get(claim_id)
        return frozenset() if booking is None else booking.uuids

    @property
    def reservations(self) -> list[Booking]:
        return [each for each in self.all.values() if each.claim.starts_at is not None]

    @property
    def reserved(self) -> dict[str, float]:
        return reserved_from(self.reservations)

    def drop(self, claim_id: str) -> None:
        if self.all.pop(claim_id, None) is not None:
            self.store.remove_booking(claim_id)

    def _put(self, booking: Booking) -> None:
        self.store.put_booking(booking)
        self.all[booking.claim.id] = booking
