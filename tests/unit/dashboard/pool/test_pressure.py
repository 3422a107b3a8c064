"""Shared GPUs that are nearly full: no more of them is given out, and that does not flap."""

from dataclasses import replace
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from dashboard.fleet.fleet import Fleet
from dashboard.pool.plan import FULL, PoolNode
from dashboard.pool.pressure import CLOSED_AT, OPEN_AT, closed, under_pressure
from gpudeck.contract.pool_link import OfferedGpu, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim
from tests.unit import fleets


@given(st.floats(0.0, 1.2), st.lists(st.floats(-0.049, 0.049), max_size=50))
@example(CLOSED_AT, [0.04, -0.04, 0.04])
@example(OPEN_AT, [0.04, -0.04, 0.04])
def test_what_moves_by_less_than_a_twentieth_changes_it_once_at_most(
    level: float, moves: list[float],
) -> None:
    was, changes = frozenset[str](), 0
    for move in moves:
        now = closed(was, ("a",), {"a": level + move})
        changes += now != was
        was = now
    assert changes <= 1


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1.2)), max_size=50))
def test_closed_is_never_a_gpu_with_room_and_what_is_not_known_changes_nothing(
    shares: list[float | None],
) -> None:
    was = frozenset[str]()
    for share in shares:
        now = closed(was, ("a",), {} if share is None else {"a": share})
        if share is None:
            assert now == was
        else:
            assert not now or share > OPEN_AT
            assert now or share < CLOSED_AT
        was = now
    assert closed(was, (), {}) == frozenset(), "what is not shared any more"


def _shared(share_milli: int, full: frozenset[str] = frozenset()) -> PoolNode:
    claim = Claim(id="c1", owner="ann", gpus=1, submitted_at=0.0, share_milli=share_milli)
    lease = ReportedLease(claim, ("GPU-n0-0",), "active", 0.0, 9e9, 0.0)
    return PoolNode("n0", "n0", PoolReport(
        (OfferedGpu("GPU-n0-0", "A", 0), OfferedGpu("GPU-n0-1", "A", 1)), (), (lease,)), full)


def test_of_a_full_one_no_more_is_given_out() -> None:
    fleet = Fleet(1)
    node = fleets.add_node(fleet, "n0", 2)
    uuids = [fleet.uuids[slot] for slot in node.listing.order] if node.listing else []
    total, seqs = float(fleet.facts[0].mem_total_bytes or 0), count(1)

    def at(share: float, pool_node: PoolNode) -> list[PoolNode]:
        fleet.frame(node, fleets.frame([{"mem_used_bytes": share * total}] * 2,
                                       next(seqs), fleets.NOW),
                    fleets.NOW, fleets.MONO)
        return under_pressure([pool_node], fleet, fleets.MONO)

    def with_uuids(pool_node: PoolNode) -> PoolNode:
        report = pool_node.report
        [lease] = report.leases
        return replace(pool_node, report=PoolReport(
            tuple(OfferedGpu(uuid, "A", number) for number, uuid in enumerate(uuids)), (),
            (ReportedLease(lease.claim, (uuids[0],), "active", 0.0, 9e9, 0.0),)))

    half = with_uuids(_shared(500))
    assert at(0.8, half) == []
    [full] = at(0.9, half)
    assert full.full == {uuids[0]}, "the other one is nobody's, and its own trouble"
    assert uuids[0] not in full.well.uuids
    assert uuids[1] in full.well.uuids
    assert [full.trouble(gpu) for gpu in full.report.gpus] == [FULL, ""]
    assert at(0.8, full) == []
    [back] = at(0.7, full)
    assert back.full == frozenset()
    assert uuids[0] in back.well.uuids
    assert at(0.99, with_uuids(_shared(1_000))) == [], "a lease has it to itself"
