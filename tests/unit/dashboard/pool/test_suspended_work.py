"""Work that a pre-emption has suspended, as the hub sees it: a claim for the GPUs that it had."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.pool.claim_ids import HubClaims
from dashboard.pool.events import LeaseChanged
from dashboard.pool.intake import ReportIntake
from dashboard.pool.node_words import not_allowed
from dashboard.pool.plan import PoolNode
from dashboard.pool.store import SCHEMA, TIMES_SCHEMA, PoolStore
from dashboard.pool.watch import PoolWatch
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim, flaw
from gpudeck.pool.core.feasibility import why_waits, words
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from gpudeck.pool.core.strategies import STRATEGIES
from tests.unit.dashboard.pool.passes import scheduled
from tests.unit.dashboard.pool.test_limits import limits, quota
from tests.unit.gpudeck.pool.inventories import claim

GIB = 2**30
HOME = ("n1-1", "n1-2")
SUSPENDED = claim(1, owner="ann", gpus=2, priority=1, is_preemptible=True, is_suspendable=True,
                  cpu_milli=40_000, ram_bytes=100 * GIB, home_gpus=HOME, is_again=True)


def a_node(*leases: ReportedLease, claims: tuple[Claim, ...] = (SUSPENDED,)) -> PoolNode:
    return PoolNode("n1", "n1", PoolReport(
        tuple(OfferedGpu(f"n1-{index}", "H100", index) for index in range(4)),
        tuple(NodeClaim(waiter, False) for waiter in claims), leases, cpus=64, ram_bytes=256 * GIB))


def lease(of: Claim, *uuids: str) -> ReportedLease:
    return ReportedLease(of, uuids, "active", 0.0, 9e4, 0.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_gets_the_gpus_that_it_had_and_no_others(strategy: str) -> None:
    def outcome(*leases: ReportedLease) -> list[set[str]]:
        nodes = [a_node(*leases), replace(a_node(claims=()), id="n2", host="n2")]
        result = scheduled(nodes, list(nodes[0].claims), {}, (), None, (), NoOwnerLimits(), {}, {},
                         PoolPolicy(strategy=strategy), {}, 0.0)
        return [set(offer.grants[0].uuids) for offer in result.offers]

    assert outcome() == [{*HOME}]
    assert outcome(lease(claim(7), "n1-2")) == [], "one of them is somebody else's"
    assert outcome(lease(claim(7), "n1-0"), lease(claim(8), "n1-3")) == [{*HOME}]


def test_it_has_its_cpus_and_its_memory_still_and_asks_for_none() -> None:
    [waits] = a_node().claims
    assert (waits.cpu_milli, waits.ram_bytes, waits.hosts) == (None, None, ("n1",))
    free = a_node().unleased_with_host
    assert (free.free_cpu_milli, free.free_ram_bytes) == (24_000, 156 * GIB)


def test_what_a_quota_counts_on_its_gpus_it_does_not_ask_for_again() -> None:
    [waits] = a_node().claims
    uses = {"ann": {("n1", uuid) for uuid in HOME}}
    bounds = limits(quota("two", "user:ann", gpus=2), uses={
        owner: {*gpus} for owner, gpus in uses.items()})
    assert bounds.why_not(waits) == ""
    other = replace(waits, id="other", home_gpus=(), gpus=1)
    bounds = limits(quota("two", "user:ann", gpus=2), uses=uses)
    assert "two gives ann 2 GPUs" in bounds.why_not(replace(other, hosts=()))


def test_no_limit_of_its_node_and_no_refusal_keeps_it_from_waiting() -> None:
    strict = PoolPolicy(limits={role: replace(of, priority=0)
                                for role, of in PoolPolicy().limits.items()})
    assert not_allowed(a_node(), strict, lambda owner: ()) == {}
    fresh = replace(SUSPENDED, home_gpus=())
    assert not_allowed(a_node(claims=(fresh,)), strict, lambda owner: ()) != {}


def test_it_reads_why_it_waits() -> None:
    [waits] = a_node().claims
    node = a_node(lease(claim(7), "n1-2"))
    why = why_waits(waits, [node.empty], [node.unleased], {}, {}, 0.0)
    assert why == ("its work is suspended, and comes back to the GPUs that it had: 1 of 2 is free")
    assert words(waits) == "2 GPUs, to restore its suspended work"
    partly = why_waits(waits, [node.with_gpus({"n1-1"})], [node.unleased], {}, {}, 0.0)
    assert partly.endswith("and 1 not there")


@pytest.mark.parametrize(("changes", "is_flaw"), [
    ({}, False), ({"gpus": 3}, True), ({"nodes": 2}, True),
    ({"home_gpus": ("x" * 300, "y")}, True)])
def test_a_node_says_nothing_out_of_bounds(changes: dict[str, object], is_flaw: bool) -> None:
    assert bool(flaw(replace(SUSPENDED, **changes))) == is_flaw  # type: ignore[arg-type]


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[ReportIntake]:
    store = SqliteStateStore(tmp_path / "state.db")
    store.migrate((SCHEMA, TIMES_SCHEMA))
    yield ReportIntake(PoolStore(store.connection), lambda node_id, uuid: True)
    store.close()


def test_its_age_stays_and_what_it_holds_begins_again(intake: ReportIntake) -> None:
    nobody = HubClaims((), (), ())

    def take(report: PoolReport, now: float) -> PoolReport:
        return intake.take("n1", "n1", report, nobody, now).report

    own = replace(SUSPENDED, home_gpus=(), submitted_at=10.0)
    first = take(a_node(lease_since(own, 20.0), claims=()).report, 30.0)
    id_at_hub, asked_at = first.leases[0].claim.id, first.leases[0].claim.submitted_at
    waits = take(a_node(claims=(replace(SUSPENDED, submitted_at=10.0),)).report, 60.0)
    assert (waits.claims[0].claim.id, waits.claims[0].claim.submitted_at) == (id_at_hub, asked_at)
    last = take(a_node(lease_since(own, 90.0), claims=()).report, 100.0)
    assert (last.leases[0].claim.id, last.leases[0].since) == (id_at_hub, 90.0)
    assert last.leases[0].claim.submitted_at == asked_at


def lease_since(of: Claim, since: float) -> ReportedLease:
    return ReportedLease(of, HOME, "active", since, 9e4, since)


def test_programs_read_that_it_is_suspended_and_not_lost() -> None:
    events, changes = Dispatcher(), list[LeaseChanged]()
    events.listen(LeaseChanged, changes.append)
    watch = PoolWatch(events)
    before = a_node(lease(replace(SUSPENDED, home_gpus=()), *HOME), claims=()).report
    watch.reported("n1", before, a_node().report, {}, 50.0)
    [change] = changes
    assert change.end is not None
    assert (change.end.state, change.end.ended_at) == ("suspended", 50.0)
