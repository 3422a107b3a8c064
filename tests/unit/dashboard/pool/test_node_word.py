"""A node speaks for itself: whatever one of them reports, nobody else's claims, leases,
reservations, groups or fair share change by it. The messages are those of the wire."""

import getpass
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboard.pool.node_words import groups_of
from dashboard.pool.plan import leases_called
from dashboard.pool.service import PoolService
from gpudeck.contract.pool_link import (
    NodeClaim,
    OfferedGpu,
    PoolReport,
    ReportedEnd,
    ReportedLease,
    Withdrawal,
)
from gpudeck.contract.pool_messages import AskClaim
from gpudeck.contract.wire import decode_from_agent, encode
from gpudeck.pool.core.claims import Claim
from tests.unit.dashboard.pool.interleavings import GPUS_EACH, Hub, Run, World

YEAR_S = 365 * 86_400.0
OWNER = getpass.getuser()


class Thief:
    """Has the key of `n1`, and of that node alone."""

    id = "n1"

    def __init__(self, world: World) -> None:
        self.world = world
        self.node = world.nodes[self.id]
        world.link(self.node)
        self.gpus = tuple(OfferedGpu(f"{self.id}-{at}", "H100", at) for at in range(GPUS_EACH))

    def says(self, *claims: Claim, leases: tuple[ReportedLease, ...] = (),
             ended: tuple[ReportedEnd, ...] = (), **more: Any) -> None:
        report = PoolReport(self.gpus, tuple(NodeClaim(claim, True) for claim in claims), leases,
                            ended, **more)
        message = decode_from_agent(encode(report))
        assert isinstance(message, PoolReport)
        self.service.reported(self.id, message)

    @property
    def service(self) -> PoolService:
        return self.world.hub.service

    def holds(self, lease_id: str, owner: str = OWNER, uuids: tuple[str, ...] = ("n1-0",),
              **more: Any) -> ReportedLease:
        claim = a_claim(lease_id, owner=owner, **{"gpus": len(uuids)} | more)
        return ReportedLease(claim, uuids, "active", 0.0, 9e9, 0.0)


def a_claim(name: str, **more: Any) -> Claim:
    fields: dict[str, Any] = {"owner": OWNER, "gpus": 1, "submitted_at": 0.0}
    return Claim(id=name, **fields | more)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, random.Random(1))
    world.link(world.nodes["n0"])
    _believes_no_node(world)
    yield world
    for node in world.nodes.values():
        node.journal.close()
    world.hub.store.close()


def _believes_no_node(world: World) -> None:
    service = world.hub.service
    service.set_policy(replace(service.policy, several_nodes=False, least_run_s=5.0, grace_s=5.0),
                       world.machine.now)


@pytest.fixture
def thief(world: World) -> Thief:
    return Thief(world)


def turn(world: World, seconds: int = 1) -> None:
    """The honest node and the hub go on; the thief says what it likes."""
    node = world.nodes["n0"]
    for _ in range(seconds):
        world.machine.now += 1
        node.service.step()
        world.report(node)
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        while node.from_hub:
            node.service.receive(node.from_hub.popleft())


def asks(world: World, **more: Any) -> Run:
    node = world.nodes["n0"]
    fields: dict[str, Any] = {"request_id": "r", "is_run": True, "gpus": 1}
    run = Run(node, AskClaim(**fields | more), os.getuid(), OWNER)
    node.runs.append(run)
    node.requests.handle(run, run.claim, None)  # type: ignore[arg-type]
    return run


def waiting(hub: Hub) -> dict[str, Claim]:
    return {claim.id: claim for claim in hub.service.waiting(hub.service.nodes)}


