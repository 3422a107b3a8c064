"""A share of a GPU is proposed where MPS was seen, and nowhere else."""

import getpass
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dashboard.pool.mps_nodes import notes, without_mps
from dashboard.pool.plan import PoolNode
from dashboard.pool.views import claim_views
from gpudeck.limits import LimitsNow, MpsDaemon
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.link import NodeClaim, PoolReport
from tests.unit.dashboard.pool.interleavings import World
from tests.unit.dashboard.pool.test_offered_again import passes

NONE_SEEN = LimitsNow(0.0)


def told(user: str, is_alive: bool = True) -> SimpleNamespace:
    return SimpleNamespace(limits=LimitsNow(0.0, (MpsDaemon("/run/mps", 0, user, is_alive),)))


def share(name: str = "a", **more: object) -> Claim:
    return Claim(**{"id": name, "owner": "ann", "gpus": 1, "submitted_at": 0.0,
                    "share_milli": 300, **more})  # type: ignore[arg-type]


def node(name: str, *claims: NodeClaim) -> PoolNode:
    return PoolNode(name, name, PoolReport((), claims, ()))


@pytest.mark.parametrize(("said", "is_closed"), [
    (told("root"), False), (told("ann"), False), (told("bob"), True), (told("root", False), True),
    (SimpleNamespace(limits=NONE_SEEN), True), (SimpleNamespace(limits=None), True), (None, True)])
def test_of_its_owner_or_of_root_and_alive(said: SimpleNamespace | None, is_closed: bool) -> None:
    known = {} if said is None else {"n1": said}
    assert without_mps([share()], [node("n1")], known) == {
        "a": frozenset({"n1"} if is_closed else ())}
    assert without_mps([share(share_milli=1_000)], [node("n1")], known) == {}


@pytest.mark.parametrize(("limits_itself", "is_closed"), [
    (True, False), (None, False), (False, True)])
def test_what_holds_its_share_itself_and_what_an_older_agent_asks_goes_there(
        limits_itself: bool | None, is_closed: bool) -> None:
    asked = share(hosts=("n1",))
    there = [node("n1", NodeClaim(asked, True, limits_itself=limits_itself))]
    assert bool(without_mps([asked], there, {})) is is_closed


def test_it_is_said_once_no_node_is_left() -> None:
    there = [node(f"n{number}") for number in range(6)]
    one = [share(hosts=("n1",))]
    assert notes(one, there, {"a": {"n1"}})["a"].startswith("no MPS for ann on n1, and without it ")
    assert notes([share()], there, {"a": {"n1"}}) == {}
    said = notes([share()], there, {"a": {each.id for each in there}})["a"]
    assert "on n0, n1, n2, n3 and 2 more, and" in said
    assert said.endswith("start it there with gpudeck mps start")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    yield world
    for each in world.nodes.values():
        each.journal.close()
    world.hub.store.close()


def test_none_is_offered_until_mps_is_there_and_its_owner_reads_why(world: World) -> None:
    service = world.hub.service
    service.fleet.put_limits(NONE_SEEN)  # type: ignore[attr-defined]
    for each in world.nodes.values():
        world.link(each)
    passes(world, 1)
    service.claim(share(owner=getpass.getuser(), submitted_at=world.machine.now + 1e6))
    for _ in range(20):
        passes(world, 1)
        assert not service.pending
        assert not service.refusals.notes, "no node was asked"
    assert service.planned is not None
    [view] = claim_views(service.planned, {"a"}, (), lambda _: (), {})
    assert view.why.startswith(f"no MPS for {getpass.getuser()} on n0, n1, and without it ")
    service.fleet.put_limits(told("root").limits)  # type: ignore[attr-defined]
    passes(world, 5)
    assert [each.service.leases.all.keys() for each in world.nodes.values()
            if each.service.leases.all] == [{"a"}]
