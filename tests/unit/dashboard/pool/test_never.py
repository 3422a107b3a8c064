"""A run over several nodes that nothing here could meet is refused at once."""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.contract.pool_messages import AskClaim, ClaimRefused, ClaimWaits
from tests.unit.dashboard.pool.interleavings import Run, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    for node in world.nodes.values():
        world.link(node)
        world.report(node)
    turn(world)
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def turn(world: World) -> None:
    world.machine.now += 1
    world.hub.service.step(world.machine.now + 1e6, world.machine.now)
    for node in world.nodes.values():
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())


def asks(world: World, nodes: int) -> Run:
    node = next(iter(world.nodes.values()))
    run = Run(node, AskClaim(f"r{next(world.numbers)}", is_run=True, gpus=1, nodes=nodes))
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    world.report(node)
    turn(world)
    return run


def manage(world: World) -> str:
    """Put all nodes but the first under Slurm; return the id of one of them."""
    _, *rest = world.nodes.values()
    for node in rest:
        report = next(entry for entry in world.hub.service.nodes if entry.id == node.id).report
        gpus = tuple(msgspec.structs.replace(gpu, trouble="managed") for gpu in report.gpus)
        world.hub.service.reported(node.id, msgspec.structs.replace(
            report, gpus=gpus, managed_by="Slurm"))
    return rest[0].id


def test_it_says_which_scheduler_to_ask_or_what_there_is(world: World) -> None:
    count = len(world.nodes)
    world.machine.now += 120
    assert not any(isinstance(reply, ClaimRefused) for reply in asks(world, count).replies)
    [refusal] = asks(world, count + 1).replies
    assert isinstance(refusal, ClaimRefused)
    assert refusal.why == f"{count} nodes here could take a part of it; it asks for {count + 1}"
    managed = manage(world)
    [refusal] = asks(world, count).replies
    assert isinstance(refusal, ClaimRefused)
    assert refusal.why.endswith("and Slurm assigns those: ask it for them")
    assert managed in refusal.why


def test_it_waits_where_nodes_may_still_come_back(world: World) -> None:
    manage(world)
    for later, kind in ((0, ClaimWaits), (120, ClaimRefused)):
        world.machine.now += later
        run = asks(world, len(world.nodes))
        assert [type(reply) for reply in run.replies] == [kind]
        run.leaves()
        world.report(run.node)
        turn(world)


def test_what_waited_before_a_node_was_managed_goes_on_waiting(world: World) -> None:
    world.machine.now += 120
    first = asks(world, 1)
    assert first.lease is not None
    for _ in range(3):
        asks(world, 1)
    run = asks(world, len(world.nodes))
    assert isinstance(run.replies[-1], ClaimWaits)
    manage(world)
    world.report(run.node)
    turn(world)
    assert isinstance(run.replies[-1], ClaimWaits)
    assert "Slurm" in run.replies[-1].why
