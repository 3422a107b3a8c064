"""Bookings: GPUs that the hub keeps for claims whose time is to come, or for which others make
room."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpudeck.language.times import utc_words
from gpudeck.pool.core.claims import Booking, Claim, GpuKey, Lease
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.preemption import Preemption
from gpudeck.pool.core.reservations import (
    ReservationError,
    UnreadGpus,
    UnreadGpusError,
    moved,
    reserve,
    reserved_from,
)

from ..errors import InvalidChangeError, RecoveringError
from .plan import PoolNode
from .store import PoolStore

log = logging.getLogger("gpudeck.pool")

BOOKINGS_MOST = 1_024
READ_WITHIN_S = 5.0  # as a rule, after an agent has connected


@dataclass(slots=True)
class PoolBookings:
    store: PoolStore
    all: dict[str, Booking] = field(init=False, default_factory=dict)  # by claim
    never: dict[str, str] = field(init=False, default_factory=dict)  # claim to why
    # Claim to why nobody knows yet whether it can be kept.
    unread: dict[str, str] = field(init=False, default_factory=dict)
    _unread_gpus: UnreadGpus = field(init=False, default_factory=UnreadGpus)

    def open(self) -> None:
        self.all = {booking.claim.id: booking for booking in self.store.bookings()}

    def reserve(self, claim: Claim, nodes: Collection[PoolNode], leases: Collection[Lease],
                strategy: str, now: float, mono: float) -> None:
        """Reserve GPUs. Raises InvalidChangeError where they cannot be kept, with when they could,
        and RecoveringError where that is not known yet. `nodes`: all."""
        recent = self._recently_unread(nodes, mono)
        try:
            self._reserve(claim, nodes, recent, leases, strategy, now)
        except UnreadGpusError as why:
            raise RecoveringError(f"{why}; try again in some seconds", READ_WITHIN_S) from why
        except ReservationError as why:
            raise InvalidChangeError(_words(why)) from why

    def reserve_all(self, claims: Iterable[Claim], nodes: Collection[PoolNode],
                    leases: Collection[Lease], strategy: str, now: float, mono: float
                    ) -> Iterator[Claim]:
        """Reserve GPUs for each of these claims and yield those that have some. Once it is known
        that one cannot be kept, its node notifies its owner and drops it; until then it waits.
        `nodes`: all."""
        self.unread = {}
        recent = self._recently_unread(nodes, mono)
        for claim in claims:
            if claim.id in self.never:
                continue
            try:
                self._reserve(claim, nodes, recent, leases, strategy, now)
            except UnreadGpusError as why:
                self.unread[claim.id] = str(why)
            except ReservationError as why:
                self.never[claim.id] = _words(why)
            else:
                yield claim

    def _recently_unread(self, nodes: Collection[PoolNode], mono: float) -> frozenset[GpuKey]:
        self._unread_gpus.update(
            ((node.id, uuid) for node in nodes for uuid in node.unread), mono)
        return self._unread_gpus.recent(mono)

    def _reserve(self, claim: Claim, nodes: Collection[PoolNode], unread: frozenset[GpuKey],
                 leases: Collection[Lease], strategy: str, now: float) -> None:
        there = [node for node in nodes if not claim.hosts
                 or node.id in claim.hosts or node.host in claim.hosts]
        self._put(reserve(
            claim, [node.well for node in there], lambda: [
                node.with_gpus({*node.well.uuids, *more}) if (more := {
                    uuid for uuid in node.unread if (node.id, uuid) in unread})
                else node.well for node in there],
            leases, self.all.values(), BOOKINGS_MOST, strategy, now))

    def make_room(self, preemption: Preemption, now: float) -> None:
        """Keep what a preemption frees; not over a restart, after which victims are chosen
        again."""
        claim = preemption.claim
        if claim.id not in self.all:  # a reservation has its own, from its own time on
            self.all[claim.id] = Booking(claim, (preemption.grant,), now)

    def renew(self, waiting: Collection[str], preempting: Collection[str], well: Sequence[Node],
              leases: Collection[Lease], strategy: str, now: float) -> list[Claim]:
        """Renew what is kept; return the claims whose time is over. `waiting`: claims that still
        want what is kept for them."""
        for booking in list(self.all.values()):
            if booking.claim.id not in waiting or (
                    booking.claim.starts_at is None and booking.claim.id not in preempting):
                self.drop(booking.claim.id)
        over = [booking.claim for booking in self.all.values() if booking.ends_at <= now]
        for booking in list(moved(self.all.values(), well, leases, strategy, now)):
            log.info("reservation_moved claim=%s", booking.claim.id)
            self._put(booking)
        return over

    def forget_refused(self, claim_ids: Collection[str]) -> None:
        """Forget why claims were refused, but for these. `claim_ids`: claims that wait, or that a
        node which is away has reported last: it may be back at any time, and reports nothing new at
        first."""
        self.never = {claim_id: why for claim_id, why in self.never.items()
                      if claim_id in claim_ids}

    def kept_gpus(self, claim_id: str) -> frozenset[str]:
        """Return the GPUs that are kept for a claim."""
        booking = self.all.get(claim_id)
        return frozenset() if booking is None else frozenset(
            uuid for _, uuid in booking.gpus)

    @property
    def reservations(self) -> list[Booking]:
        return [booking for booking in self.all.values() if booking.claim.starts_at is not None]

    @property
    def reserved(self) -> dict[GpuKey, float]:
        return reserved_from(self.reservations)

    def drop(self, claim_id: str) -> None:
        if self.all.pop(claim_id, None) is not None:
            self.store.remove_booking(claim_id)

    def _put(self, booking: Booking) -> None:
        self.store.put_booking(booking)
        self.all[booking.claim.id] = booking


def _words(why: ReservationError) -> str:
    return str(why) if why.first is None else f"{why}; they are from {utc_words(why.first)}"
