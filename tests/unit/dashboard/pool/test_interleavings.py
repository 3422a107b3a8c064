"""One hub and two nodes, in every order: claims, messages late and lost, kills of `run`, its
command, agents and the hub. No GPU is leased twice, no lease that is used is lost, and none is
kept that is not."""

import contextlib
import getpass
import itertools
import os
import random
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.journal.store import ActionJournal, ActionStore
from agent.pool.clock import PoolClock
from agent.pool.gpus import PoolSnapshot
from agent.pool.leases import NodeLeases
from agent.pool.lock import LeasedProcess, Marks, PoolGpu
from agent.pool.mps_look import MpsLook
from agent.pool.requests import PoolRequests
from agent.pool.service import PoolService as NodePoolService
from agent.pool.shares import NO_DAEMON, UNKNOWN, MpsFacts
from agent.pool.store import LeaseStore
from dashboard.errors import InvalidChangeError
from dashboard.pool.service import PoolService
from dashboard.pool.store import SCHEMA, PoolStore
from dashboard.pool.watch import PoolWatch
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.limits import MpsDaemon
from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.schedule import NoOwnerLimits, PoolPolicy
from gpudeck.pool.link import LeaseOffer, PoolPlan, PoolReport
from gpudeck.pool.messages import (
    AskClaim,
    Bind,
    Bound,
    CancelClaim,
    FromPool,
    GiveBack,
    Leased,
    LeaseEnded,
    UseLease,
)

STEPS = 2_500
NODES = ("n0", "n1")
GPUS_EACH = 3
UID = 1_000
GIB = 2**30
MPS = MpsFacts((MpsDaemon("/tmp/mps", 0, "root", True),))


