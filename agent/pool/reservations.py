"""Reservations that this node keeps, while no hub decides about its GPUs."""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import msgspec

from gpudeck.pool.core.claims import Booking, Claim, Grant, Lease, uuids_of
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.reservations import moved, reserve

from ..journal.facts import Fact
from ..journal.store import ActionJournal
from .clock import PoolClock

log = logging.getLogger("gpudeck.agent.pool")

MOST = 64


class KeptReservation(msgspec.Struct, frozen=True):
    """`starts_at`: UTC, so that it is still meant after the machine was restarted."""

    claim: Claim
    uuids: tuple[str, ...]
    uid: int
    starts_at: float


class NodeReservations:
    """Each change is on disk with its audit record, before it counts. Raises JournalError where it
    cannot be."""

    def __init__(self, journal: ActionJournal, node_id: str, clock: PoolClock) -> None:
        self._journal = journal
        self._node_id = node_id
        self._clock = clock
        self._all: dict[str, KeptReservation] = {}

    def read(self) -> None:
        """Raises JournalError. A promise that is not understood is recorded, and not kept."""
        text = self._journal.fact(Fact.POOL_RESERVATIONS)
        try:
            stored = msgspec.json.decode(text or "[]", type=list[KeptReservation])
        except msgspec.MsgspecError as error:
            log.error("reservations_not_understood why=%r", str(error))
            self._journal.keep(Fact.POOL_RESERVATIONS, None, {
                "pool": "unread", "reservations": (text or "")[:2_000], "why": str(error)})
            return
        self._all = {each.claim.id: self._of_now(each) for each in stored}

    def _of_now(self, stored: KeptReservation) -> KeptReservation:
        """Its claim by the clock of this boot."""
        starts_at = self._clock.own(stored.starts_at)
        return msgspec.structs.replace(stored, claim=replace(
            stored.claim, starts_at=starts_at,
            submitted_at=min(self._clock.now(), stored.claim.submitted_at)))

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[KeptReservation]:
        return iter(tuple(self._all.values()))

    def get(self, claim_id: str) -> KeptReservation | None:
        return self._all.get(claim_id)

    def bookings(self) -> list[Booking]:
        return [Booking(each.claim, (Grant(self._node_id, each.uuids),),
                        each.claim.starts_at or 0.0) for each in self._all.values()]

    def reserve(self, claim: Claim, uid: int, well: Sequence[Node], leases: Collection[Lease],
                strategy: str) -> KeptReservation:
        """Raises ReservationError where it cannot be kept."""
        made = reserve(claim, well, leases, self.bookings(), MOST, strategy, self._clock.now())
        kept = KeptReservation(claim, tuple(sorted(made.uuids)), uid,
                               self._clock.utc(made.starts_at))
        self._put(kept, "reserved")
        return kept

    def renew(self, well: Sequence[Node], leases: Collection[Lease], strategy: str) -> None:
        now = self._clock.now()
        for each in self.bookings():
            if each.ends_at <= now:
                self.drop(each.claim.id, "its time is over")
        for each in list(moved(self.bookings(), well, leases, strategy, now)):
            self._put(msgspec.structs.replace(
                self._all[each.claim.id], uuids=tuple(sorted(uuids_of(each.grants)))), "moved")

    def drop(self, claim_id: str, why: str) -> None:
        if claim_id in self._all:
            after = {each: kept for each, kept in self._all.items() if each != claim_id}
            self._write(after, {"pool": "unreserved", "claim": claim_id, "why": why})

    def _put(self, kept: KeptReservation, what: str) -> None:
        self._write({**self._all, kept.claim.id: kept}, {
            "pool": what, "claim": kept.claim.id, "owner": kept.claim.owner,
            "uuids": list(kept.uuids), "starts_at": kept.starts_at})

    def _write(self, after: dict[str, KeptReservation], record: dict[str, object]) -> None:
        text = msgspec.json.encode(list(after.values())).decode()
        self._journal.keep(Fact.POOL_RESERVATIONS, text if after else None, record)
        self._all = after
