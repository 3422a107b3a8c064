"""Choice of GPUs for a reservation, and when it could begin at the earliest. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import inf

from gpudeck.pool.core.claims import Booking, Claim, GpuKey, Grant, Lease, expected_end
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.placement import Placer
from gpudeck.pool.core.strategies import PlacementContext

TRIES = 24
MOVE_WITHIN_S = 600.0  # until then what is kept for it may become well again
UNREAD_MOST_S = 60.0  # an agent that has started needs some seconds for its readings
AHEAD_MOST_S = 90 * 86_400.0
_ANY = PlacementContext(mix=ClaimMix(()))


class ReservationError(ValueError):
    """Refusal of a reservation; the sentence is for people. `first`: when it could begin."""

    def __init__(self, why: str, first: float | None = None) -> None:
        super().__init__(why)
        self.first = first


class UnreadGpusError(ReservationError):
    """Refusal for now alone: GPUs that the claim needs have not been read yet."""


class UnreadGpus:
    """GPUs that have not been read, and since when. Some never are: a reader may hang, or be denied
    what it reads. So those of long ago count as GPUs that are not free."""

    def __init__(self) -> None:
        self._since: dict[GpuKey, float] = {}

    def update(self, gpus: Iterable[GpuKey], now: float) -> None:
        """Update with all GPUs that are not read at `now`, by a clock that never steps."""
        self._since = {gpu: self._since.get(gpu, now) for gpu in gpus}

    def recent(self, now: float) -> frozenset[GpuKey]:
        """Return those whose reading may be about to come."""
        return frozenset(gpu for gpu, since in self._since.items() if now - since < UNREAD_MOST_S)


def reserve(claim: Claim, well: Sequence[Node], unread: Callable[[], Sequence[Node]],
            leases: Collection[Lease], bookings: Collection[Booking], most: int, strategy: str,
            now: float) -> Booking:
    """Reserve GPUs. `unread`: the nodes with what is well and what has lately not been read.
    Raises ReservationError where they cannot be kept, with when they could, and UnreadGpusError
    where that is not known yet."""
    assert claim.starts_at is not None
    if why := _why_not(claim, claim.starts_at - now, len(bookings), most):
        raise ReservationError(why)
    rest = leases, bookings, strategy, _ANY, now
    grants = book(claim, claim.starts_at, well, *rest)
    if grants is not None:
        return Booking(claim, grants, claim.starts_at)
    if book(claim, claim.starts_at, unread(), *rest) is not None:
        raise UnreadGpusError("some matching GPUs have not been read yet, so whether enough are "
                              "free for all of that time is not known")
    raise ReservationError("not enough matching GPUs are free for all of that time",
                           first_start(claim, claim.starts_at, well, *rest))


def moved(bookings: Iterable[Booking], well: Sequence[Node], leases: Collection[Lease],
          strategy: str, now: float) -> Iterator[Booking]:
    """Yield bookings that begin soon on GPUs that are not well, moved to others that are free."""
    there = {(node.id, uuid) for node in well for uuid in node.uuids}
    current = {booking.claim.id: booking for booking in bookings}
    for booking in list(current.values()):
        if now < booking.starts_at <= now + MOVE_WITHIN_S and not booking.gpus <= there:
            rest = [other for other in current.values() if other is not booking]
            grants = book(booking.claim, booking.starts_at, well, leases, rest, strategy, _ANY, now)
            if grants is not None:
                current[booking.claim.id] = Booking(booking.claim, grants, booking.starts_at)
                yield current[booking.claim.id]


def reserved_from(bookings: Iterable[Booking]) -> dict[GpuKey, float]:
    """Return GPUs, and from when on somebody has them."""
    starts: dict[GpuKey, float] = {}
    for booking in bookings:
        for gpu in booking.gpus:
            starts[gpu] = min(booking.starts_at, starts.get(gpu, inf))
    return starts


def _why_not(claim: Claim, ahead_s: float, there: int, most: int) -> str:
    if claim.is_share:
        return "a reservation is for whole GPUs: leave share out"
    if ahead_s < 0:
        return "its start is in the past"
    if ahead_s > AHEAD_MOST_S:
        return f"it starts in more than {AHEAD_MOST_S / 86_400:.0f} days"
    return "" if there < most else f"there are {most} reservations already"


def book(claim: Claim, starts_at: float, empty: Sequence[Node], leases: Collection[Lease],
         bookings: Collection[Booking], strategy: str, context: PlacementContext, now: float
         ) -> tuple[Grant, ...] | None:
    """Return GPUs that nothing else needs from `starts_at` for its whole term. `empty`: what is
    well of each node, as if nothing were given out."""
    ends_at = starts_at + claim.term_s
    holders: Iterable[Lease | Booking] = (
        *(lease for lease in leases if expected_end(lease, now) > starts_at),
        *(booking for booking in bookings
          if booking.starts_at < ends_at and starts_at < booking.ends_at))
    busy: dict[str, set[str]] = {}  # by node
    for holder in holders:
        for grant in holder.grants:
            busy.setdefault(grant.node, set()).update(grant.uuids)
    there = [node.held_from(busy[node.id], -inf) if node.id in busy else node for node in empty]
    placement = Placer(there, strategy, context).find(claim, starts_at)
    return None if placement is None else placement.grants


def first_start(claim: Claim, starts_at: float, empty: Sequence[Node], leases: Collection[Lease],
                bookings: Collection[Booking], strategy: str, context: PlacementContext, now: float
                ) -> float | None:
    """Return the first time after `starts_at` when something ends and the claim fits. None: not
    soon enough to be found."""
    ends = {expected_end(lease, now) for lease in leases}
    ends |= {booking.ends_at for booking in bookings}
    return next((at for at in sorted(end for end in ends if end > starts_at)[:TRIES]
                 if book(claim, at, empty, leases, bookings, strategy, context, now)), None)
