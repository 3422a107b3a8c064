"""Hubs, one or two, and two nodes, whose processes and messages a test orders as it likes."""

import contextlib
import getpass
import itertools
import os
import random
import sqlite3
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent

from agent.journal.store import ActionJournal, ActionStore
from agent.pool.clock import PoolClock
from agent.pool.cores import NodeCores
from agent.pool.gpus import PoolSnapshot
from agent.pool.leases import NodeLeases
from agent.pool.lock import LeasedProcess, Marks, PoolGpu
from agent.pool.mps_look import MpsProbe
from agent.pool.requests import PoolRequests
from agent.pool.reservations import NodeReservations
from agent.pool.service import PoolService as NodePoolService
from agent.pool.service import read_disk
from agent.pool.shares import MpsFacts
from agent.pool.store import LeaseStore
from agent.tasks.seen import GpuTask
from dashboard.errors import InvalidChangeError
from dashboard.fleet.fleet import Fleet
from dashboard.pool.service import PoolService
from dashboard.pool.store import SCHEMA, TIMES_SCHEMA, PoolStore
from dashboard.pool.watch import PoolWatch
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.runtime.sqlite_state import SqliteStateStore
from gpudeck.contract.limits import LimitsNow, MpsDaemon
from gpudeck.contract.pool_link import PoolPlan, PoolReport
from gpudeck.contract.pool_messages import (
    AskClaim,
    Bind,
    Bound,
    CancelClaim,
    FromPool,
    GiveBack,
    Leased,
    UseLease,
)
from gpudeck.contract.suspensions import PREEMPTION, SuspendedTask, SuspensionState
from gpudeck.contract.wire import Task
from gpudeck.pool.core.claim_limits import BY_ROLE
from gpudeck.pool.core.claims import WHOLE_MILLI, Claim
from gpudeck.pool.core.schedule import NoOwnerLimits, OwnerLimits, PoolPolicy
from tests.fakes.people import QuietPeople

NODES = ("n0", "n1")
GPUS_EACH = 3
UID = 1_000
GIB = 2**30
MPS = MpsFacts((MpsDaemon("/tmp/mps", 0, "root", True),))


