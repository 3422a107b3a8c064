"""Reserved GPUs are there at their time, and until then for claims that end by then."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.pool.core.claims import Booking, Claim, Grant, Lease
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.reservations import book, first_start
from gpudeck.pool.core.schedule import Pass, PoolPolicy, Queue, run_pass
from gpudeck.pool.core.strategies import PlacementContext
from tests.unit.gpudeck.pool.inventories import AllMayHave, claim, claims, node, nodes

NONE = PlacementContext(mix=ClaimMix(()))
HOUR = 3_600.0


def a_booking(a_claim: Claim, starts_at: float, there: Sequence[Node], leases: Sequence[Lease] = (),
              bookings: Sequence[Booking] = ()) -> Booking | None:
    grants = book(a_claim, starts_at, there, leases, bookings, "pack", NONE, 0.0)
    return None if grants is None else Booking(a_claim, grants, starts_at)


def make_pass(waiting: Sequence[Claim], bookings: Sequence[Booking], there: Sequence[Node],
              leases: Sequence[Lease] = (), now: float = 0.0) -> Pass:
    free = []
    for a_node in there:
        for lease in leases:
            for grant in lease.grants:
                if grant.node == a_node.id:
                    a_node = a_node.after_grant(grant.uuids, lease.claim)
        free.append(a_node)
    return run_pass(Queue(waiting=[*waiting, *(booking.claim for booking in bookings)],
                          leases=leases, bookings=bookings, limits=AllMayHave()),
                    free, PoolPolicy(), NONE, now)


def lease(a_claim: Claim, *places: int, until: float) -> Lease:
    return Lease(id=a_claim.id, claim=a_claim, since=-HOUR, until=until,
                 grants=(Grant("id0", tuple(f"GPU-0-{place}" for place in places)),))


def began(outcome: Pass) -> list[str]:
    return [offer.claim.id for offer in outcome.offers]


def test_it_gets_what_is_free_by_then() -> None:
    there = [node(0, gpus=2)]
    running = [lease(claim(9), 0, until=HOUR), lease(claim(8), 1, until=3 * HOUR)]
    booking = a_booking(claim(0), 2 * HOUR, there, running)
    assert booking is not None
    assert booking.grants == (Grant("id0", ("GPU-0-0",)),)
    assert a_booking(claim(0, gpus=2), 2 * HOUR, there, running) is None
    assert first_start(claim(0, gpus=2), 2 * HOUR, there, running, (), "pack", NONE, 0.0
                       ) == 3 * HOUR


def test_what_another_node_calls_by_the_same_name_keeps_nothing_from_it() -> None:
    there, other = [node(0, gpus=1)], (Grant("id1", ("GPU-0-0",)),)
    elsewhere = replace(lease(claim(9), 0, until=3 * HOUR), grants=other)
    assert a_booking(claim(0), 2 * HOUR, there, [elsewhere]) is not None
    assert a_booking(claim(0), 2 * HOUR, there, (), [Booking(claim(8), other, HOUR)]) is not None


def test_two_of_the_same_time_never_share_and_two_in_turn_may() -> None:
    there = [node(0, gpus=1)]
    first = a_booking(claim(0, term_s=HOUR), 2 * HOUR, there)
    assert first is not None
    assert a_booking(claim(1, term_s=HOUR), 2.5 * HOUR, there, (), [first]) is None
    assert a_booking(claim(1, term_s=HOUR), 1.5 * HOUR, there, (), [first]) is None
    assert a_booking(claim(1, term_s=HOUR), 3 * HOUR, there, (), [first]) is not None
    assert a_booking(claim(1, term_s=HOUR), 1 * HOUR, there, (), [first]) is not None


def test_before_it_begins_only_what_ends_by_then_may_begin() -> None:
    there = [node(0, gpus=1)]
    booking = a_booking(claim(0), 2 * HOUR, there)
    assert booking is not None
    outcome = make_pass(
        [claim(1, term_s=2 * HOUR + 1), claim(2, term_s=2 * HOUR, submitted_at=1.0)],
        [booking], there)
    assert began(outcome) == ["c2"]
    assert outcome.kept_from == {("id0", "GPU-0-0"): 2 * HOUR}
    assert outcome.order == ("c1", "c0")


def test_at_its_time_it_goes_first_or_moves_or_waits_and_nobody_takes_what_it_waits_for() -> None:
    there = [node(0, gpus=2)]
    booking = a_booking(claim(0), HOUR, there)
    assert booking is not None
    other = claim(1, priority=4)
    assert began(make_pass([other], [booking], there, now=HOUR)) == ["c0", "c1"]
    [uuid] = booking.grants[0].uuids
    late = lease(claim(9), int(uuid[-1]), until=0.0)
    moved = make_pass([other], [booking], there, [late], HOUR)
    assert began(moved) == ["c0"]
    assert moved.offers[0].grants != booking.grants
    leases = [late, lease(claim(8), 1 - int(uuid[-1]), until=0.0)]
    waits = make_pass([other], [booking], there, leases, HOUR)
    assert began(waits) == []
    assert waits.order == ("c0", "c1")
    assert waits.kept_from["id0", uuid] == HOUR


def test_the_head_is_promised_what_comes_free_after_a_reservation() -> None:
    there = [node(0, gpus=1)]
    booking = a_booking(claim(0, term_s=HOUR), HOUR, there)
    assert booking is not None
    outcome = make_pass([claim(1, term_s=2 * HOUR)], [booking], there)
    assert outcome.shadow is not None
    assert (outcome.shadow.claim.id, outcome.shadow.at) == ("c1", 2 * HOUR)
    after = Booking(claim(2, term_s=HOUR), booking.grants, 3 * HOUR)
    outcome = make_pass([claim(1, term_s=2 * HOUR)], [booking, after], there)
    assert outcome.shadow is not None
    assert outcome.shadow.at == 4 * HOUR


@settings(max_examples=60)
@given(nodes(3), claims(16), st.lists(st.integers(0, 15), min_size=16, max_size=16))
def test_while_terms_are_honoured_a_reservation_begins_on_the_second(
        there: list[Node], queue: list[Claim], starts: list[int]) -> None:
    """Claims 0, 3, 6, ... are for a time to come; the clock goes from one event to the next."""
    waiting, bookings = [], list[Booking]()
    for number, a_claim in enumerate(queue):
        one = replace(a_claim, id=f"c{number:02}", submitted_at=0.0)
        if number % 3 or one.is_share or one.cpu_milli:  # CPUs are not kept for a time to come
            waiting.append(one)
        elif booking := a_booking(one, 600.0 * (1 + starts[number]), there, (), bookings):
            bookings.append(booking)
    running: list[Lease] = []
    now = 0.0
    for _ in range(100):
        outcome = make_pass(waiting, bookings, there, running, now)
        due = {booking.claim.id: booking.grants for booking in bookings if booking.starts_at <= now}
        got = {offer.claim.id: offer.grants for offer in outcome.offers}
        assert due.items() <= got.items()
        running += [Lease(id=offer.claim.id, claim=offer.claim, grants=offer.grants, since=now,
                          until=now + offer.claim.term_s) for offer in outcome.offers]
        waiting = [a_claim for a_claim in waiting if a_claim.id not in got]
        bookings = [booking for booking in bookings if booking.claim.id not in got]
        times = [a_lease.until for a_lease in running] + [booking.starts_at for booking in bookings]
        if not times:
            break
        now = min(times)
        running = [a_lease for a_lease in running if a_lease.until > now]
    assert not bookings
