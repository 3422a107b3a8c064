"""A lease past its end while a pinned claim waits for its GPUs: shown, and ended only where the
site says so. Hub and node, without a network."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.pool.lock import NodeLease
from gpudeck.contract.pool_messages import AskClaim
from gpudeck.pool.core.schedule import PoolPolicy
from tests.unit.dashboard.pool.interleavings import GPUS_EACH, Run, World

PIN_S, TERM_S = 60.0, 3_600.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    world.link(world.nodes["n0"])
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def asks(world: World, name: str) -> Run:
    node = world.nodes["n0"]
    run = Run(node, AskClaim(request_id=name, is_run=True, gpus=GPUS_EACH, term_s=TERM_S))
    node.runs.append(run)
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    return run


def passes(world: World, seconds: float, step_s: float = 30.0) -> None:
    node, until = world.nodes["n0"], world.machine.now + seconds
    while world.machine.now < until:
        world.machine.now += step_s
        node.service.step()
        world.report(node)
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())


def outlast_term(world: World) -> tuple[Run, NodeLease]:
    """A command that outlasts its term, while somebody waits."""
    first = asks(world, "first")
    passes(world, 10, 5.0)
    first.bind()
    asks(world, "second")
    passes(world, TERM_S - 120)
    return first, world.nodes["n0"].service.leases.all["first"]


def lease(world: World) -> NodeLease:
    return world.nodes["n0"].service.leases.all["first"]


@pytest.mark.parametrize("ends", [True, False])
def test_its_work_is_ended_only_where_the_site_says_so(world: World, ends: bool) -> None:
    world.hub.service.set_policy(PoolPolicy(pin_after_s=PIN_S, end_overdue=ends), 1e6)
    first, was = outlast_term(world)
    assert not was.preempted, "its term is not over"
    passes(world, 600)
    assert lease(world).until == was.until, "it is not renewed"
    assert lease(world).preempted.startswith("the term of this lease is over" if ends else "")
    assert bool(lease(world).preempted) == ends
    first.command_ends()
    first.gives_back()
    passes(world, 10, 5.0)
    assert world.nodes["n0"].service.leases.all.keys() == {"second"}


def test_who_extends_it_keeps_it(world: World) -> None:
    world.hub.service.set_policy(PoolPolicy(pin_after_s=PIN_S, end_overdue=True), 1e6)
    outlast_term(world)
    passes(world, 600)
    assert lease(world).preempted
    world.nodes["n0"].service.leases.extend(lease(world), world.machine.now + 1_800)
    passes(world, 60)
    assert not lease(world).preempted
    assert not world.hub.service.preemptions.all
