"""A share of a GPU is proposed where MPS was seen, CPUs and memory where they are counted, and
nowhere else."""

import getpass
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dashboard.pool.excluded_nodes import ExcludedNodes, excluded_nodes, uncounting_nodes
from dashboard.pool.plan import PlannedPass, PoolNode
from dashboard.pool.views import claim_views
from gpudeck.contract.limits import LimitsNow, MpsDaemon
from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolReport, ReportedLease
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.host_resources import FreeHost
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from tests.unit.dashboard.pool.interleavings import World
from tests.unit.dashboard.pool.passes import scheduled
from tests.unit.dashboard.pool.test_offered_again import passes
from tests.unit.gpudeck.pool.inventories import NoBookings

NONE_SEEN = LimitsNow(0.0)


def host(user: str, is_alive: bool = True) -> SimpleNamespace:
    return SimpleNamespace(limits=LimitsNow(0.0, (MpsDaemon("/run/mps", 0, user, is_alive),)))


def share(name: str = "a", **more: object) -> Claim:
    return Claim(**{"id": name, "owner": "ann", "gpus": 1, "submitted_at": 0.0,
                    "share_milli": 300, **more})  # type: ignore[arg-type]


def node(name: str, *claims: NodeClaim) -> PoolNode:
    return PoolNode(name, name, PoolReport((), claims, ()))


@pytest.mark.parametrize(("facts", "is_closed"), [
    (host("root"), False), (host("ann"), False), (host("bob"), True), (host("root", False), True),
    (SimpleNamespace(limits=NONE_SEEN), True), (SimpleNamespace(limits=None), True), (None, True)])
def test_of_its_owner_or_of_root_and_alive(facts: SimpleNamespace | None, is_closed: bool) -> None:
    known_nodes = {} if facts is None else {"n1": facts}
    assert excluded_nodes([share()], [node("n1")], known_nodes) == (
        {"a": ExcludedNodes(frozenset({"n1"}))} if is_closed else {})
    assert excluded_nodes([share(share_milli=1_000)], [node("n1")], known_nodes) == {}


@pytest.mark.parametrize(("limits_itself", "is_closed"), [
    (True, False), (None, False), (False, True)])
def test_what_holds_its_share_itself_and_what_an_older_agent_asks_goes_there(
        limits_itself: bool | None, is_closed: bool) -> None:
    claim = share(hosts=("n1",))
    there = [node("n1", NodeClaim(claim, True, limits_itself=limits_itself))]
    assert bool(excluded_nodes([claim], there, {})) is is_closed


def test_it_is_said_of_which_nodes() -> None:
    there = [node(f"n{number}") for number in range(6)]
    over = ExcludedNodes(frozenset(pool_node.id for pool_node in there))
    assert over.words(share(), there[1:2]).startswith("no MPS for ann on n1, and without it ")
    assert over.words(share(), ()) == ""
    message = over.words(share(), there)
    assert "on n0, n1, n2, n3 and 2 more, and" in message
    assert message.endswith("start it there with gpudeck mps start")


@pytest.mark.parametrize(("resources", "counts", "words"), [
    ({}, {}, ""), ({"cpu_milli": 1}, {"cpus": 1}, ""), ({"ram_bytes": 1}, {"ram_bytes": 1}, ""),
    ({"ram_bytes": 1}, {"cpus": 1}, "memory is"), ({"cpu_milli": 1}, {"ram_bytes": 1}, "CPUs are"),
    ({"cpu_milli": 1, "ram_bytes": 1}, {"cpus": 1}, "memory is"),
    ({"cpu_milli": 1, "ram_bytes": 1}, {}, "CPUs and memory are"),
])
def test_an_older_agent_that_does_not_count_what_is_asked_for_is_not_asked(
        resources: dict[str, int], counts: dict[str, int], words: str) -> None:
    there = [PoolNode("n1", "n1", PoolReport((), (), (), **counts))]  # type: ignore[arg-type]
    one = replace(share(share_milli=1_000), **resources)  # type: ignore[arg-type]
    over = excluded_nodes([one], there, {})
    assert uncounting_nodes([one], there) == {
        claim_id: excluded.uncounted for claim_id, excluded in over.items()}
    assert over.get("a", ExcludedNodes()).words(one, there) == (words and (
        f"{words} not counted on n1: the agent there is older than 0.2, or has just started"))


