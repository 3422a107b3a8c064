"""What is reserved is there at its time, and until then for whoever has done by then."""

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


def booked(asked: Claim, starts_at: float, there: Sequence[Node], leases: Sequence[Lease] = (),
           bookings: Sequence[Booking] = ()) -> Booking | None:
    found = book(asked, starts_at, there, leases, bookings, "pack", NONE, 0.0)
    return None if found is None else Booking(asked, found, starts_at)


def passed(waiting: Sequence[Claim], bookings: Sequence[Booking], there: Sequence[Node],
           leases: Sequence[Lease] = (), now: float = 0.0) -> Pass:
    free = []
    for each in there:
        for lease in leases:
            for grant in lease.grants:
                if grant.node == each.id:
                    each = each.after_grant(grant.uuids, lease.claim)
        free.append(each)
    return run_pass(Queue(waiting=[*waiting, *(each.claim for each in bookings)], leases=leases,
                          bookings=bookings, limits=AllMayHave()), free, PoolPolicy(), NONE, now)


def lease(asked: Claim, *places: int, until: float) -> Lease:
    return Lease(id=asked.id, claim=asked, since=-HOUR, until=until,
                 grants=(Grant("id0", tuple(f"GPU-0-{place}" for place in places)),))


def began(made: Pass) -> list[str]:
    return [each.claim.id for each in made.offers]


def test_it_gets_what_is_free_by_then() -> None:
    there = [node(0, gpus=2)]
    running = [lease(claim(9), 0, until=HOUR), lease(claim(8), 1, until=3 * HOUR)]
    found = booked(claim(0), 2 * HOUR, there, running)
    assert found is not None
    assert found.grants == (Grant("id0", ("GPU-0-0",)),)
    assert booked(claim(0, gpus=2), 2 * HOUR, there, running) is None
    assert first_start(claim(0, gpus=2), 2 * HOUR, there, running, (), "pack", NONE, 0.0
                       ) == 3 * HOUR


def test_two_of_the_same_time_never_share_and_two_in_turn_may() -> None:
    there = [node(0, gpus=1)]
    first = booked(claim(0, term_s=HOUR), 2 * HOUR, there)
    assert first is not None
    assert booked(claim(1, term_s=HOUR), 2.5 * HOUR, there, (), [first]) is None
    assert booked(claim(1, term_s=HOUR), 1.5 * HOUR, there, (), [first]) is None
    assert booked(claim(1, term_s=HOUR), 3 * HOUR, there, (), [first]) is not None
    assert booked(claim(1, term_s=HOUR), 1 * HOUR, there, (), [first]) is not None


def test_before_it_begins_only_what_ends_by_then_may_begin() -> None:
    there = [node(0, gpus=1)]
    found = booked(claim(0), 2 * HOUR, there)
    assert found is not None
    made = passed([claim(1, term_s=2 * HOUR + 1), claim(2, term_s=2 * HOUR, submitted_at=1.0)],
                  [found], there)
    assert began(made) == ["c2"]
    assert made.kept_from == {"GPU-0-0": 2 * HOUR}
    assert made.order == ("c1", "c0")


def test_at_its_time_it_goes_first_or_moves_or_waits_and_nobody_takes_what_it_waits_for() -> None:
    there = [node(0, gpus=2)]
    found = booked(claim(0), HOUR, there)
    assert found is not None
    other = claim(1, priority=4)
    assert began(passed([other], [found], there, now=HOUR)) == ["c0", "c1"]
    [uuid] = found.grants[0].uuids
    late = lease(claim(9), int(uuid[-1]), until=0.0)
    moved = passed([other], [found], there, [late], HOUR)
    assert began(moved) == ["c0"]
    assert moved.offers[0].grants != found.grants
    both = [late, lease(claim(8), 1 - int(uuid[-1]), until=0.0)]
    waits = passed([other], [found], there, both, HOUR)
    assert began(waits) == []
    assert waits.order == ("c0", "c1")
    assert waits.kept_from[uuid] == HOUR


def test_the_head_is_promised_what_comes_free_after_a_reservation() -> None:
    there = [node(0, gpus=1)]
    found = booked(claim(0, term_s=HOUR), HOUR, there)
    assert found is not None
    made = passed([claim(1, term_s=2 * HOUR)], [found], there)
    assert made.shadow is not None
    assert (made.shadow.claim.id, made.shadow.at) == ("c1", 2 * HOUR)
    after = Booking(claim(2, term_s=HOUR), found.grants, 3 * HOUR)
    made = passed([claim(1, term_s=2 * HOUR)], [found, after], there)
    assert made.shadow is not None
    assert made.shadow.at == 4 * HOUR


@settings(max_examples=60)
@given(nodes(3), claims(16), st.lists(st.integers(0, 15), min_size=16, max_size=16))
def test_while_terms_are_honoured_a_reservation_begins_on_the_second(
        there: list[Node], asked: list[Claim], starts: list[int]) -> None:
    """Every third claim is for a time to come; the clock goes from one event to the next."""
    waiting, bookings = [], list[Booking]()
    for number, each in enumerate(asked):
        one = replace(each, id=f"c{number:02}", submitted_at=0.0)
        if number % 3 or one.is_share or one.cpu_milli:  # CPUs are not kept for a time to come
            waiting.append(one)
        elif found := booked(one, 600.0 * (1 + starts[number]), there, (), bookings):
            bookings.append(found)
    running: list[Lease] = []
    now = 0.0
    for _ in range(100):
        made = passed(waiting, bookings, there, running, now)
        due = {each.claim.id: each.grants for each in bookings if each.starts_at <= now}
        got = {each.claim.id: each.grants for each in made.offers}
        assert due.items() <= got.items()
        running += [Lease(id=each.claim.id, claim=each.claim, grants=each.grants, since=now,
                          until=now + each.claim.term_s) for each in made.offers]
        waiting = [each for each in waiting if each.id not in got]
        bookings = [each for each in bookings if each.claim.id not in got]
        times = [each.until for each in running] + [each.starts_at for each in bookings]
        if not times:
            break
        now = min(times)
        running = [each for each in running if each.until > now]
    assert not bookings
