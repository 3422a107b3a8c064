"""Leases that have ended: what the hub keeps of them."""

import itertools
import random
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import gevent
import pytest
from msgspec.structs import replace as changed

from dashboard.jobs.core.teams import Team, TeamTable
from dashboard.pool import stretch
from dashboard.pool.ended import BYTES_MOST, EndedLeases
from dashboard.pool.store import SCHEMA, PoolStore
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.contract.pool_link import OfferedGpu, PoolReport, ReportedEnd, ReportedLease
from gpudeck.contract.quota import Quota
from gpudeck.pool.core.claims import Claim, Grant, Lease
from gpudeck.pool.core.fair_share import FairSharePolicy, usage_of
from gpudeck.pool.core.inventory import FreeGpu, Node, node_of
from tests.unit.dashboard.pool.large_pool import LargePool

NOW = 1_000.0


def an_end(number: int) -> ReportedEnd:
    claim = Claim(id=f"l{number}", owner="ann", gpus=1, submitted_at=0.0)
    return ReportedEnd(claim, ("G0-0",), 1.0, 2.0 + number / 10, "released")


def a_node(number: int) -> Node:
    return node_of(f"id{number}", f"n{number}", [
        (f"G{number}-{index}", FreeGpu("H100", False, None, None, None)) for index in range(8)])


def test_leases_that_ended_are_kept_one_by_one_only_for_a_while() -> None:
    pool = LargePool([a_node(0)], (), (), NOW, random.Random(1))
    history = pool.service.ended
    for number in range(5_000):
        history.add_all("id0", [an_end(number)], 86_400.0 * number / 4_000)
    assert not pool.service.store.add_ended("id0", [(an_end(0), b"")])
    assert len(history.recent) == 4_096
    assert history.recent[-1].id == "l4999"
    assert history.usage is not None
    was = history.usage.usage(NOW, {}).owners["ann"]
    history.add_all("id0", [an_end(4_999)], 9e9)  # said again
    assert history.usage.usage(NOW, {}).owners["ann"] == was
    history.open(pool.service.policy.fair_share, NOW)  # as after a restart
    assert abs(history.usage.usage(NOW, {}).owners["ann"] - was) < 1e-6 * was
    assert [lease.id for lease in history.recent][-1] == "l4999"
    pool.close()


def test_what_a_node_says_has_ended_is_bounded_in_bytes() -> None:
    pool = LargePool([a_node(0)], (), (), NOW, random.Random(1))
    service, claim = pool.service, an_end(0).claim
    models = tuple(f"{number:>0256}" for number in range(64))
    for number in range(200):
        pool.says("id0", ended=tuple(ReportedEnd(
            replace(claim, id=f"{number}-{at}", models=models, gpus=1_024),
            tuple(f"{at}{made_up:>0120}" for made_up in range(256)), 1.0, 2.0, "released",
            "x" * 1_000) for at in range(10)))
    entries = [*service.store.ended_since(0.0)]
    assert 30 < len(entries) < 100, "16 kB each, and no more than 1 MB an hour"
    assert all(not end.uuids and not end.claim.gpus for _, end in entries)
    assert service.ended.usage is not None
    assert not service.ended.usage.usage(NOW, {}).owners.get("ann")
    pool.service.reported("id1", PoolReport(tuple(
        OfferedGpu("G0-0", "H100", 0) for _ in range(1)), (), (), (an_end(2),)))
    [end] = [end for _, end in service.store.ended_since(0.0) if end.claim.id == "l2"]
    assert end.uuids == ("G0-0",), "another node's budget is its own"
    pool.close()


def test_leases_that_ended_take_no_more_disk_than_their_node_may(tmp_path: Path) -> None:
    """Charge what a row takes: of 1.5 kB each took a page of its own, and 2 MB of them 5.7."""
    long = tuple(f"G0-{number:>080}" for number in range(16))
    with closing(SqliteStateStore(tmp_path / "state.db")) as state:
        state.migrate((SCHEMA,))
        history = EndedLeases(PoolStore(state.connection))
        for number in range(2_000):
            history.add_all("id0", [changed(an_end(number), uuids=long)], NOW)
        [size] = state.connection.execute("select sum(pgsize) from dbstat").fetchone()
    assert 0.5 * BYTES_MOST[0][1] < size < 1.2 * BYTES_MOST[0][1]


