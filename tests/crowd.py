"""A node, a GPU and a task for each of many texts, over real sockets of their own."""

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
from dashboard.state import HubState
from gpudeck.metrics import WIDTH
from gpudeck.wire import (
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
from tests.integration.hubs import Caller, HubProcess, RawSocket, greet

PONG = "3"
DRAWN = 50  # tasks in a drawer
EVERY_S = 4.0


@dataclass(frozen=True)
class Said:
    """What one node says of itself; no two words of it are the same text."""

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


def mixed(texts: list[str], per_group: int) -> list[Said]:
    """Each text once as a host, once as a user, and so on; who meets whom is drawn by lot."""
    lots = [random.sample(texts, len(texts)) for _ in range(6)]
    return [Said(host, f"crowd-{at // per_group}.x", random.randrange(100),
                 f"GPU-{at // per_group}x{secrets.token_hex(6)}", *more)
            for at, (host, *more) in enumerate(zip(*lots, strict=True))]


def wards(texts: list[str]) -> list[Said]:
    """Some nodes more, with as many tasks on their GPU as a drawer shows: each text as each word of
    a task."""
    lots = list(zip(*(random.sample(texts, len(texts)) for _ in range(3)), strict=True))
    return [Said(f"ward-{at}", "wards", 0, f"GPU-ward{at}x{secrets.token_hex(6)}", "ward",
                 user, command, manager, more=tuple(lots[at + 1 : at + DRAWN]))
            for at, (user, command, manager) in list(enumerate(lots))[::DRAWN]]


class Crowd:
    """`WireAgent` has three threads to each; these 500 have one together."""

    def __init__(self, hub: HubProcess, people: list[Said]) -> None:
        self.people = people
        self.seq = 0
        with contextlib.closing(HubState.open(hub.folder)) as state:
            places = create(state.registry, HubKey(hub.folder).fingerprint,
                            [NewEnrolment(group=said.group) for said in people], "the tests")
        self.sockets = []
        for at, (said, (token, _)) in enumerate(zip(people, places, strict=True)):
            raw = RawSocket(hub, NAMESPACE)
            answer = greet(raw, Caller(f"crowd-{at}", host=said.host), token)
            assert isinstance(answer, Welcome), (said.host, answer)
            self.sockets.append(raw)
            if at % 50 == 49:  # on a busy machine the last come when the first were long silent
                for each in self.sockets:
                    each.ws.send(PONG)
        self._is_over = threading.Event()
        self._talk = threading.Lock()
        self._voice = threading.Thread(target=self._go_on, daemon=True)
        self._voice.start()

    def _go_on(self) -> None:
        with contextlib.suppress(OSError, WebSocketException):  # a hub that has gone
            while not self._is_over.wait(EVERY_S):
                self.tick() if self.seq else self.beat()

    def close(self) -> None:
        self._is_over.set()
        self._voice.join(30)

    def say(self, each: Any) -> None:
        for at, (raw, said) in enumerate(zip(self.sockets, self.people, strict=True)):
            message: FromAgent = each(at, said)
            raw.ws.send(PONG)  # before it is asked for: nobody reads these sockets
            raw.emit(EVENT, encode(message))

    def beat(self) -> None:
        """There, and without a GPU."""
        self.say(lambda _, said: Beat("no_gpus", None, 0, 0, said.detail))

    def bring_gpus(self) -> None:
        self.say(lambda _, said: Inventory(1, (GpuFacts(said.uuid, said.index, said.model,
                                                        mem_total_bytes=80e9),)))
        self.tick()

    def tick(self) -> None:
        with self._talk:
            self.seq += 1
            self._say_frames()

    def _say_frames(self) -> None:
        self.say(lambda at, said: Frame(
            self.seq, time.time(), 1.0, 1, pack([random.uniform(0, 100)] + [1.0] * (WIDTH - 1)),
            bytes(WIDTH), bytes(1), _tasks(at, said) if self.seq == 1 else None))


def _tasks(at: int, said: Said) -> Tasks:
    tasks = ((said.user, said.command, said.manager), *said.more)
    ids = [f"crowd-{at}:{pid}:1" for pid in range(1, len(tasks) + 1)]
    return Tasks(True, tuple(
        Task(task_id, pid, 1, 1_000.0, user, command, "compute", manager)
        for pid, (task_id, (user, command, manager)) in enumerate(zip(ids, tasks, strict=True), 1)),
        tuple(Use(task_id, 0, 1e9, 50.0, "running") for task_id in ids))
