"""A node, a Gpu and a task for each of many texts, over real sockets of their own."""

import contextlib
import random
import secrets
import time
from dataclasses import dataclass
from typing import Any

from dashboard.core.members import Wanted
from dashboard.enrolment import create
from dashboard.hub_key import HubKey
from dashboard.state import State
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
    detail: str

    @property
    def title(self) -> str:
        return f"{self.host} · GPU {self.index}"


def mixed(texts: list[str], per_group: int) -> list[Said]:
    """Each text once as a host, once as a user, and so on; who meets whom is drawn by lot."""
    lots = [random.sample(texts, len(texts)) for _ in range(6)]
    return [Said(host, f"crowd-{at // per_group}.x", random.randrange(100),
                 f"GPU-{at // per_group}x{secrets.token_hex(6)}", *more)
            for at, (host, *more) in enumerate(zip(*lots, strict=True))]


class Crowd:
    """`WireAgent` has three threads to each; 500 of these have none."""

    def __init__(self, hub: HubProcess, people: list[Said]) -> None:
        self.people = people
        self.seq = 0
        with contextlib.closing(State(hub.folder)) as state:
            places = create(state.registry, HubKey(hub.folder).fingerprint,
                            [Wanted(group=said.group) for said in people], "the tests")
        self.sockets = []
        for at, (said, (token, _)) in enumerate(zip(people, places, strict=True)):
            raw = RawSocket(hub, NAMESPACE)
            answer = greet(raw, Caller(f"crowd-{at}", host=said.host), token)
            assert isinstance(answer, Welcome), (said.host, answer)
            self.sockets.append(raw)

    def say(self, each: Any) -> None:
        for at, (raw, said) in enumerate(zip(self.sockets, self.people, strict=True)):
            message: FromAgent = each(at, said)
            raw.ws.send(PONG)  # before it is asked for: nobody reads these sockets
            raw.emit(EVENT, encode(message))

    def beat(self) -> None:
        """There, and without a Gpu."""
        self.say(lambda _, said: Beat("no_gpus", None, 0, 0, said.detail))

    def bring_gpus(self) -> None:
        self.say(lambda _, said: Inventory(1, (GpuFacts(said.uuid, said.index, said.model,
                                                        mem_total_bytes=80e9),)))
        self.tick()

    def tick(self) -> None:
        self.seq += 1
        self.say(lambda at, said: Frame(
            self.seq, time.time(), 1.0, 1, pack([random.uniform(0, 100)] + [1.0] * (WIDTH - 1)),
            bytes(WIDTH), bytes(1), _task(at, said) if self.seq == 1 else None))


def _task(at: int, said: Said) -> Tasks:
    task_id = f"crowd-{at}:7:1"
    return Tasks(True, (Task(task_id, 7, 1, 1_000.0, said.user, said.command, "compute",
                             said.manager),),
                 (Use(task_id, 0, 1e9, 50.0, "running"),))