def test_the_rest_of_the_hub_runs_before_the_pass_and_while_nodes_are_told() -> None:
    pool = LargePool([a_node(number) for number in range(4)], (), [], NOW, random.Random(1))
    assert len(pool.turn_ms()) >= 4
    pool.close()


def test_a_claim_that_is_withdrawn_during_a_turn_is_offered_nothing() -> None:
    claims = [Claim(id=f"c{number}", owner="ann", gpus=1, submitted_at=0.0) for number in range(2)]
    pool = LargePool([a_node(0)], (), claims, NOW, random.Random(1), at_hub=1.0)
    turn = gevent.spawn(pool.service.step, NOW, 0.0)
    gevent.sleep(0)  # bookings are renewed, and the pass has not begun
    assert not turn.ready()
    assert not pool.service.pending
    pool.service.withdraw("c0")
    turn.get()
    assert pool.service.pending.keys() == {"c1"}
    pool.close()


def test_a_pass_rests_and_honours_what_comes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretch, "HOLDS_S", 0.0)
    claims = [Claim(id=f"c{number}", owner="ann", gpus=8, submitted_at=float(number))
              for number in range(3)]
    nodes = [a_node(number) for number in range(3)]
    pool = LargePool(nodes, (), claims, NOW, random.Random(1), at_hub=1.0)
    turn = gevent.spawn(pool.service.step, NOW, 0.0)
    for _ in range(5):
        gevent.sleep(0)
    assert not turn.ready(), "claims are looked at one by one"
    pool.service.withdraw("c0")
    own_lease = ReportedLease(Claim(id="own", owner="bob", gpus=8, submitted_at=0.0),
                              tuple(f"G0-{index}" for index in range(8)), "active", 0.0, 9e4, 0.0)
    pool.says("id0", leases=(own_lease,))
    turn.get()
    assert pool.service.pending.keys() <= {"c1", "c2"}
    assert all(grant.node != "id0" for offer in pool.service.pending.values()
               for grant in offer.grants)
    pool._turns += 1
    pool.service.step(NOW, pool._clock())
    assert pool.service.pending.keys() == {"c1", "c2"}
    pool.close()


def test_what_quotas_leave_is_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting all nodes and leases at once would hold the hub."""
    monkeypatch.setattr(stretch, "HOLDS_S", 0.0)
    nodes = [a_node(number) for number in range(600)]
    leases = [Lease(id=node.id, claim=Claim(id=node.id, owner=f"u{node.id}", gpus=1,
                                            submitted_at=0.0),
                    grants=(Grant(node.id, node.uuids[:1]),), since=0.0, until=9e4)
              for node in nodes]
    rests = []
    for quotas in ((), (Quota(id="q", subject="*", scope="node:n1", gpus=1, mode="act"),)):
        pool = LargePool(nodes, leases, (), NOW, random.Random(1), quotas=quotas)
        rests.append(len(pool.turn_ms()))
        pool.close()
    assert rests[1] > rests[0] + 600


def test_each_node_pays_for_what_it_adds_to_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count looks at the clock instead of time: a stray millisecond was a tenth of it."""
    readings = itertools.count()
    monkeypatch.setattr(stretch, "thread_time", lambda: float(next(readings)))
    spent_s: Counter[str] = Counter()
    claims = [Claim(id=f"c{number}", owner="ann", gpus=9, submitted_at=0.0)
              for number in range(400)]
    pool = LargePool([a_node(0)], (), claims, NOW, random.Random(1))
    pool.service.spend = lambda node_id, seconds, at: spent_s.update({node_id: seconds})
    pool.service.reported("id1", PoolReport((), (), ()))
    pool.turn_ms()
    assert spent_s["id0"] > 400
    assert spent_s["id0"] > 10 * spent_s["id1"]
    pool.close()


