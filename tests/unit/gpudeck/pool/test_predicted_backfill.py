"""Backfill by predictions: as good as they are for the head of the queue; what is reserved goes by
terms."""

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.pool.core.claims import Booking, Claim, GpuKey, Grant, Lease, expected_end, gpus_of
from gpudeck.pool.core.fragmentation import ClaimMix
from gpudeck.pool.core.inventory import Node
from gpudeck.pool.core.schedule import Pass, PoolPolicy, Queue, run_pass
from gpudeck.pool.core.strategies import PlacementContext
from tests.unit.gpudeck.pool.inventories import AllMayHave, claim, node

POLICY = PoolPolicy()
GPUS = 4


def make_pass(waiting: Sequence[Claim], leases: Sequence[Lease], predicted_s: Mapping[str, float],
              now: float = 0.0, bookings: Sequence[Booking] = (), nodes: int = 1) -> Pass:
    there: list[Node] = [node(number, gpus=GPUS) for number in range(nodes)]
    for at, a_node in enumerate(there):
        for lease in leases:
            for grant in lease.grants:
                if grant.node == a_node.id:
                    there[at] = there[at].after_grant(grant.uuids, lease.claim)
    return run_pass(Queue(waiting=waiting, leases=leases, limits=AllMayHave(), bookings=bookings,
                          predicted_s=predicted_s), there, POLICY,
                    PlacementContext(mix=ClaimMix(waiting)), now)


def running(name: str, gpus: Sequence[str], until: float, since: float = 0.0) -> Lease:
    return Lease(id=name, claim=claim(90, id=name, gpus=len(gpus), term_s=until - since),
                 grants=(Grant("id0", tuple(gpus)),), since=since, until=until)


HEAD = claim(0, gpus=4)
BUSY = [running("r", ("GPU-0-0", "GPU-0-1"), 7_200.0)]


def began(outcome: Pass) -> list[str]:
    return [offer.claim.id for offer in outcome.offers]


def test_who_is_likely_to_end_by_then_may_go_first() -> None:
    long = claim(1, gpus=1, term_s=28_800.0, submitted_at=1.0)
    assert began(make_pass([HEAD, long], BUSY, {})) == []
    assert began(make_pass([HEAD, long], BUSY, {"c1": 7_000.0})) == ["c1"]
    assert began(make_pass([HEAD, long], BUSY, {"c1": 7_300.0})) == []


def test_the_head_is_expected_when_those_before_it_are_likely_to_end() -> None:
    short = claim(1, gpus=1, term_s=3_600.0, submitted_at=1.0)
    assert began(make_pass([HEAD, short], BUSY, {})) == ["c1"]
    outcome = make_pass([HEAD, short], BUSY, {"r": 600.0})
    assert began(outcome) == []
    assert outcome.shadow is not None
    assert (outcome.shadow.at, outcome.shadow.is_predicted) == (600.0, True)
    late = make_pass([HEAD, short], BUSY, {"r": 90_000.0}).shadow
    assert late is not None
    assert late.at == 7_200.0, "never later than by its term"


def test_of_what_a_pinned_claim_waits_for_nobody_gets_any_by_a_prediction() -> None:
    long = claim(1, gpus=1, term_s=28_800.0, submitted_at=1.0)
    now = POLICY.pin_after_s
    busy = [running("r", ("GPU-0-0", "GPU-0-1"), now + 7_200.0)]
    outcome = make_pass([HEAD, long], busy, {"c1": 60.0, "r": now + 600.0}, now)
    assert began(outcome) == []
    assert outcome.shadow is not None
    assert not outcome.shadow.is_predicted


