"""Hubs, one or two, and two nodes in every order: claims, messages late and lost, kills of `run`,
its command, agents and hubs, work that is suspended and restored. No GPU is leased twice, no lease
that is used is lost, none is kept that is not, and no suspended work is forgotten. Each of two hubs
may assume that it decides, as in a changeover, or beside a restored backup: nodes go from one to
the other, and hear late what the first one said."""

import getpass
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from agent.pool.gpus import PoolSnapshot
from agent.pool.mps_look import MpsProbe
from agent.pool.shares import NO_DAEMON, UNKNOWN, MpsFacts
from gpudeck.contract.pool_link import LeaseOffer, PoolPlan
from gpudeck.contract.pool_messages import AskClaim, ClaimRefused, LeaseEnded
from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.pool.interleavings import GPUS_EACH, MPS, Run, World

STEPS = 2_500


@pytest.mark.parametrize("turn", range(20))
def test_in_whatever_order(turn: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), random.Random(random.randrange(2**32)), 1 + turn % 2)
        for node in world.nodes.values():
            world.link(node)
        for _ in range(STEPS):
            world.step()
            world.check()
        for hub in world.hubs:
            world.settle(hub)
            assert hub.service.nodes
            assert all(not node.report.leases for node in hub.service.nodes)
            assert not hub.service.pending
            assert not hub.service.claims
            assert not hub.service.bookings.all
            assert not hub.service.preemptions.all
        for node in world.nodes.values():
            assert not node.service.leases.all, "a lease that nobody uses is kept"
            assert not node.service.waiting.all
        bound = [run for node in world.nodes.values() for run in node.runs if run.is_bound]
        assert bound, "nobody got anything: the test tried nothing"
        assert world.most_held > 0
        for node in world.nodes.values():
            node.journal.close()
        for hub in world.hubs:
            hub.store.close()


def test_a_node_that_a_scheduler_manages_leases_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    node = world.nodes["n0"]
    snapshot = node.service.snapshot
    assert snapshot is not None
    node.service.snapshot = PoolSnapshot(snapshot.gpus, (), "Slurm")
    run = Run(node, AskClaim(request_id="a", is_run=True, gpus=1))
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    assert run.replies == [ClaimRefused("Slurm assigns the GPUs of this node; ask it for them")]
    claim = Claim(id="b", owner=getpass.getuser(), gpus=1, submitted_at=0.0)
    node.service.receive(PoolPlan((LeaseOffer("b", ("n0-0",), claim),)))
    assert node.service.waiting.refusals == {"b": "GPU 0: managed by Slurm"}
    [report] = node.service.poll()
    assert [gpu.trouble for gpu in report.gpus] == ["managed by Slurm"] * GPUS_EACH
    assert report.managed_by == "Slurm"
    node.journal.close()
    world.hub.store.close()


def test_two_that_want_the_last_gpu_get_one(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    [node, _] = world.nodes.values()
    world.link(node)
    for _ in range(2):
        claim = AskClaim(request_id=f"c{next(world.numbers)}", is_run=True, gpus=GPUS_EACH)
        run = Run(node, claim)
        node.runs.append(run)
        node.requests.handle(run, claim, None)  # type: ignore[arg-type]
    for _ in range(6):
        world.report(node)
        world.machine.now += 1
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())
    assert sum(run.lease is not None for run in node.runs) == 1
    assert not any(isinstance(reply, LeaseEnded) for run in node.runs for reply in run.replies)
    node.journal.close()
    world.hub.store.close()


def test_a_hub_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """A second hub, or a hub that forgot, offers a GPU to two claims, and one that is not there."""
    world = World(tmp_path, random.Random(1))
    node = world.nodes["n0"]
    for name in ("a", "b", "c"):
        run = Run(node, AskClaim(request_id=name, is_run=True, gpus=1))
        node.runs.append(run)
        node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    node.service.receive(PoolPlan((LeaseOffer("a", ("n0-0",)), LeaseOffer("b", ("n0-0",)),
                                LeaseOffer("c", ("n1-0",)), LeaseOffer("a", ("n0-1",)))))
    assert {lease.id: lease.uuids for lease in node.service.leases.all.values()} == {"a": ("n0-0",)}
    assert node.service.waiting.refusals == {
        "b": "GPU 0 is leased", "c": "there is no GPU n1-0 on this node"}
    node.journal.close()
    world.hub.store.close()


def test_a_share_that_nothing_holds_is_not_given_to_a_hubs_claim(tmp_path: Path) -> None:
    """A claim that was made at the hub was not asked of this node's MPS before."""
    world = World(tmp_path, random.Random(1))
    node = world.nodes["n0"]
    claim = Claim(id="a", owner="root", gpus=1, submitted_at=0.0, share_milli=300)
    offer = PoolPlan((LeaseOffer("a", ("n0-0",), claim),))
    for facts, why in ((MpsFacts(()), NO_DAEMON), (MPS, "")):
        node.service.mps = MpsProbe(lambda facts=facts: facts, lambda: 0.0)  # type: ignore[misc]
        node.service.receive(offer)
        assert node.service.waiting.refusals["a"] == UNKNOWN, "it is asked before it is answered"
        node.service.mps.probe_if_requested()
        node.service.receive(offer)
        assert node.service.waiting.refusals.get("a", "") == why
        assert bool(node.service.leases.all) != bool(why)
    node.journal.close()
    world.hub.store.close()


def test_a_lease_is_extended_once_however_often_the_plan_comes(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    [node, _] = world.nodes.values()
    world.link(node)
    run = Run(node, AskClaim(request_id="a", is_run=True, gpus=1, term_s=3_600.0))
    node.runs.append(run)
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    node.service.receive(PoolPlan((LeaseOffer("a", ("n0-0",)),)))
    world.report(node)
    [old_lease] = world.hub.service.nodes[0].report.leases
    for _ in range(2):  # asked for twice before the node has said anything
        world.hub.service.extend("n0", old_lease, 1_800.0)
    for _ in range(3):
        world.machine.now += 1
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        for plan in [*node.from_hub] * 2:
            node.service.receive(plan)
    [lease] = node.service.leases.all.values()
    assert node.service.clock.utc(lease.until) == old_lease.until + 3_600.0
    world.report(node)
    world.machine.now += 1
    world.hub.service.step(world.machine.now + 1e6, world.machine.now)
    last: Any = node.from_hub[-1]
    assert last.extend == {}, "what has been done is not asked for again"
    node.service.receive(PoolPlan(extend={"a": old_lease.until + 1e9, "b": old_lease.until}))
    assert node.service.leases.all == {"a": lease}, "no lease lasts for decades"
    node.journal.close()
    world.hub.store.close()
