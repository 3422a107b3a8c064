"""Reservations that this node keeps, while no hub decides about its GPUs."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import msgspec

from gpudeck.pool.core.claims import Booking, Claim, Grant, Lease
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.reservations import moved, reserve

from ..journal.facts import Fact
from ..journal.store import ActionJournal
from .clock import PoolClock

log = logging.getLogger("gpudeck.agent.pool")

MOST = 64


class StoredReservation(msgspec.Struct, frozen=True):
    """Reservation on disk. `starts_at`: UTC, to stay valid after the machine has restarted."""

    claim: Claim
    uuids: tuple[str, ...]
    uid: int
    starts_at: float


class NodeReservations:
    """Reservations of this node. Each change is on disk with its audit record before it counts.
    Raises JournalError where that fails."""

    def __init__(self, journal: ActionJournal, node_id: str, clock: PoolClock) -> None:
        self._journal = journal
        self._node_id = node_id
        self._clock = clock
        self._all: dict[str, StoredReservation] = {}

    def read(self) -> None:
        """Read the reservations. Raises JournalError. What is not understood is recorded, and not
        kept."""
        text = self._journal.fact(Fact.POOL_RESERVATIONS)
        try:
            stored = msgspec.json.decode(text or "[]", type=list[StoredReservation])
        except msgspec.MsgspecError as error:
            log.error("reservations_not_understood why=%r", str(error))
            self._journal.keep(Fact.POOL_RESERVATIONS, None, {
                "pool": "unread", "reservations": (text or "")[:2_000], "why": str(error)})
            return
        self._all = {reservation.claim.id: self._of_now(reservation) for reservation in stored}

    def _of_now(self, stored: StoredReservation) -> StoredReservation:
        """Return a reservation with its claim by the clock of this boot."""
        starts_at = self._clock.own(stored.starts_at)
        return msgspec.structs.replace(stored, claim=replace(
            stored.claim, starts_at=starts_at,
            submitted_at=min(self._clock.now(), stored.claim.submitted_at)))

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[StoredReservation]:
        return iter(tuple(self._all.values()))

    def get(self, claim_id: str) -> StoredReservation | None:
        return self._all.get(claim_id)

    def bookings(self) -> list[Booking]:
        return [Booking(reservation.claim, (Grant(self._node_id, reservation.uuids),),
                        reservation.claim.starts_at or 0.0) for reservation in self._all.values()]

    def reserve(self, claim: Claim, uid: int, well: Node, unread: Callable[[], Node],
                leases: Collection[Lease], strategy: str) -> StoredReservation:
        """Reserve GPUs for a claim. `unread`: the node with what is well and what has lately not
        been read. Raises ReservationError where they cannot be kept, or not yet."""
        booking = reserve(claim, [well], lambda: [unread()], leases, self.bookings(), MOST,
                          strategy, self._clock.now())
        reservation = StoredReservation(claim, _uuids(booking), uid,
                                        self._clock.utc(booking.starts_at))
        self._put(reservation, "reserved")
        return reservation

    def renew(self, well: Sequence[Node], leases: Collection[Lease], strategy: str) -> None:
        now = self._clock.now()
        for booking in self.bookings():
            if booking.ends_at <= now:
                self.drop(booking.claim.id, "its time is over")
        for booking in list(moved(self.bookings(), well, leases, strategy, now)):
            self._put(msgspec.structs.replace(
                self._all[booking.claim.id],
                uuids=_uuids(booking)), "moved")

    def drop(self, claim_id: str, why: str) -> None:
        if claim_id in self._all:
            after = {other_id: reservation for other_id, reservation in self._all.items()
                     if other_id != claim_id}
            self._write(after, {"pool": "unreserved", "claim": claim_id, "why": why})

    def _put(self, reservation: StoredReservation, what: str) -> None:
        self._write({**self._all, reservation.claim.id: reservation}, {
            "pool": what, "claim": reservation.claim.id, "owner": reservation.claim.owner,
            "uuids": list(reservation.uuids), "starts_at": reservation.starts_at})

    def _write(self, after: dict[str, StoredReservation], record: dict[str, object]) -> None:
        text = msgspec.json.encode(list(after.values())).decode()
        self._journal.keep(Fact.POOL_RESERVATIONS, text if after else None, record)
        self._all = after


def _uuids(booking: Booking) -> tuple[str, ...]:
    return tuple(sorted(uuid for _, uuid in booking.gpus))
