"""Reports of the pool, and who gets them."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from dashboard.fleet import views
from dashboard.fleet.filters import parse
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.visibility import (
    EVERYTHING_SEEN,
    CommandLineVisibility,
    VisibilityScope,
    VisibleFleet,
    focus,
)
from dashboard.pool.events import ClaimChanged, LeaseChanged
from dashboard.pool.lease_map import NO_LEASE, SEVERAL, LeaseMap
from dashboard.pool.plan import PlannedPass, PoolNode
from dashboard.pool.prometheus import pool_families, wait_family
from dashboard.pool.queries import PoolQueries, due
from dashboard.pool.views import lease_view, model_views
from dashboard.pool.watch import TOLD_MOST, PoolWatch
from dashboard.runtime.dispatcher import Dispatcher
from gpudeck.contract.pool_link import OfferedGpu, PoolReport, ReportedEnd, ReportedLease
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.schedule import Pass
from tests.unit.fleets import EMPTY, MONO, NOW, add_node, frame, tasks
from tests.unit.gpudeck.pool.inventories import NoBookings

NEAR = VisibilityScope(("near",), CommandLineVisibility(False, frozenset({"ann"})))


def claim(name: str = "c", owner: str = "bob", asked_at: float = 100.0, **more: Any) -> Claim:
    return Claim(id=name, owner=owner, submitted_at=asked_at, **{"gpus": 1} | more)


def lease(name: str, *uuids: str, owner: str = "bob", until: float = 9_000.0, used_at: float = 0.0,
          since: float = 130.0, share: int = 1_000) -> ReportedLease:
    return ReportedLease(claim(name, owner, share_milli=share), uuids, "active", since, until,
                         used_at)


class Listener:
    def __init__(self) -> None:
        self.changes: list[Any] = []
        events = Dispatcher()
        events.listen(LeaseChanged, self.changes.append)
        events.listen(ClaimChanged, self.changes.append)
        self.watch = PoolWatch(events)
        self._last: PoolReport | None = None

    def report(self, *leases: ReportedLease, ends: tuple[ReportedEnd, ...] = (),
               **own: Claim) -> list[Any]:
        report = PoolReport((), (), leases, ends)
        self.watch.reported("n1", self._last, report, own, 0.0)
        self._last = report
        changes, self.changes[:] = list(self.changes), []
        return changes

    def planned(self, *names: str) -> list[tuple[str, bool]]:
        claims = {name: claim(name) for name in names}
        self.watch.planned(PlannedPass(Pass((), names, None, {}, {}, {}), [], claims, {}, {}, {},
                                        None, NoBookings(), 0.0))
        changes, self.changes[:] = list(self.changes), []
        return [(change.claim.id, change.standing is not None) for change in changes]


def test_what_was_never_used_is_idle_from_its_first_second() -> None:
    """Use is reported by the minute, so that the report says nothing at first."""
    bare = lease("a", "g0", since=130.0, used_at=120.0)
    run, on_its_gpus, in_use = (msgspec.structs.replace(bare, **changed) for changed in (
        {"is_run": True}, {"task_ids": ("t1",)}, {"used_at": 180.0}))
    assert [lease_view("n1", "n1", lease, (), 190.0).idle_since
            for lease in (bare, run, on_its_gpus, in_use)] == [130.0, None, None, None]
    assert lease_view("n1", "n1", in_use, (), 300.0).idle_since == 180.0


def test_a_lease_is_told_when_it_comes_changes_and_ends() -> None:
    listener = Listener()
    first = lease("a", "g0")
    assert listener.report(first) == [], "a hub that starts hears of it, and nothing happened"
    assert listener.watch.version == 1
    assert listener.report(first, lease("b", "g1")) == [LeaseChanged("n1", lease("b", "g1"), True)]
    assert listener.report(first, lease("b", "g1", used_at=60.0)) == [], "each minute of each lease"
    assert listener.watch.version == 2
    longer = lease("b", "g1", until=9_999.0)
    assert listener.report(first, longer) == [LeaseChanged("n1", longer, True)]
    end = ReportedEnd(first.claim, ("g0",), 130.0, 900.0, "released", "given back")
    assert listener.report(longer, ends=(end,)) == [LeaseChanged("n1", first, False, end)]
    assert listener.report() == [LeaseChanged("n1", longer, False)]
    assert listener.watch.version == 5


def test_how_long_claims_waited_is_counted_once() -> None:
    listener = Listener()
    listener.report(lease("old", "g0"))
    listener.report(lease("old", "g0"), lease("new", "g1", since=130.0))
    listener.report(lease("new", "g1", since=130.0, until=9_999.0),
                    lease("here", "g2", since=1_000.0), here=claim("here", asked_at=600.0))
    assert listener.watch.waited_s == pytest.approx(30.0 + 400.0)
    lines = wait_family(listener.watch).splitlines()
    assert lines[1] == "# TYPE gpudeck_pool_wait_seconds histogram"
    assert [line.rpartition(" ")[2] for line in lines[2:]] == [
        "0", "0", "1", "1", "2", "2", "2", "2", "2", "2", "430", "2"]
    assert 'bucket{le="60"} 1' in lines[4]


def test_a_reservation_waits_from_its_time_on() -> None:
    listener = Listener()
    listener.report()
    listener.report(lease("r", "g0", since=5_010.0), r=claim("r", starts_at=5_000.0))
    assert listener.watch.waited_s == pytest.approx(10.0)
    claims = [claim("now"), claim("later", starts_at=5_000.0)]
    assert [claim.id for claim in due(claims, 4_999.0)] == ["now"]
    assert due(claims, 5_000.0) == claims


def test_a_claim_is_told_when_it_waits_and_when_it_does_no_more() -> None:
    listener = Listener()
    assert listener.planned("a") == [], "it waited before this hub began"
    assert listener.planned("a", "b") == [("b", True)]
    assert listener.planned("b", "a") == [], "places are looked up in the list"
    assert listener.planned("b") == [("a", False)]
    many = [f"c{at}" for at in range(3 * TOLD_MOST)]
    assert len(listener.planned(*many)) == TOLD_MOST + 1


class _Service:
    """Pool service, as far as it is read here."""

    def __init__(self, fleet: Fleet, nodes: Sequence[PoolNode]) -> None:
        self.fleet = fleet
        self.nodes = nodes
        self.watch = PoolWatch(Dispatcher())


def two_nodes() -> tuple[Fleet, PoolQueries, LeaseMap, list[VisibleFleet]]:
    """`near` and `far`, of which one scope sees the first alone."""
    fleet = Fleet(1)
    nodes = []
    for name in ("near", "far"):
        add_node(fleet, name, 3)
        fleet.set_group(name, name)
        one, two = f"GPU-{name}-0", f"GPU-{name}-1"
        nodes.append(PoolNode(name, f"{name}.host", PoolReport(
            (OfferedGpu(one, "H100", 0), OfferedGpu(two, "H100", 1, trouble="lost"),
             OfferedGpu(f"GPU-{name}-2", "T4", 2)), (),
            (lease(f"{name}1", one, owner=f"{name}-owner", until=1_000.0, share=300),
             lease(f"{name}2", one, two, owner="ann", until=2_000.0, share=300)))))
    service: Any = _Service(fleet, nodes)
    service.watch.version = 1
    return fleet, PoolQueries(service), LeaseMap(service, fleet), [
        focus(fleet, EVERYTHING_SEEN), focus(fleet, NEAR)]


def test_the_map_shows_who_holds_what_one_sees() -> None:
    _, _, leases, (all_seen, near) = two_nodes()
    view = leases.view(all_seen)
    assert view["names"] == ["near-owner", "ann", "far-owner"]
    assert np.frombuffer(view["owner"], "<u2").tolist() == [
        SEVERAL, 1, NO_LEASE, SEVERAL, 1, NO_LEASE]
    assert np.frombuffer(view["until"], "<u4").tolist() == [2_000, 2_000, 0] * 2
    hidden = leases.view(near)
    assert hidden["names"] == ["near-owner", "ann"]
    assert np.frombuffer(hidden["owner"], "<u2").tolist() == [SEVERAL, 1, NO_LEASE]


def test_nothing_is_sent_of_leases_where_there_never_was_one() -> None:
    _, queries, leases, _ = two_nodes()
    assert leases.version is not None
    queries.service.watch.version = 0
    assert leases.version is None


def test_a_claim_is_seen_by_those_who_see_its_nodes_and_by_its_owner() -> None:
    _, queries, _, (all_seen, near) = two_nodes()
    claims = [claim("any"), claim("near", hosts=("near.host",)), claim("far", hosts=("far",)),
              claim("own", owner="ann", hosts=("far",)), claim("both", hosts=("near", "far.host"))]
    assert queries.visible_claims(claims, all_seen, ()) == claims
    visible = queries.visible_claims(claims, near, near.reads.own)
    assert [claim.id for claim in visible] == ["near", "own"]
    assert [node.id for node in queries.nodes(near)] == ["near"]


def test_free_is_one_number_everywhere() -> None:
    """A leased GPU that nobody uses is not free; a forgotten task that the pool gives no weight
    keeps none from anybody."""
    fleet, queries, _, (all_seen, _) = two_nodes()
    rows = [EMPTY] * 3
    for name in ("near", "far"):
        fleet.frame(fleet.nodes[name], frame(rows, tasks=tasks(("left", 2, "bob"))), NOW, MONO)
    far = queries.nodes(all_seen)[1]
    assert views.totals(fleet, all_seen, NOW, MONO)["gpus"]["free"] == 4, "tasks alone, as yet"
    fleet.take_pool(fleet.nodes[far.id], far.report)
    free = {"GPU-near-0", "GPU-near-1", "GPU-far-2"}
    filter = parse("state:free")
    assert filter is not None
    picked = filter.matches(fleet, MONO, all_seen.reads)
    assert {fleet.uuids[slot] for slot in np.flatnonzero(picked)} == free
    assert views.totals(fleet, all_seen, NOW, MONO)["gpus"]["free"] == len(free)
    assert sum(model.free for model in model_views([far])) == 1
    troubled = tuple(msgspec.structs.replace(gpu, trouble="in use") for gpu in far.report.gpus)
    fleet.take_pool(fleet.nodes[far.id], msgspec.structs.replace(far.report, gpus=troubled))
    assert views.totals(fleet, all_seen, NOW, MONO)["gpus"]["free"] == 2


def test_prometheus_hears_what_is_free_by_model_and_what_is_waited_for() -> None:
    _, queries, _, (_, near) = two_nodes()
    gpus = random.randint(2, 9)
    waiting = [claim("a", gpus=gpus, models=("h100",)), claim("b", gpus=1, models=("h100",)),
               claim("c", gpus=2, nodes=3)]
    text = "".join(pool_families(queries.nodes(near), waiting))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == [
        'gpudeck_pool_gpus{state="free",model="H100"} 0',
        'gpudeck_pool_gpus{state="leased",model="H100"} 2',
        'gpudeck_pool_gpus{state="unavailable",model="H100"} 0',
        'gpudeck_pool_gpus{state="free",model="T4"} 1',
        'gpudeck_pool_gpus{state="leased",model="T4"} 0',
        'gpudeck_pool_gpus{state="unavailable",model="T4"} 0',
        f'gpudeck_pool_waiting_gpus{{model="h100"}} {gpus + 1}',
        'gpudeck_pool_waiting_gpus{model="any"} 6']