@settings(max_examples=60)
@given(st.data())
def test_the_head_is_delayed_by_no_more_than_runs_outlive_predictions_and_no_reservation_is(
        data: st.DataObject) -> None:
    uuids = [f"GPU-{at}-{index}" for at in range(2) for index in range(GPUS)]
    leases = []
    for at, uuid in enumerate(uuids):
        if data.draw(st.booleans()):
            until = data.draw(st.sampled_from((600.0, 3_600.0, 7_200.0)))
            lease = running(f"r{at}", (uuid,), until)
            leases.append(Lease(id=lease.id, claim=lease.claim, since=0.0, until=lease.until,
                                grants=(Grant(f"id{at // GPUS}", (uuid,)),)))
    reserved = data.draw(st.lists(st.sampled_from(uuids), max_size=2, unique=True))
    bookings = [Booking(claim(70 + at, starts_at=9_000.0, term_s=3_600.0),
                        (Grant(f"id{uuids.index(uuid) // GPUS}", (uuid,)),), 9_000.0)
                for at, uuid in enumerate(reserved)]
    waiting = [claim(at, owner=f"u{at}", gpus=data.draw(st.sampled_from((1, 2, 4))),
                     submitted_at=float(at),
                     term_s=data.draw(st.sampled_from((600.0, 3_600.0, 28_800.0))))
               for at in range(data.draw(st.integers(1, 8)))]
    everybody = [*waiting, *(lease.claim for lease in leases)]
    predicted_s = {a_claim.id: data.draw(st.sampled_from((60.0, 3_000.0, 20_000.0)))
                   for a_claim in everybody if data.draw(st.booleans())}
    outcome = make_pass([*waiting, *(booking.claim for booking in bookings)], leases,
                        predicted_s, 0.0, bookings, nodes=2)
    for offer in outcome.offers:
        if offer.claim.term_s > 9_000.0:
            assert not any(uuid in reserved for _, uuid in gpus_of(offer.grants)), (
                "a reservation goes by terms")
    holdings = [*((lease.claim, lease.grants, expected_end(lease, 0.0)) for lease in leases),
                *((offer.claim, offer.grants, offer.claim.term_s) for offer in outcome.offers)]
    given_gpus: set[GpuKey] = set()
    for _, grants, _ in holdings:
        assert given_gpus.isdisjoint(gpus_of(grants)), "given twice"
        given_gpus |= gpus_of(grants)
    if outcome.shadow is None:
        return
    # All that hold what the head gets are likely to end by then: it begins, at the latest, when the
    # last of them has outlived its prediction.
    for a_claim, grants, by_term in holdings:
        if not gpus_of(grants).isdisjoint(gpus_of(outcome.shadow.grants)):
            assert min(by_term, predicted_s.get(a_claim.id, by_term)) <= outcome.shadow.at


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from((600.0, 1_200.0, 3_000.0)),
                          st.sampled_from((1.0, 1.5, 4.0))), min_size=2, max_size=10))
def test_where_predictions_are_right_the_head_begins_when_it_was_said(
        runs: list[tuple[int, float, float]]) -> None:
    waiting = [claim(at, gpus=gpus, submitted_at=float(at), term_s=took * over, owner="ann")
               for at, (gpus, took, over) in enumerate(runs)]
    took_s = {f"c{at}": took for at, (_, took, _) in enumerate(runs)}
    leases: list[Lease] = []
    promised: dict[str, float] = {}
    now = 0.0
    while waiting:
        outcome = make_pass(waiting, leases, took_s, now)
        for offer in outcome.offers:
            assert now <= promised.get(offer.claim.id, now), "it was delayed"
            leases.append(Lease(id=offer.claim.id, claim=offer.claim, grants=offer.grants,
                                since=now, until=now + offer.claim.term_s))
        offered = {offer.claim.id for offer in outcome.offers}
        waiting = [a_claim for a_claim in waiting if a_claim.id not in offered]
        if outcome.shadow is not None:
            head = outcome.shadow.claim.id
            promised[head] = min(promised.get(head, outcome.shadow.at), outcome.shadow.at)
        if waiting:
            now = min(lease.since + took_s[lease.id] for lease in leases)
            leases = [lease for lease in leases if lease.since + took_s[lease.id] > now]
