"""A node, a GPU and a task for each of many texts, each node over its own real socket."""

import contextlib
import random
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any

from websocket import WebSocketException

from dashboard.actions.hub_key import HubKey
from dashboard.fleet.members import NewEnrolment
from dashboard.nodes.enrolment import create
from dashboard.nodes.store import NodeStore
from dashboard.state import HubState
from gpudeck.contract.wire import (
    EVENT,
    NAMESPACE,
    Beat,
    Frame,
    FromAgent,
    GpuFacts,
    Inventory,
    Task,
    Tasks,
    Use,
    Welcome,
    encode,
    pack,
)
from gpudeck.measures.metrics import WIDTH
from tests.integration.hubs import Caller, HubProcess, RawSocket, greet

PONG = "3"
DRAWN = 50  # tasks in a drawer
EVERY_S = 4.0


@dataclass(frozen=True)
class CrowdNode:
    """Texts that one node reports of itself; no two of them are the same."""

    host: str
    group: str
    index: int
    uuid: str
    model: str
    user: str
    command: str
    manager: str
    detail: str = ""
    more: tuple[tuple[str, str, str], ...] = ()  # tasks: user, command, manager

    @property
    def title(self) -> str:
        return f"{self.host} · GPU {self.index}"


def mixed(texts: list[str], per_group: int) -> list[CrowdNode]:
    """Nodes with each text once as a host, once as a user, and so on; which texts share a node is
    drawn by lot."""
    lots = [random.sample(texts, len(texts)) for _ in range(6)]
    return [CrowdNode(host, f"crowd-{at // per_group}.x", random.randrange(100),
                      f"GPU-{at // per_group}x{secrets.token_hex(6)}", *more)
            for at, (host, *more) in enumerate(zip(*lots, strict=True))]


def wards(texts: list[str]) -> list[CrowdNode]:
    """Further nodes, with as many tasks on their GPU as a drawer shows: each text as each word of a
    task."""
    lots = list(zip(*(random.sample(texts, len(texts)) for _ in range(3)), strict=True))
    return [CrowdNode(f"ward-{at}", "wards", 0, f"GPU-ward{at}x{secrets.token_hex(6)}", "ward",
                      user, command, manager, more=tuple(lots[at + 1 : at + DRAWN]))
            for at, (user, command, manager) in list(enumerate(lots))[::DRAWN]]


class Crowd:
    """Nodes that share one thread: a `WireAgent` has three, and here are 500 nodes."""

    def __init__(self, hub: HubProcess, nodes: list[CrowdNode]) -> None:
        self.nodes = nodes
        self.seq = 0
        with contextlib.closing(HubState.open(hub.folder)) as state:
            enrolments = create(state.store(NodeStore), HubKey(hub.folder).fingerprint,
                                [NewEnrolment(group=node.group) for node in nodes], "the tests")
        self.sockets = []
        for at, (node, (token, _)) in enumerate(zip(nodes, enrolments, strict=True)):
            raw = RawSocket(hub, NAMESPACE)
            answer = greet(raw, Caller(f"crowd-{at}", host=node.host), token)
            assert isinstance(answer, Welcome), (node.host, answer)
            self.sockets.append(raw)
            if at % 50 == 49:  # on a busy machine the last come when the first were long silent
                for peer in self.sockets:
                    peer.ws.send(PONG)
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        with contextlib.suppress(OSError, WebSocketException):  # a hub that has gone
            while not self._is_over.wait(EVERY_S):
                self.tick() if self.seq else self.beat()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(30)

    def send(self, message_of: Any) -> None:
        for at, (raw, node) in enumerate(zip(self.sockets, self.nodes, strict=True)):
            message: FromAgent = message_of(at, node)
            raw.ws.send(PONG)  # before it is asked for: nobody reads these sockets
            raw.emit(EVENT, encode(message))

    def beat(self) -> None:
        """Report each node as present, without a GPU."""
        self.send(lambda _, node: Beat("no_gpus", None, 0, 0, node.detail))

    def bring_gpus(self) -> None:
        self.send(lambda _, node: Inventory(1, (GpuFacts(node.uuid, node.index, node.model,
                                                         mem_total_bytes=80e9),)))
        self.tick()

    def tick(self) -> None:
        with self._lock:
            self.seq += 1
            self._send_frames()

    def _send_frames(self) -> None:
        self.send(lambda at, node: Frame(
            self.seq, time.time(), 1.0, 1, pack([random.uniform(0, 100)] + [1.0] * (WIDTH - 1)),
            bytes(WIDTH), bytes(1), _tasks(at, node) if self.seq == 1 else None))


def _tasks(at: int, node: CrowdNode) -> Tasks:
    tasks = ((node.user, node.command, node.manager), *node.more)
    ids = [f"crowd-{at}:{pid}:1" for pid in range(1, len(tasks) + 1)]
    return Tasks(True, tuple(
        Task(task_id, pid, 1, 1_000.0, user, command, "compute", manager)
        for pid, (task_id, (user, command, manager)) in enumerate(zip(ids, tasks, strict=True), 1)),
        tuple(Use(task_id, 0, 1e9, 50.0, "running") for task_id in ids))