class Machine:
    """Processes and their leases, which no kill of an agent or a hub changes."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pids = itertools.count(100)
        self.alive: set[int] = set()
        self.leases: dict[int, str] = {}  # living command to its lease
        self.gpus: dict[int, tuple[str, ...]] = {}  # that a living command uses, all of each
        self.suspended: dict[tuple[int, int], SuspensionState] = {}

    def process_of(self, pidfd: int, uid: int) -> LeasedProcess | None:
        return LeasedProcess(pidfd, pidfd, None) if pidfd in self.alive else None

    def is_alive(self, process: LeasedProcess) -> bool:
        return process.pid in self.alive

    def marked(self, uids: Mapping[str, int], roots: object) -> Marks:
        return {lease_id: {(pid, pid) for pid in self.alive if self.leases.get(pid) == lease_id}
                for lease_id in uids}

    def is_stopped(self, pid: int) -> bool:
        return False

    def key_of(self, pid: int) -> None:
        return None

    def started_by(self, pid: int, since_ticks: int) -> frozenset[tuple[int, int]]:
        return frozenset()


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
    replies: list[FromPool] = field(default_factory=list)
    other_nodes: list["Node"] = field(default_factory=list)  # on which its other ranks are to be

    @property
    def is_suspendable(self) -> bool:
        return self.claim is not None and self.claim.is_suspendable

    def send(self, message: FromPool) -> None:
        self.replies.append(message)
        if isinstance(message, Leased):
            self.lease = message
            for node in self.other_nodes:
                leases = node.service.leases
                assert message.lease_id in leases.all.keys() | {
                    lease.claim.id for lease in leases.ended_leases}, "a part of what it asked for"
        if isinstance(message, Bound):
            self.is_bound = True

    def bind(self) -> None:
        assert self.lease is not None
        machine = self.node.machine
        self.pid = next(machine.pids)
        machine.alive.add(self.pid)
        before = len(self.replies)
        self.node.requests.handle(self, Bind(self.lease.lease_id), self.pid)  # type: ignore[arg-type]
        if isinstance(self.replies[before], Bound):
            machine.leases[self.pid] = self.lease.lease_id
            if self.lease.share_milli == WHOLE_MILLI and not self.lease.hosts:
                machine.gpus[self.pid] = tuple(gpu.uuid for gpu in self.lease.gpus)
        else:
            machine.alive.discard(self.pid)  # it waits on its pipe, and never runs
            self.pid = None

    def command_ends(self) -> None:
        if self.pid is not None:
            self.node.machine.alive.discard(self.pid)
            self.node.machine.leases.pop(self.pid, None)
            self.node.machine.gpus.pop(self.pid, None)
            self.node.machine.suspended.pop((self.pid, self.pid), None)

    def gives_back(self) -> None:
        if self.lease is not None and self.is_open and self.node.is_up:
            self.node.requests.handle(self, GiveBack(self.lease.lease_id, 0), None)  # type: ignore[arg-type]
            self.leaves()

    def leaves(self) -> None:
        """Killed, or done: either way its connection ends."""
        if self.is_open and self.node.is_up:
            self.is_open = False
            self.node.requests.drop_user(self)  # type: ignore[arg-type]


class Node:
    def __init__(self, name: str, folder: Path, machine: Machine) -> None:
        self.id = name
        self.machine = machine
        self.folder = folder
        self.to_hub: deque[PoolReport] = deque()
        self.from_hub: deque[PoolPlan] = deque()
        self.late: deque[PoolPlan] = deque()  # of the hub before
        self.hub: Hub | None = None  # to which it is connected
        self.is_up = False
        self.runs: list[Run] = []
        self.start()

    def start(self) -> None:
        self.journal = ActionStore(self.folder / f"{self.id}.db", durable=False)
        clock = PoolClock(lambda: self.machine.now, lambda: self.machine.now + 1e6)
        leases = NodeLeases(LeaseStore(ActionJournal(self.journal), "boot"), clock,
                            self.machine,  # type: ignore[arg-type]
                            NodeCores())
        reservations = NodeReservations(ActionJournal(self.journal), self.id, clock)
        self.service = NodePoolService(self.id, self.id, leases, reservations, PoolPolicy(), clock,
                                       MpsProbe(lambda: MPS, clock.now), False, lambda: None,
                                       QuietPeople(), lambda: "", tuple,
                                       lambda: {
                                           key: SuspendedTask("", "", (), state, 0.0, PREEMPTION)
                                           for key, state in self.machine.suspended.items()})
        read_disk(self.service)
        self.look()
        self.requests = PoolRequests(self.service)
        self.is_up = True

    def look(self) -> None:
        """List what is on the GPUs, of those whose work may be suspended."""
        machine = self.machine
        tasks = [GpuTask(Task(f"t{pid}", pid, pid, None, run.owner, None, uid=run.uid), uuid,
                         0.0 if (is_away := (pid, pid) in machine.suspended) else 4.0 * GIB, None,
                         "running", is_away)
                 for run in self.runs if run.is_suspendable and (pid := run.pid) in machine.alive
                 for uuid in machine.gpus.get(pid, ())]
        self.service.snapshot = PoolSnapshot({
            uuid: PoolGpu(uuid, "H100", index, False, 0, None, 80 * GIB, "")
            for index in range(GPUS_EACH) for uuid in [f"{self.id}-{index}"]}, tasks)

    def suspend(self) -> None:
        """Suspend the work of leases that are taken back, as commands of the hub do."""
        for lease in self.service.leases.all.values():
            if lease.preempted and lease.claim.is_suspendable and lease.process is not None and (
                    lease.process.pid in self.machine.alive):
                self.machine.suspended[lease.process.key] = "suspended"

    def restore(self) -> None:
        """Restore the work of leases that have their GPUs again."""
        for lease in self.service.leases.all.values():
            if lease.home_gpus and lease.uuids and lease.process is not None:
                self.machine.suspended.pop(lease.process.key, None)

    def kill(self) -> None:
        self.journal.close()
        self.is_up = False
        self.cut()
        for run in self.runs:
            run.is_open = False

    def cut(self) -> None:
        self.hub = None
        self.to_hub.clear()
        self.from_hub.clear()

    def host(self) -> str:
        return self.id


def nobodys_limits(nodes: object, leases: object) -> Generator[None, None, OwnerLimits]:
    """Return no limits: there is no quota."""
    yield
    return NoOwnerLimits()


class Hub:
    def __init__(self, folder: Path, nodes: dict[str, Node], machine: Machine) -> None:
        self.folder, self.nodes, self.machine = folder, nodes, machine
        folder.mkdir()
        self.store = SqliteStateStore(folder / "state.db")
        self.store.migrate((SCHEMA, TIMES_SCHEMA))
        self.start()

    def restore(self, other: "Hub") -> None:
        """Restore the state from a backup of another hub, which goes on."""
        self.store.close()
        with (contextlib.closing(sqlite3.connect(other.folder / "state.db")) as backup,
              contextlib.closing(sqlite3.connect(self.folder / "state.db")) as own):
            backup.backup(own)
        self.store = SqliteStateStore(self.folder / "state.db")
        self.start()

    def start(self) -> None:
        self.service = PoolService(
            PoolStore(self.store.connection), HostsById(), self,  # type: ignore[arg-type]
            self.send, nobodys_limits, lambda owners, groups: {}, Willing,
            True, lambda: self.machine.now, lambda: self.machine.now + 1e6,
            lambda node_id, spent_s, at: None, PoolWatch(Dispatcher()))
        self.service.open(self.machine.now)
        self.service.set_policy(PoolPolicy(
            is_preemptive=True, several_nodes=True, least_run_s=60.0,
            limits=dict.fromkeys(BY_ROLE, BY_ROLE["admin"])), self.machine.now)
        self.service.preemptions.spawn = lambda check, *args: check(*args)

    def __contains__(self, node_id: object) -> bool:
        return self.nodes[str(node_id)].hub is self

    def send(self, node_id: str, message: Any) -> bool:
        if node_id in self:
            self.nodes[node_id].from_hub.append(message)
        return node_id in self


class Willing:
    def why_not(self, plan: object) -> str:
        return ""

    def stopped(self) -> dict[str, str]:
        return {}


class HostsById(Fleet):
    """A fleet that measures nothing, and whose nodes have told of their MPS."""

    def __init__(self) -> None:
        super().__init__(1)
        self.put_limits(LimitsNow(0.0, tuple(MPS.daemons or ())))

    def put_limits(self, limits: LimitsNow | None) -> None:
        self.all_nodes |= {name: SimpleNamespace(limits=limits)  # type: ignore[misc]
                       for name in NODES}

    def host_of(self, node_id: str) -> str:
        return node_id


class World:
    def __init__(self, folder: Path, draw: random.Random, hubs: int = 1) -> None:
        self.draw = draw
        self.machine = Machine()
        self.nodes = {name: Node(name, folder, self.machine) for name in NODES}
        self.hubs = [Hub(folder / f"hub{number}", self.nodes, self.machine)
                     for number in range(hubs)]
        self.hub = self.hubs[0]
        self.numbers = itertools.count()
        self.most_held = 0
        self.most_suspended = 0

    def link(self, node: Node, hub: Hub | None = None) -> None:
        if node.is_up and node.hub is None:
            node.hub = hub or self.draw.choice(self.hubs)
            node.service.connected()
            node.hub.service.joined(node.id)

    def step(self, while_hub_is_at_it: bool = False) -> None:
        node = self.draw.choice(list(self.nodes.values()))
        hub = self.draw.choice(self.hubs)
        runs = [run for run in node.runs if run.is_open or run.pid in self.machine.alive]
        run = self.draw.choice(runs) if runs else None
        if node.is_up:
            node.look()
        [act] = self.draw.choices(
            ("ask", "report", "hub", "plan", "bind", "end", "kill run", "look", "late", "cut",
             "link", "agent", "hub dies", "ask hub", "withdraw",
             "give back", "take over", "cancel", "suspend", "restore work", "change over",
             "restore"),
            (14, 20, 20 * len(self.hubs) * (not while_hub_is_at_it), 20, 14, 8, 4, 12, 6, 1, 12, 1,
             not while_hub_is_at_it, 3, 1, 4, 12, 2, 8, 8,
             *((3, not while_hub_is_at_it) if len(self.hubs) > 1 else (0, 0))))
        match act:
            case "ask" if node.is_up:
                self.ask(node)
            case "report" if node.is_up:
                self.report(node)
            case "hub":
                self.hub_turn(hub)
            case "plan" if node.late and node.is_up and self.draw.random() < 0.5:
                node.service.receive(node.late.popleft())
            case "plan" if node.from_hub and node.is_up:
                node.service.receive(node.from_hub.popleft())
            case "bind":
                ready = [run for run in runs if run.is_open and run.lease and run.pid is None]
                if ready:
                    self.draw.choice(ready).bind()
            case "end" if run is not None and run.pid is not None:
                run.command_ends()
                run.gives_back()
            case "kill run" if run is not None:
                run.leaves()
            case "look" if node.is_up:
                node.service.mps.probe_if_requested()
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
            case "give back":
                for lease in node.service.leases.all.values():
                    if not lease.is_run:
                        hub.service.give_back(node.id, lease.id, "not needed any more")
            case "take over" if node.is_up:
                self.take_over(node)
            case "cancel" if node.is_up:
                for claim_id in [*node.service.waiting.all, *hub.service.claims][:1]:
                    node.requests.handle(Run(node, None, os.getuid()), CancelClaim(claim_id), None)  # type: ignore[arg-type]
            case _:
                self.hub_step(act, hub, node)

    def hub_turn(self, hub: Hub) -> None:
        """Something else happens whenever it lets others run."""
        self.machine.now += 0.3
        turn = gevent.spawn(hub.service.step, self.machine.now + 1e6, self.machine.now)
        gevent.sleep(0)
        while not turn.ready():
            self.step(while_hub_is_at_it=True)
            gevent.sleep(0)
        turn.get()

    def hub_step(self, act: str, hub: Hub, node: Node) -> None:
        match act:
            case "suspend":
                node.suspend()
            case "restore work":
                node.restore()
            case "ask hub":
                self.ask_hub(hub)
            case "withdraw":
                for claim_id in list(hub.service.claims)[:1]:
                    hub.service.withdraw(claim_id)
            case "hub dies":
                self.cut_off(hub)
                hub.start()
            case "change over":
                node.late.extend(node.from_hub)
                node.cut()
                self.link(node, hub)
            case "restore":
                self.cut_off(self.hubs[1])
                self.hubs[1].restore(self.hubs[0])

    def cut_off(self, hub: Hub) -> None:
        for node in self.nodes.values():
            if node.hub is hub:
                node.cut()

    def ask(self, node: Node) -> None:
        share = self.draw.choice((WHOLE_MILLI, WHOLE_MILLI, 300))
        nodes = self.draw.choice((1, 1, 2)) if share == WHOLE_MILLI else 1
        claim = AskClaim(
            request_id=f"c{next(self.numbers)}", is_run=True, nodes=nodes,
            gpus=1 if share < WHOLE_MILLI else self.draw.randint(1, GPUS_EACH), share_milli=share,
            priority=self.draw.randrange(5), is_preemptible=(is_taken := self.draw.random() < 0.7),
            is_suspendable=is_taken and nodes == 1 and share == WHOLE_MILLI)
        run = Run(node, claim) if nodes == 1 else Run(node, claim, os.getuid(), getpass.getuser(),
                                                      other_nodes=self.other_nodes(node))
        node.runs.append(run)
        node.requests.handle(run, claim, None)  # type: ignore[arg-type]

    def other_nodes(self, node: Node) -> list[Node]:
        return [other for other in self.nodes.values() if other is not node]

    def take_over(self, node: Node) -> None:
        """Two runs each bare lease: both may be told that they can."""
        bare = [lease.id for lease in node.service.leases.all.values() if not lease.is_run]
        for lease_id in [*bare, *bare]:
            run = Run(node, None, os.getuid(), getpass.getuser())
            node.runs.append(run)
            node.requests.handle(run, UseLease(lease_id, is_run=True), None)  # type: ignore[arg-type]

    def ask_hub(self, hub: Hub) -> None:
        """Claim at the hub, for no process: on one node or two, now or later."""
        now, later = self.machine.now + 1e6, self.draw.choice((None, 30.0, 300.0))
        with contextlib.suppress(InvalidChangeError):
            hub.service.claim(Claim(
                id=f"h{next(self.numbers)}", owner=getpass.getuser(), gpus=self.draw.randint(1, 2),
                nodes=self.draw.choice((1, 1, 2)), submitted_at=now, term_s=60.0,
                starts_at=None if later is None else now + later))

    def report(self, node: Node) -> None:
        if node.hub is not None:
            node.to_hub.extend(node.service.poll())
            while node.to_hub:
                node.hub.service.reported(node.id, node.to_hub.popleft())

    def check(self) -> None:
        at_work = [uuid for pid, uuids in self.machine.gpus.items()
                   if (pid, pid) not in self.machine.suspended for uuid in uuids]
        assert len(at_work) == len(set(at_work)), "two commands work on one GPU"
        self.most_suspended = max(self.most_suspended, len(self.machine.suspended))
        for node in self.nodes.values():
            leased_milli: dict[str, int] = {}
            for lease in node.service.leases.all.values():
                for uuid in lease.uuids:
                    leased_milli[uuid] = leased_milli.get(uuid, 0) + lease.claim.share_milli
            assert all(milli <= WHOLE_MILLI for milli in leased_milli.values()), leased_milli
            self.most_held = max(self.most_held, len(leased_milli))
            commands = [run.lease.lease_id for run in node.runs
                        if run.lease is not None and run.pid in self.machine.alive]
            assert len(commands) == len(set(commands)), "two commands on one lease"
            for run in node.runs:
                if run.pid in self.machine.alive:
                    assert run.lease is not None
                    assert run.lease.lease_id in node.service.leases.all, "a used lease is lost"

    def settle(self, hub: Hub) -> None:
        """End every run, start and connect every node, and let time pass; but first let suspended
        work come back, which nothing keeps away any more."""
        for node in self.nodes.values():
            if not node.is_up:
                node.start()
            node.cut()
            self.link(node, hub)
        for claim_id in list(hub.service.claims):
            hub.service.withdraw(claim_id)
        for _ in range(120):  # what was asked for at the hub goes back since nobody uses it
            self.machine.now += 30
            for node in self.nodes.values():
                for run in node.runs:
                    if (run.pid, run.pid) not in self.machine.suspended:
                        run.command_ends()
                        run.leaves()
                node.restore()
                node.look()
                node.service.step()
                self.report(node)
            hub.service.step(self.machine.now + 1e6, self.machine.now)
            for node in self.nodes.values():
                while node.from_hub:
                    node.service.receive(node.from_hub.popleft())
        assert not self.machine.suspended, "suspended work is forgotten"
