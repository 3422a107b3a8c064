"""Claims that nodes refuse three times for one reason are refused for good; the owner reads why."""

import errno
import getpass
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.tasks import user_table
from dashboard.pool.refusals import AVOID_S, NodeRefusals
from dashboard.pool.service import ANSWER_WITHIN_S
from dashboard.pool.views import claim_views, refused_view
from gpudeck.contract.pool_messages import AskClaim, ClaimRefused
from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.pool.interleavings import Run, World
from tests.unit.dashboard.pool.test_offered_again import passes


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def claim(world: World, name: str, owner: str = "", gpus: int = 1, share: int = 1_000) -> Claim:
    new_claim = Claim(id=name, owner=owner or getpass.getuser(), gpus=gpus, share_milli=share,
                      submitted_at=world.machine.now + 1e6)
    world.hub.service.claim(new_claim)
    return new_claim


def test_of_a_user_whom_no_node_has_it_is_refused_and_its_owner_reads_so(world: World) -> None:
    for node in world.nodes.values():
        world.link(node)
    passes(world, 1)
    unknown_claim = claim(world, "a", owner="nobody-is-called-so")
    passes(world, 1 + int(3 * AVOID_S))
    service = world.hub.service
    assert "a" not in service.claims
    assert "a" not in service.pending
    view = refused_view(service.refusals.for_good["a"])
    assert (view.id, view.owner, view.place) == ("a", unknown_claim.owner, 0)
    assert view.why == f"refused: n0, n1: there is no user {unknown_claim.owner}"
    assert not service.waiting(service.nodes)


def test_a_user_who_could_not_be_looked_up_is_not_said_to_be_absent(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(name: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(user_table, "uid_of", no_file)
    for node in world.nodes.values():
        world.link(node)
    passes(world, 1)
    claim(world, "a")
    passes(world, 2)
    assert "its users cannot be read (Too many open files)" in (
        world.hub.service.refusals.notes["a"])
    monkeypatch.undo()
    passes(world, 1 + int(AVOID_S))
    assert [node.service.leases.all.keys() for node in world.nodes.values()
            if node.service.leases.all] == [{"a"}]


def test_a_node_that_never_answers_is_not_asked_for_ever(world: World) -> None:
    """Meanwhile what it is asked stands in the queue."""
    silent, other = world.nodes.values()
    for node in (silent, other):
        world.link(node)
    passes(world, 1)
    silent.service.receive = lambda plan: None  # type: ignore[method-assign]
    other.service.receive = lambda plan: None  # type: ignore[method-assign]
    claim(world, "a")
    service = world.hub.service
    whys = set()
    for _ in range(int(3 * ANSWER_WITHIN_S + 3 * AVOID_S)):
        passes(world, 1)
        assert service.planned is not None
        whys |= {view.why for view in claim_views(
            service.planned, {"a"}, {}, (), lambda _: (), {})}
        if "a" in service.refusals.for_good:
            break
    assert "offered to n0, no answer yet" in whys
    assert "offered to n1, no answer yet" in whys, "another one is asked first"
    assert "no answer within 30 s" in service.refusals.for_good["a"].why


def test_a_run_whose_node_does_not_take_it_is_told_why(world: World) -> None:
    here, _ = world.nodes.values()
    world.link(here)
    passes(world, 1)
    here.service.leases.grant = lambda *_, **__: "GPU 0 does not have that much memory left"  # type: ignore[method-assign]
    run = Run(here, AskClaim(request_id="a", is_run=True, gpus=1), os.getuid(), getpass.getuser())
    here.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    passes(world, int(4 * AVOID_S))
    assert ClaimRefused("n0: GPU 0 does not have that much memory left") in run.replies
    assert not here.service.waiting.all
    passes(world, 2)
    assert not world.hub.service.bookings.never


def test_only_one_reason_after_another_counts_and_nodes_are_avoided_for_a_while() -> None:
    refusals = NodeRefusals()
    for why in ("busy", "busy", "lost", "busy", "busy"):
        assert refusals.add("a", {"i1": "n1"}, why, 100.0) == ""
    assert refusals.avoided(100.0 + AVOID_S - 0.1) == {"a": frozenset({"i1"})}
    assert refusals.avoided(100.0 + AVOID_S) == {}
    assert refusals.add("a", {"i2": "n2"}, "busy", 200.0) == "n1, n2: busy"
    refusals.forget((), 0.0)
    assert refusals.add("a", {"i1": "n1"}, "busy", 200.0) == ""