@pytest.mark.parametrize("hosts", [("n0",), ("n0", "n1"), ()])
def test_it_leases_nothing_elsewhere(world: World, thief: Thief, hosts: tuple[str, ...]) -> None:
    turn(world)
    for nodes in (1, 2):
        thief.says(a_claim("a", gpus=3, hosts=hosts, term_s=YEAR_S, priority=4, nodes=nodes),
                   a_claim("b", gpus=3, hosts=hosts, owner="nobody", nodes=nodes))
        for _ in range(5):
            turn(world)
            assert not world.nodes["n0"].service.leases.all
    assert thief.service.intake.foreign["n1"] == (4 if "n0" in hosts else 0)


def test_nor_when_it_goes_and_comes_back_and_has_not_said_anything_yet(world: World, thief: Thief
                                                                        ) -> None:
    """A claim that was refused in its last report stays refused."""
    run = asks(world, gpus=2, is_preemptible=True)
    turn(world, 3)
    run.bind()
    thief.says(a_claim("a", gpus=1, term_s=YEAR_S, priority=4, nodes=2),
               a_claim("b", gpus=1, term_s=YEAR_S, priority=4, nodes=2, owner="root"))
    turn(world, 2)
    thief.node.cut()
    turn(world, 2)
    world.link(thief.node)
    turn(world, 3)
    assert not thief.service.pending
    assert world.nodes["n0"].service.leases.all.keys() == {"r"}


def test_it_ends_nothing_elsewhere(world: World, thief: Thief) -> None:
    run = asks(world, gpus=3, is_preemptible=True)
    turn(world, 3)
    run.bind()
    thief.says(a_claim("a", gpus=3, hosts=("n0",), priority=4),
               a_claim("b", gpus=3, nodes=2, priority=4))
    turn(world, 40)
    assert not thief.service.preemptions.all
    [lease] = world.nodes["n0"].service.leases.all.values()
    assert not lease.preempted


def test_gpus_that_it_calls_by_the_names_of_anothers_are_other_gpus(world: World, thief: Thief
                                                                    ) -> None:
    """Let it wait for them until it is pinned, where a site ends overdue leases, and lease them for
    ever, so that nobody else could reserve them."""
    service, node = thief.service, world.nodes["n0"]
    service.set_policy(replace(service.policy, pin_after_s=60.0, end_overdue=True),
                       world.machine.now)
    run = asks(world, gpus=GPUS_EACH, term_s=600.0)
    turn(world, 3)
    run.bind()
    until = node.service.leases.all["r"].until
    uuids = tuple(f"n0-{at}" for at in range(GPUS_EACH))
    thief.gpus = tuple(OfferedGpu(uuid, "H100", at) for at, uuid in enumerate(uuids))
    for _ in range(60):
        world.machine.now += 29
        thief.says(a_claim("waits", gpus=GPUS_EACH), leases=(thief.holds("mine", uuids=uuids),))
        turn(world)
        assert not node.service.leases.all["r"].preempted
        assert not service.preemptions.all
    assert node.service.leases.all["r"].until > until, "it is renewed"
    utc = world.machine.now + 1e6
    service.claim(a_claim("res", gpus=GPUS_EACH, hosts=("n0",), submitted_at=utc,
                          starts_at=utc + 86_400, term_s=3_600.0))
    assert service.bookings.kept_gpus("res") == set(uuids)


def test_time_is_the_hubs(world: World, thief: Thief) -> None:
    """Otherwise 1970 would be pinned for ever, and an owner would have had GPUs since then."""
    turn(world)
    world.machine.now += 100
    utc = world.machine.now + 1e6
    thief.says(a_claim("a", gpus=3), leases=(thief.holds("l"),))
    assert waiting(world.hub)["a"].submitted_at == utc
    [node] = [node for node in thief.service.nodes if node.id == "n1"]
    assert node.leases[0].since == utc
    assert node.report.leases[0].used_at == utc, "its use is told by the minute, and began with it"
    turn(world, 3)
    thief.says(a_claim("a", gpus=3, submitted_at=5e9), leases=(thief.holds("l"),))
    assert waiting(world.hub)["a"].submitted_at == utc, "since it was heard of first"
    world.hub.start()  # also by a hub that starts anew
    turn(world, 3)
    thief.says(a_claim("a", gpus=3), a_claim("b"), leases=(thief.holds("l"),))
    assert waiting(world.hub)["a"].submitted_at == utc
    assert waiting(world.hub)["b"].submitted_at > utc


