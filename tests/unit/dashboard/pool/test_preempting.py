"""Room is made for a claim by all who have to go, or nobody is told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.pool.bookings import PoolBookings
from dashboard.pool.preempting import AGAIN_AFTER_S, GIVE_UP_S, Preemptions
from dashboard.pool.store import SCHEMA, PoolStore
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.pool.core.claims import Grant, Lease
from gpudeck.pool.core.preemption import Preemption
from tests.unit.gpudeck.pool.inventories import claim, node

URGENT = claim(1, gpus=2, priority=4)
TWO = [Lease(id=f"l{place}", claim=claim(5 + place, priority=1, is_preemptible=True), since=-1e4,
             until=1e4, grants=(Grant("id0", (f"GPU-0-{place}",)),)) for place in range(2)]


class Site:
    def __init__(self, bookings: PoolBookings) -> None:
        self.refusals: dict[str, str] = {}  # lease to why its work cannot be ended
        self.bookings = bookings
        self.preemptions = Preemptions(bookings, self.why_not, lambda: None,
                                       lambda check, *args: check(*args))

    def why_not(self, plan: Preemption) -> str:
        return next((self.refusals[victim.id] for victim in plan.victims
                     if victim.id in self.refusals), "")

    def begin(self, mono: float = 0.0) -> None:
        full = node(0, gpus=2)
        for lease in TWO:
            full = full.after_grant(lease.grants[0].uuids, lease.claim)
        self.preemptions.begin(URGENT, {"id0": full}, TWO, 900.0, 0.0, mono)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = SqliteStateStore(tmp_path / "state.db")
    store.migrate((SCHEMA,))
    yield Site(PoolBookings(PoolStore(store.connection)))
    store.close()


def test_both_are_told_and_what_they_free_is_kept_for_it(site: Site) -> None:
    site.begin()
    assert site.preemptions.of_node("id0").keys() == {"l0", "l1"}
    assert site.bookings.all["c1"].gpus == {("id0", "GPU-0-0"), ("id0", "GPU-0-1")}
    assert site.preemptions.notes == {"c1": "2 leases are being taken back for it"}


def test_if_one_of_them_cannot_be_ended_nobody_is_told(site: Site) -> None:
    site.refusals["l1"] = "bob asked that it be kept"
    site.begin()
    assert site.preemptions.of_node("id0") == {}
    assert not site.bookings.all
    assert site.preemptions.notes == {
        "c1": "no GPUs are taken back for it: bob asked that it be kept"}
    site.refusals.clear()
    site.begin(AGAIN_AFTER_S - 1)
    assert not site.preemptions.all, "it is not tried again and again"
    site.begin(AGAIN_AFTER_S)
    assert site.preemptions.all


def test_it_ends_with_its_claim_or_with_a_ladder_that_stopped_or_in_time(site: Site) -> None:
    for stopped, waiting, mono, note in (
            ({}, (), 0.0, {}),
            ({"l0": "it cannot be"}, ("c1",), 0.0,
             {"c1": "no GPUs are taken back for it: it cannot be"}),
            ({}, ("c1",), GIVE_UP_S,
             {"c1": "GPUs to be taken back for it did not become free"})):
        site.begin()
        assert site.preemptions.all
        site.preemptions.renew(waiting, TWO, stopped, 0.0, mono)
        assert not site.preemptions.all
        assert site.preemptions.notes == note
        site.preemptions.renew((), TWO, {}, 0.0, mono)


def test_an_overdue_lease_that_is_extended_is_kept(site: Site) -> None:
    waits, [over, other] = claim(1, gpus=2), [replace(lease, until=0.0) for lease in TWO]
    grants = [Grant("id0", ("GPU-0-0", "GPU-0-1"))]
    site.preemptions.end_overdue(waits, grants, [over, other], 0.0, 0.0)
    assert site.preemptions.of_node("id0").keys() == {"l0", "l1"}
    site.preemptions.renew(("c1",), [over, replace(other, until=60.0)], {}, 1.0, 1.0)
    assert site.preemptions.notes == {
        "c1": "no GPUs are taken back for it: the lease was extended"}