def offering(name: str, leased: int, **more: object) -> PoolNode:
    leases = tuple(ReportedLease(share(f"{name}-{at}", share_milli=1_000), (f"{name}-{at}",),
                                 "active", 0.0, 9e4, 0.0) for at in range(leased))
    return PoolNode(name, name, PoolReport(tuple(
        OfferedGpu(f"{name}-{at}", "H100", at) for at in range(4)), (), leases,
        **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("resources", "words", "over"), [
    ({}, "30 % of a GPU", "no MPS for ann on n2, and without it a share would be the whole GPU: "
     "start it there with gpudeck mps start"),
    ({"share_milli": 1_000, "cpu_milli": 2_000}, "1 GPU, 2 CPUs", "CPUs are not counted on n2: the "
     "agent there is older than 0.2, or has just started")])
def test_its_gpus_are_not_counted_among_those_that_are_free(
        resources: dict[str, int], words: str, over: str) -> None:
    there, one = [offering("n1", 4, cpus=8), offering("n2", 1)], replace(share(), **resources)  # type: ignore[arg-type]
    closed = excluded_nodes([one], there, {"n1": host("root")})
    plan = scheduled(there, [one], {}, (), None, (), NoOwnerLimits(), {}, {}, PoolPolicy(), {}, 0.0,
                     {claim_id: excluded.nodes for claim_id, excluded in closed.items()})
    planned = PlannedPass(plan, there, {"a": one}, {}, {}, closed, None, NoBookings(), 0.0)
    assert planned.standing(one).why == f"it asks for {words}; 0 of 4 matching are free; {over}"
    on_first = replace(one, hosts=("n1",))
    assert planned.standing(on_first).elsewhere == ()
    assert PlannedPass(plan, there, {"a": one}, {}, {}, {}, None, NoBookings(), 0.0).standing(
        on_first).elsewhere == ("n2",), "as it is where nothing speaks against it"


def test_none_is_offered_for_memory_to_an_agent_that_does_not_count_it(world: World) -> None:
    service = world.hub.service
    for node in world.nodes.values():
        world.link(node)
    passes(world, 1)
    service.claim(share(share_milli=1_000, ram_bytes=2**30, owner=getpass.getuser(),
                        submitted_at=world.machine.now + 1e6))
    for _ in range(20):
        passes(world, 1)
        assert not service.pending
        assert not service.refusals.notes, "no node was asked"
    assert service.planned is not None
    [view] = claim_views(service.planned, {"a"}, {}, (), lambda _: (), {})
    assert view.why.startswith("memory is not counted on n0, n1: the agent there is older than ")
    for node in world.nodes.values():
        snapshot = node.service.snapshot
        assert snapshot is not None
        node.service.snapshot = replace(snapshot, host=FreeHost(None, 2**31))
    passes(world, 5)
    [lease] = [lease for node in world.nodes.values() for lease in node.service.leases.all.values()]
    assert lease.claim.ram_bytes == 2**30


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def test_none_is_offered_until_mps_is_there_and_its_owner_reads_why(world: World) -> None:
    service = world.hub.service
    service.fleet.put_limits(NONE_SEEN)  # type: ignore[attr-defined]
    for node in world.nodes.values():
        world.link(node)
    passes(world, 1)
    service.claim(share(owner=getpass.getuser(), submitted_at=world.machine.now + 1e6))
    for _ in range(20):
        passes(world, 1)
        assert not service.pending
        assert not service.refusals.notes, "no node was asked"
    assert service.planned is not None
    [view] = claim_views(service.planned, {"a"}, {}, (), lambda _: (), {})
    assert view.why.startswith(f"no MPS for {getpass.getuser()} on n0, n1, and without it ")
    service.fleet.put_limits(host("root").limits)  # type: ignore[attr-defined]
    passes(world, 5)
    assert [node.service.leases.all.keys() for node in world.nodes.values()
            if node.service.leases.all] == [{"a"}]
