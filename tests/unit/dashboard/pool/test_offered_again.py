"""Offers that a node could not take yet come again, though nothing else has changed there; and what
is for several nodes comes to all of them and goes from all."""

import getpass
import os
import random
from pathlib import Path

from dashboard.pool.service import ANSWER_WITHIN_S
from gpudeck.contract.pool_messages import AskClaim
from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.pool.interleavings import Run, World


def passes(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.machine.now += 1
        for node in world.nodes.values():
            node.service.mps.probe_if_requested()
            node.service.step()
            world.report(node)
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        for node in world.nodes.values():
            while node.from_hub:
                node.service.receive(node.from_hub.popleft())


def test_what_a_node_refused_for_a_moment_is_soon_offered_again(tmp_path: Path) -> None:
    """The node asks its MPS only when a part of a GPU is offered, so it has no answer at first."""
    world = World(tmp_path, random.Random(1))
    [node, _] = world.nodes.values()
    world.link(node)
    world.report(node)
    world.hub.service.claim(Claim(id="a", owner=getpass.getuser(), gpus=1, share_milli=300,
                                  submitted_at=world.machine.now + 1e6))
    passes(world, int(ANSWER_WITHIN_S) // 3)
    assert node.service.leases.all.keys() == {"a"}, node.service.waiting.refusals
    node.journal.close()
    world.hub.store.close()


def test_a_run_over_two_nodes_has_both_or_none_and_what_it_did_not_use_goes_with_it(tmp_path: Path
                                                                                  ) -> None:
    world = World(tmp_path, random.Random(1))
    here, there = world.nodes.values()
    for node in (here, there):
        world.link(node)
    passes(world, 2)
    run = Run(here, AskClaim(request_id="a", is_run=True, gpus=2, nodes=2), os.getuid(),
              getpass.getuser(), other_nodes=[there])
    here.runs.append(run)
    here.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    passes(world, 5)
    assert run.lease is not None
    assert run.lease.hosts == ("n0", "n1")
    assert there.service.leases.all["a"].hosts == ("n0", "n1")
    run.bind()
    run.command_ends()
    run.gives_back()
    passes(world, 5)
    assert not here.service.leases.all
    assert not there.service.leases.all
    for node in (here, there):
        node.journal.close()
    world.hub.store.close()