def test_the_hubs_table_of_teams_orders_the_queue_and_takes_groups_that_a_node_says() -> None:
    had = Lease(id="l", claim=Claim(id="l", owner="ann", gpus=8, submitted_at=0.0),
                grants=(Grant("id0", tuple(f"G0-{index}" for index in range(8))),), since=0.0,
                until=9e4)
    claims = [Claim(id=owner, owner=owner, gpus=1, submitted_at=float(at))
              for at, owner in enumerate(("new", "bob"))]
    table = TeamTable((Team("vision", users=("ann",), groups=("lab3",)),))
    for groups, order in (({}, ("new", "bob")), ({"new": ("lab3",)}, ("bob", "new"))):
        pool = LargePool([a_node(0)], [had], claims, NOW, random.Random(1), 1.0,
                         teams_of=table.of)
        pool.says("id0", groups=groups)
        pool.turn_ms()
        assert pool.service.planned is not None
        assert pool.service.planned.outcome.order == order
        assert pool.service.team_of.get("new") == ("vision" if groups else None)
        pool.close()


def test_quotas_count_what_is_leased_on_a_node_that_is_away_as_long_as_its_term_goes() -> None:
    lease = Lease(id="l", claim=Claim(id="l", owner="ann", gpus=4, submitted_at=0.0),
                  grants=(Grant("id0", tuple(f"G0-{at}" for at in range(4))),), since=0.0,
                  until=NOW + 100.0)
    waits = Claim(id="w", owner="ann", gpus=4, submitted_at=0.0)
    pool = LargePool([a_node(0), a_node(1)], [lease], [waits], NOW, random.Random(1), 1.0,
                     [Quota(id="q", subject="user:ann", mode="act", gpus=4)])
    pool.service.connected = {"id1"}
    pool.turn_ms()
    assert pool.service.planned is not None
    assert "q gives ann 4 GPUs" in pool.service.planned.outcome.blocked["w"]
    pool.service.step(NOW + 101.0, pool._clock() + 100.0)
    assert [offer.claim.id for offer in pool.service.planned.outcome.offers] == ["w"]
    pool.close()


def test_turns_count_what_is_leased_on_a_node_that_is_away_and_its_term_is_the_most() -> None:
    """A lease counted nothing once its node was not heard any more."""
    lease = Lease(id="l", claim=Claim(id="l", owner="ann", gpus=8, submitted_at=0.0),
                 grants=(Grant("id0", tuple(f"G0-{at}" for at in range(8))),), since=0.0,
                 until=NOW + 100.0)
    waiting = [Claim(id=owner, owner=owner, gpus=8, submitted_at=at)
               for at, owner in enumerate(("ann", "bob"))]
    for connected in ({"id0", "id1"}, {"id1"}):
        pool = LargePool([a_node(0), a_node(1)], [lease], waiting, NOW, random.Random(1), 1.0)
        pool.service.connected = connected
        pool.turn_ms()
        assert pool.service.planned is not None
        assert [offer.claim.id for offer in pool.service.planned.outcome.offers] == ["bob"]
        pool.close()
    now = 2 * NOW
    for until, seconds in ((NOW - 100.0, 900.0), (9 * NOW, now), (-1.0, 0.0)):
        usage = usage_of((), None, now, FairSharePolicy(), {}, [replace(lease, until=until)])
        assert usage.owners["ann"] == pytest.approx(8 * seconds, rel=0.01)


def test_who_holds_gpus_is_in_their_groups_while_a_node_that_has_started_looks_them_up() -> None:
    leases = [Lease(id=owner, claim=Claim(id=owner, owner=owner, gpus=1, submitted_at=0.0),
                    grants=(Grant("id0", (f"G0-{at}",)),), since=0.0, until=9e4)
              for at, owner in enumerate(("ann", "bob"))]
    table = TeamTable((Team("vision", groups=("lab3",)), Team("speech", groups=("lab4",))))
    pool = LargePool([a_node(0)], leases, [], NOW, random.Random(1), teams_of=table.of)
    teams = []
    for groups in ({"ann": ("lab3",), "bob": ("lab3",)}, {}, {"bob": ("lab4",)}):
        pool.says("id0", groups=groups)
        pool.turn_ms()
        teams.append(pool.service.team_of)
    assert teams == [{"ann": "vision", "bob": "vision"}, {"ann": "vision", "bob": "vision"},
                     {"ann": "vision", "bob": "speech"}]
    pool.says("id0", leases=())
    pool.says("id0", groups={})
    assert pool.service.nodes[0].report.groups == {}
    pool.close()
