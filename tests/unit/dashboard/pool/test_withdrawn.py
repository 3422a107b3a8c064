"""A claim that is withdrawn while a node may already be taking it leaves no lease behind."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.contract.pool_messages import (
    AskClaim,
    CancelClaim,
    ClaimCancelled,
    ClaimRefused,
    FromPool,
)
from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.pool.interleavings import Node, Run, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    world.link(world.nodes["n0"])
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def passes(world: World) -> None:
    world.machine.now += 1
    world.hub.service.step(world.machine.now + 1e6, world.machine.now)


@pytest.mark.parametrize("another_report_comes_first", [False, True])
def test_what_a_node_takes_of_it_is_given_back(world: World, another_report_comes_first: bool
                                               ) -> None:
    node, service = world.nodes["n0"], world.hub.service
    world.report(node)
    service.claim(Claim(id="c", owner="root", gpus=2, submitted_at=0.0))
    passes(world)
    [offer] = node.from_hub
    assert [lease_offer.claim_id for lease_offer in offer.offers] == ["c"]
    service.withdraw("c")
    if another_report_comes_first:
        service.reported(node.id, service.nodes[0].report)
    for _ in range(2):
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())
        if not node.service.leases.all:
            break
        world.report(node)
        passes(world)
        passes(world)
    assert node.service.leases.ended_leases, "it was never leased: nothing was tried"
    assert not node.service.leases.all
    world.report(node)
    assert service.lease("c") is None
    assert not service.pending


def exchange(world: World, node: Node) -> None:
    for _ in range(3):
        world.report(node)
        passes(world)
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())


def test_who_asked_on_a_node_withdraws_there_and_nobody_else(world: World) -> None:
    near, far = world.nodes.values()
    world.link(far)
    bookings = world.hub.service.bookings

    def cancel(node: Node, owner: str, uid: int) -> FromPool:
        run = Run(node, None, uid, owner)
        node.requests.handle(run, CancelClaim("r"), None)  # type: ignore[arg-type]
        exchange(world, node)
        [reply] = run.replies
        return reply

    for node in (near, far):
        exchange(world, node)
    asks = Run(near, AskClaim("r", is_run=False, gpus=2,
                              starts_at=world.machine.now + 1e6 + 600), 7, "ann")
    near.requests.handle(asks, asks.claim, None)  # type: ignore[arg-type]
    exchange(world, near)
    assert "r" in bookings.all
    for node, owner, why in ((near, "bob", "it is of ann"), (far, "ann", "not requested on this")):
        reply = cancel(node, owner, 9)
        assert isinstance(reply, ClaimRefused)
        assert why in reply.why
        assert "r" in bookings.all
    assert cancel(near, "ann", 7) == ClaimCancelled()
    assert not bookings.all
    reply = cancel(near, "ann", 7)
    assert isinstance(reply, ClaimRefused)
    assert "no claim r waits" in reply.why
