"""A claim that is withdrawn while a node may already be taking it leaves no lease behind."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.pool.test_interleavings import World


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
    assert [each.claim_id for each in offer.offers] == ["c"]
    service.withdraw("c")
    if another_report_comes_first:
        service.reported(node.id, service.nodes[0].report)
    for _ in range(2):
        while node.from_hub:
            node.service.hear(node.from_hub.popleft())
        if not node.service.leases.all:
            break
        world.report(node)
        passes(world)
        passes(world)
    assert node.service.leases.ended, "it was never leased: nothing was tried"
    assert not node.service.leases.all
    world.report(node)
    assert service.lease("c") is None
    assert not service.pending