def test_what_a_claim_says_besides_comes_through(world: World, thief: Thief) -> None:
    """A run that was stopped is offered nothing, and keeps its place."""
    claim = a_claim("a", hosts=())
    thief.service.reported(thief.id, PoolReport(
        thief.gpus, (NodeClaim(claim, True, "it is stopped"),), ()))
    [node] = [node for node in thief.service.nodes if node.id == thief.id]
    [node_claim] = node.report.claims
    assert (node_claim.is_run, node_claim.paused) == (True, "it is stopped")
    assert node.paused == {node_claim.claim.id: "it is stopped"}


def test_an_honest_claim_keeps_the_time_since_it_waits(world: World, thief: Thief) -> None:
    for gpus in (3, 1):
        asks(world, request_id=f"r{gpus}", gpus=gpus)
        turn(world)
    node = world.nodes["n0"]
    [waits] = node.service.waiting
    assert abs(waiting(world.hub)["r1"].submitted_at - 1e6 - waits.claim.submitted_at) <= 1.0


def test_another_lease_of_its_id_leaves_a_reservation_alone(world: World, thief: Thief) -> None:
    """Viewers can read that id."""
    turn(world)
    service = thief.service
    service.claim(a_claim("res", gpus=2, starts_at=world.machine.now + 1e6 + 600,
                          hosts=("n0",), submitted_at=world.machine.now + 1e6))
    booked = service.bookings.kept_gpus("res")
    assert len(booked) == 2
    end = ReportedEnd(a_claim("res"), ("n1-0",), 0.0, 1.0, "released")
    lies: tuple[dict[str, Any], ...] = (
        {"leases": (thief.holds("res"),)}, {}, {"ended": (end,)}, {"refused": {"res": "no"}},
        {"withdrawals": (Withdrawal("res", OWNER), Withdrawal("res", None))})
    for lie in lies:
        thief.says(**lie)
        turn(world, 2)
        assert service.bookings.kept_gpus("res") == booked
        assert "res" in waiting(world.hub)


def test_another_claim_or_lease_of_its_id_leaves_a_claim_alone(world: World, thief: Thief) -> None:
    busy = asks(world, gpus=3)
    turn(world, 3)
    busy.bind()
    asks(world, request_id="waits", gpus=2)
    turn(world, 2)
    own = waiting(world.hub)["waits"]
    lies: tuple[dict[str, Any], ...] = ({"leases": (thief.holds("waits"),)}, {})
    for lie in lies:
        thief.says(a_claim("waits", gpus=1, owner="nobody"), **lie)
        turn(world, 2)
        assert waiting(world.hub)["waits"] == own
    thief.says(a_claim("waits", gpus=1, owner="nobody", hosts=("n1",)))
    turn(world, 2)
    busy.command_ends()
    busy.gives_back()
    turn(world, 3)
    assert "waits" in world.nodes["n0"].service.leases.all


def test_another_lease_of_its_id_does_not_stand_before_one(world: World, thief: Thief) -> None:
    run = asks(world, gpus=2)
    thief.says(leases=(thief.holds("r", "nobody"),))
    turn(world, 3)
    run.bind()
    service = thief.service
    thief.says(leases=(thief.holds("r", "nobody"),))
    turn(world, 2)
    leases = leases_called(service.nodes, "r")
    assert {node.id for node, _ in leases} >= {"n0"}
    for node, lease in leases:
        service.extend(node.id, lease, 3_600.0)
    before = world.nodes["n0"].service.leases.all["r"].until
    turn(world, 3)
    assert world.nodes["n0"].service.leases.all["r"].until == before + 3_600.0