class Machine:
    """What is true of processes, whoever was killed."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pids = itertools.count(100)
        self.alive: set[int] = set()
        self.leases: dict[int, str] = {}  # living command to its lease

    def process_of(self, pidfd: int, uid: int) -> LeasedProcess | None:
        return LeasedProcess(pidfd, pidfd, None) if pidfd in self.alive else None

    def is_alive(self, process: LeasedProcess) -> bool:
        return process.pid in self.alive

    def marked(self, uids: Mapping[str, int]) -> Marks:
        return {lease_id: {(pid, pid) for pid in self.alive if self.leases.get(pid) == lease_id}
                for lease_id in uids}


@dataclass(eq=False)
class Run:
    """A `gpudeck run`: asks, starts its command when it has a lease, gives it back."""

    node: "Node"
    claim: AskClaim | None
    uid: int = UID
    owner: str = "ann"
    peer_pid: int = 0
    is_open: bool = True
    lease: Leased | None = None
    pid: int | None = None
    is_bound: bool = False
    said: list[FromPool] = field(default_factory=list)

    def send(self, message: FromPool) -> None:
        self.said.append(message)
        if isinstance(message, Leased):
            self.lease = message
        if isinstance(message, Bound):
            self.is_bound = True

    def bind(self) -> None:
        assert self.lease is not None
        machine = self.node.machine
        self.pid = next(machine.pids)
        machine.alive.add(self.pid)
        before = len(self.said)
        self.node.requests.asked(self, Bind(self.lease.lease_id), self.pid)  # type: ignore[arg-type]
        if isinstance(self.said[before], Bound):
            machine.leases[self.pid] = self.lease.lease_id
        else:
            machine.alive.discard(self.pid)  # it waits on its pipe, and never runs
            self.pid = None

    def command_ends(self) -> None:
        if self.pid is not None:
            self.node.machine.alive.discard(self.pid)
            self.node.machine.leases.pop(self.pid, None)

    def gives_back(self) -> None:
        if self.lease is not None and self.is_open and self.node.is_up:
            self.node.requests.asked(self, GiveBack(self.lease.lease_id, 0), None)  # type: ignore[arg-type]
            self.leaves()

    def leaves(self) -> None:
        """Killed, or done: either way its connection ends."""
        if self.is_open and self.node.is_up:
            self.is_open = False
            self.node.requests.left(self)  # type: ignore[arg-type]


class Node:
    def __init__(self, name: str, folder: Path, machine: Machine) -> None:
        self.id = name
        self.machine = machine
        self.folder = folder
        self.to_hub: deque[PoolReport] = deque()
        self.from_hub: deque[PoolPlan] = deque()
        self.is_linked = False
        self.is_up = False
        self.runs: list[Run] = []
        self.start()

    def start(self) -> None:
        self.journal = ActionStore(self.folder / f"{self.id}.db", durable=False)
        clock = PoolClock(lambda: self.machine.now, lambda: self.machine.now + 1e6)
        leases = NodeLeases(LeaseStore(ActionJournal(self.journal), "boot"), clock,
                            self.machine)  # type: ignore[arg-type]
        self.service = NodePoolService(self.id, self.id, leases, PoolPolicy(), clock,
                                       MpsLook(lambda: MPS, clock.now), False, lambda: None,
                                       lambda uid, texts: 0, lambda: "")
        self.service.snapshot = PoolSnapshot({
            uuid: PoolGpu(uuid, "H100", index, False, 0, None, 80 * GIB, "")
            for index in range(GPUS_EACH) for uuid in [f"{self.id}-{index}"]}, ())
        self.requests = PoolRequests(self.service)
        self.is_up = True

    def kill(self) -> None:
        self.journal.close()
        self.is_up = False
        self.cut()
        for run in self.runs:
            run.is_open = False

    def cut(self) -> None:
        self.is_linked = False
        self.to_hub.clear()
        self.from_hub.clear()

    def host(self) -> str:
        return self.id


class Hub:
    def __init__(self, folder: Path, nodes: dict[str, Node], machine: Machine) -> None:
        self.folder, self.nodes, self.machine = folder, nodes, machine
        self.store = SqliteStateStore(folder / "state.db")
        self.store.migrate((SCHEMA,))
        self.start()

    def start(self) -> None:
        self.service = PoolService(
            PoolStore(self.store.connection), HostsById(), self,  # type: ignore[arg-type]
            self.send, lambda nodes, leases: NoOwnerLimits(), Willing, True,
            lambda: self.machine.now, PoolWatch(Dispatcher()))
        self.service.open(self.machine.now)
        self.service.set_policy(PoolPolicy(is_preemptive=True), self.machine.now)
        self.service.preemptions.spawn = lambda check, found: check(found)

    def __contains__(self, node_id: object) -> bool:
        return self.nodes[str(node_id)].is_linked

    def send(self, node_id: str, message: Any) -> bool:
        if node_id in self:
            self.nodes[node_id].from_hub.append(message)
        return node_id in self


class Willing:
    def why_not(self, found: object) -> str:
        return ""

    def stopped(self) -> dict[str, str]:
        return {}


class HostsById:
    def host_of(self, node_id: str) -> str:
        return node_id


class World:
    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.draw = draw
        self.machine = Machine()
        self.nodes = {name: Node(name, folder, self.machine) for name in NODES}
        self.hub = Hub(folder, self.nodes, self.machine)
        self.asked = itertools.count()
        self.most_held = 0

    def link(self, node: Node) -> None:
        if node.is_up and not node.is_linked:
            node.is_linked = True
            node.service.connected()
            self.hub.service.joined(node.id)

    def step(self) -> None:
        node = self.draw.choice(list(self.nodes.values()))
        runs = [each for each in node.runs if each.is_open or each.pid in self.machine.alive]
        run = self.draw.choice(runs) if runs else None
        [act] = self.draw.choices(
            ("ask", "report", "hub", "plan", "bind", "end", "kill run", "look", "late", "cut",
             "link", "agent", "hub dies", "ask hub", "withdraw",
             "give back", "take over", "cancel"),
            (14, 20, 20, 20, 14, 8, 4, 12, 6, 1, 12, 1, 1, 3, 1, 4, 12, 2))
        match act:
            case "ask" if node.is_up:
                self.ask(node)
            case "report" if node.is_up:
                self.report(node)
            case "hub":
                self.machine.now += 0.3
                self.hub.service.step(self.machine.now + 1e6, self.machine.now)
            case "plan" if node.from_hub and node.is_up:
                node.service.hear(node.from_hub.popleft())
            case "bind" if run is not None and run.is_open and run.lease and run.pid is None:
                run.bind()
            case "end" if run is not None and run.pid is not None:
                run.command_ends()
                run.gives_back()
            case "kill run" if run is not None:
                run.leaves()
            case "look" if node.is_up:
                node.service.mps.look_if_asked()
                node.service.step()
            case "late":
                self.machine.now += self.draw.uniform(0, 1_000 if self.draw.random() < 0.1 else 40)
            case "cut":
                node.cut()
            case "link":
                self.link(node)
            case "agent":
                if node.is_up:
                    node.kill()
                else:
                    node.start()
            case "ask hub":
                self.ask_hub()
            case "withdraw":
                for claim_id in list(self.hub.service.claims)[:1]:
                    self.hub.service.withdraw(claim_id)
            case "give back":
                for lease in node.service.leases.all.values():
                    if not lease.is_run:
                        self.hub.service.give_back(node.id, lease.id, "not needed any more")
            case "take over" if node.is_up:
                self.take_over(node)
            case "cancel" if node.is_up:
                for claim_id in [*node.service.waiting.all, *self.hub.service.claims][:1]:
                    node.requests.asked(Run(node, None, os.getuid()), CancelClaim(claim_id), None)  # type: ignore[arg-type]
            case "hub dies":
                for each in self.nodes.values():
                    each.cut()
                self.hub.start()

    def ask(self, node: Node) -> None:
        share = self.draw.choice((WHOLE_MILLI, WHOLE_MILLI, 300))
        claim = AskClaim(
            request_id=f"c{next(self.asked)}", is_run=True,
            gpus=1 if share < WHOLE_MILLI else self.draw.randint(1, GPUS_EACH), share_milli=share,
            priority=self.draw.randrange(5), is_preemptible=self.draw.random() < 0.5)
        run = Run(node, claim)
        node.runs.append(run)
        node.requests.asked(run, claim, None)  # type: ignore[arg-type]

    def take_over(self, node: Node) -> None:
        """Two runs each bare lease: both may be told that they can."""
        bare = [each.id for each in node.service.leases.all.values() if not each.is_run]
        for lease_id in [*bare, *bare]:
            run = Run(node, None, os.getuid(), getpass.getuser())
            node.runs.append(run)
            node.requests.asked(run, UseLease(lease_id, is_run=True), None)  # type: ignore[arg-type]

    def ask_hub(self) -> None:
        """For nobody's process: on one node or two, now or later."""
        now, later = self.machine.now + 1e6, self.draw.choice((None, 30.0, 300.0))
        with contextlib.suppress(InvalidChangeError):
            self.hub.service.claim(Claim(
                id=f"h{next(self.asked)}", owner=getpass.getuser(), gpus=self.draw.randint(1, 2),
                nodes=self.draw.choice((1, 1, 2)), submitted_at=now, term_s=60.0,
                starts_at=None if later is None else now + later))

    def report(self, node: Node) -> None:
        if node.is_linked:
            node.to_hub.extend(node.service.say())
            while node.to_hub:
                self.hub.service.reported(node.id, node.to_hub.popleft())

    def check(self) -> None:
        for node in self.nodes.values():
            held: dict[str, int] = {}
            for lease in node.service.leases.all.values():
                for uuid in lease.uuids:
                    held[uuid] = held.get(uuid, 0) + lease.claim.share_milli
            assert all(milli <= WHOLE_MILLI for milli in held.values()), held
            self.most_held = max(self.most_held, len(held))
            commands = [run.lease.lease_id for run in node.runs
                        if run.lease is not None and run.pid in self.machine.alive]
            assert len(commands) == len(set(commands)), "two commands on one lease"
            for run in node.runs:
                if run.pid in self.machine.alive:
                    assert run.lease is not None
                    assert run.lease.lease_id in node.service.leases.all, "a used lease is lost"

    def settle(self) -> None:
        """Everything ends, everybody is there, and time passes."""
        for node in self.nodes.values():
            for run in node.runs:
                run.command_ends()
                run.leaves()
            if not node.is_up:
                node.start()
            self.link(node)
        for claim_id in list(self.hub.service.claims):
            self.hub.service.withdraw(claim_id)
        for _ in range(120):  # what was asked for at the hub goes back since nobody uses it
            self.machine.now += 30
            for node in self.nodes.values():
                node.service.step()
                self.report(node)
            self.hub.service.step(self.machine.now + 1e6, self.machine.now)
            for node in self.nodes.values():
                while node.from_hub:
                    node.service.hear(node.from_hub.popleft())