def test_the_end_of_a_run_it_invented_gives_nothing_back_elsewhere(world: World, thief: Thief
                                                                   ) -> None:
    turn(world)
    thief.service.claim(a_claim("h", gpus=2, hosts=("n0",)))
    turn(world, 4)
    assert "h" in world.nodes["n0"].service.leases.all
    thief.says(ended=(ReportedEnd(a_claim("h", nodes=2, home="n1"), ("n1-0",), 0.0, 1.0,
                                  "released"),))
    turn(world, 4)
    assert "h" in world.nodes["n0"].service.leases.all


def test_what_the_hub_gave_it_goes_by_the_hubs_id(world: World, thief: Thief) -> None:
    """A hub that is killed between the lease and hearing of it meets it once, too."""
    turn(world)
    thief.says()
    service = thief.service
    service.claim(a_claim("h", gpus=1, hosts=("n1",)))
    turn(world)
    assert service.pending["h"].lacks == {"n1"}
    for restarts in (False, True):
        if restarts:
            world.hub.start()
            turn(world)
        thief.says(leases=(thief.holds("h"),))
        turn(world)
        assert "h" not in waiting(world.hub)
        assert [lease.claim.id for node in world.hub.service.nodes if node.id == "n1"
                for lease in node.report.leases] == ["h"]


def test_what_it_says_of_a_users_groups_does_not_rule_others() -> None:
    groups_by_node = [("n0", ("lab",)), ("n1", ("lab",)), ("thief", ("mallory",))]
    for order in (groups_by_node, groups_by_node[::-1]):
        assert groups_of((("ann", groups) for _, groups in order))["ann"] == ("lab",)
    assert groups_of([("ann", ("lab",)), ("ann", ("mallory",))])["ann"] == ("lab",), "the first"


def test_a_run_over_several_nodes_needs_an_admin_to_believe_nodes(world: World, thief: Thief
                                                                  ) -> None:
    thief.says()
    turn(world)
    run = asks(world, nodes=2)
    turn(world, 3)
    assert "several_nodes" in run.replies[-1].why  # type: ignore[union-attr]


def test_what_it_holds_are_its_own_gpus(world: World, thief: Thief) -> None:
    turn(world)
    thief.says(leases=(thief.holds("l", uuids=("n0-0", "n1-1", "GPU-made-up"), gpus=1_024),))
    [node] = [node for node in thief.service.nodes if node.id == "n1"]
    [lease] = node.leases
    assert (lease.grants[0].uuids, lease.claim.gpus) == (("n1-1",), 1)


def test_what_it_said_is_forgotten_with_it(world: World, thief: Thief) -> None:
    turn(world)
    end = ReportedEnd(a_claim("e", owner="ann", gpus=3), ("n1-0",), 0.0, world.machine.now + 1e6,
                      "released")
    thief.says(a_claim("a"), leases=(thief.holds("l"),), ended=(end,))
    service = thief.service
    assert service.ended.usage is not None
    assert "ann" in service.ended.usage.owners
    thief.service.forget("n1")
    thief.node.hub = None
    assert "ann" not in service.ended.usage.owners
    assert not service.ended.recent
    assert not waiting(world.hub)
    world.hub.start()
    assert world.hub.service.ended.usage is not None
    assert not [*world.hub.service.ended.usage.owners]


def test_its_own_claims_are_met_there_and_there_alone(world: World, thief: Thief) -> None:
    """The control: an id that is another's is told to it as its own."""
    asks(world, gpus=3, request_id="same")
    turn(world, 2)
    thief.says(a_claim("same", gpus=2))
    turn(world)
    assert thief.node.from_hub
    [offer] = thief.node.from_hub[-1].offers
    assert (offer.claim_id, offer.claim) == ("same", None)
    thief.says(leases=(thief.holds("same", uuids=offer.uuids),))
    assert not thief.service.pending