@pytest.mark.parametrize("turn", range(20))
def test_in_whatever_order(turn: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), random.Random(random.randrange(2**32)))
        for node in world.nodes.values():
            world.link(node)
        for _ in range(STEPS):
            world.step()
            world.check()
        world.settle()
        for node in world.nodes.values():
            assert not node.service.leases.all, "a lease that nobody uses is kept"
            assert not node.service.waiting.all
        assert world.hub.service.nodes
        assert all(not each.report.leases for each in world.hub.service.nodes)
        assert not world.hub.service.pending
        assert not world.hub.service.claims
        assert not world.hub.service.bookings.all
        assert not world.hub.service.preemptions.all
        bound = [run for node in world.nodes.values() for run in node.runs if run.is_bound]
        assert bound, "nobody got anything: the test tried nothing"
        assert world.most_held > 0
        for node in world.nodes.values():
            node.journal.close()
        world.hub.store.close()


def test_two_that_want_the_last_gpu_get_one(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    [node, _] = world.nodes.values()
    world.link(node)
    for _ in range(2):
        claim = AskClaim(request_id=f"c{next(world.asked)}", is_run=True, gpus=GPUS_EACH)
        run = Run(node, claim)
        node.runs.append(run)
        node.requests.asked(run, claim, None)  # type: ignore[arg-type]
    for _ in range(6):
        world.report(node)
        world.machine.now += 1
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        while node.from_hub:
            node.service.hear(node.from_hub.popleft())
    assert sum(run.lease is not None for run in node.runs) == 1
    assert not any(isinstance(each, LeaseEnded) for run in node.runs for each in run.said)
    node.journal.close()
    world.hub.store.close()


def test_a_hub_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """Of two hubs, or one that forgot: the same GPU for two claims, and one that is not there."""
    world = World(tmp_path, random.Random(1))
    node = world.nodes["n0"]
    for name in ("a", "b", "c"):
        run = Run(node, AskClaim(request_id=name, is_run=True, gpus=1))
        node.runs.append(run)
        node.requests.asked(run, run.claim, None)  # type: ignore[arg-type]
    node.service.hear(PoolPlan((LeaseOffer("a", ("n0-0",)), LeaseOffer("b", ("n0-0",)),
                                LeaseOffer("c", ("n1-0",)), LeaseOffer("a", ("n0-1",)))))
    assert {each.id: each.uuids for each in node.service.leases.all.values()} == {"a": ("n0-0",)}
    assert node.service.waiting.refused == {
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
        node.service.mps = MpsLook(lambda facts=facts: facts, lambda: 0.0)  # type: ignore[misc]
        node.service.hear(offer)
        assert node.service.waiting.refused["a"] == UNKNOWN, "it is asked before it is answered"
        node.service.mps.look_if_asked()
        node.service.hear(offer)
        assert node.service.waiting.refused.get("a", "") == why
        assert bool(node.service.leases.all) != bool(why)
    node.journal.close()
    world.hub.store.close()


def test_a_lease_is_extended_once_however_often_the_plan_comes(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    [node, _] = world.nodes.values()
    world.link(node)
    run = Run(node, AskClaim(request_id="a", is_run=True, gpus=1, term_s=3_600.0))
    node.runs.append(run)
    node.requests.asked(run, run.claim, None)  # type: ignore[arg-type]
    node.service.hear(PoolPlan((LeaseOffer("a", ("n0-0",)),)))
    world.report(node)
    [held] = world.hub.service.nodes[0].report.leases
    for _ in range(2):  # asked for twice before the node has said anything
        world.hub.service.extend("n0", held, 1_800.0)
    for _ in range(3):
        world.machine.now += 1
        world.hub.service.step(world.machine.now + 1e6, world.machine.now)
        for plan in [*node.from_hub] * 2:
            node.service.hear(plan)
    [lease] = node.service.leases.all.values()
    assert node.service.clock.utc(lease.until) == held.until + 3_600.0
    world.report(node)
    world.machine.now += 1
    world.hub.service.step(world.machine.now + 1e6, world.machine.now)
    last: Any = node.from_hub[-1]
    assert last.extend == {}, "what has been done is not asked for again"
    node.service.hear(PoolPlan(extend={"a": held.until + 1e9, "b": held.until}))
    assert node.service.leases.all == {"a": lease}, "no lease lasts for decades"
    node.journal.close()
    world.hub.store.close()
