"""Nodes of real agents in one process, whose every sample has a number.

`python -m gevent.monkey --module tests.faults.scale.nodes FOLDER URL,URL` takes an enrolment token
per node from FOLDER/tokens, obeys FOLDER/control.json, and writes to FOLDER/nodes.json how far each
is.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.backends import SIMULATED
from agent.conversation import wiring
from agent.journal.store import ActionStore
from agent.link.admission import ConnectLimiter
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.readings import BackendEvent, GpuReading, OnDemandReading, Reading
from agent.runtime.wake import ThreadWakeSignal
from agent.settings import enrolment_tokens
from agent.simulator.nodes import CONNECTING_MOST, GROUP_COMMIT_S, boot_id_of
from gpudeck.contract.wire import GpuFacts, ReaderState
from gpudeck.measures.metrics import COLUMN, WIDTH
from gpudeck.network.keys import EnrolmentToken

GPUS = 8
NUMBER = "mem_used_bytes"  # history keeps it to the unit
TICK_S = 0.05
REPORT_EVERY_S = 0.5


@dataclass
class Control:
    is_paused: bool = False
    apart_s: float = 0.0  # clocks of odd nodes are ahead by half of it, those of even ones behind


@dataclass
class Progress:
    start: float  # sample n of a node was taken n seconds later
    number: int
    pending: int  # messages that the hub has not stored


def node_name(number: int) -> str:
    return f"n{number:04}"


def gpu_of(name: str, at: int) -> str:
    return f"GPU-{name}-{at}"


class NumberedSource:
    """Source that takes a sample a second. None is left out where the machine was late."""

    state: ReaderState = "ok"
    detail = ""
    age_s = 0.0
    read_s: float | None = None
    pids: frozenset[int] = frozenset()

    def __init__(self, name: str, start: float) -> None:
        self.name, self.start, self.number, self.ahead_s = name, start, 0, 0.0
        self.wake = ThreadWakeSignal()
        self._facts = tuple(GpuFacts(gpu_of(name, at), at, "NVIDIA H100 80GB HBM3",
                                     mem_total_bytes=80e9) for at in range(GPUS))
        self._unread: deque[Reading] = deque()

    def tick(self, now: float) -> None:
        while now >= self.start + self.number + 1:
            self.number += 1
            self._unread.append(self._reading())
            self.wake.ring()

    def _reading(self) -> Reading:
        values = [0.0] * WIDTH
        values[COLUMN[NUMBER]] = float(self.number)
        return Reading(self.start + self.number + self.ahead_s, 0.01, tuple(
            GpuReading(facts.uuid, "ok", tuple(values), bytes(WIDTH)) for facts in self._facts),
            self._facts, None)

    def latest(self) -> Reading | None:
        if not self._unread:
            return None
        reading = self._unread.popleft()
        if self._unread:
            self.wake.ring()
        return reading

    def take_events(self) -> tuple[BackendEvent, ...]:
        return ()

    def readers_of(self, uuid: str) -> frozenset[int]:
        return frozenset()

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        return None

    def close(self) -> None: ...


class NodeClocks:
    """Stand-in for `time` where agents answer the hub's probes: each thread has a node's clock."""

    def __init__(self) -> None:
        self.local = threading.local()

    def time(self) -> float:
        source: NumberedSource | None = getattr(self.local, "source", None)
        return time.time() + (0.0 if source is None else source.ahead_s)


class NodeCrowd:
    def __init__(self, folder: Path, hubs: tuple[str, ...], tokens: list[EnrolmentToken]) -> None:
        self._folder, self._hubs, self._tokens = folder, hubs, tokens
        # Each at its own part of a second, as nodes are.
        start = float(int(time.time()) + 1)
        self._sources = [NumberedSource(node_name(number), start + number / len(tokens))
                         for number in range(len(tokens))]
        self._outboxes: list[Outbox] = []
        self._stop, self._clocks = threading.Event(), NodeClocks()
        vars(wiring)["time"] = self._clocks

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        journal = OutboxFile(self._folder / "journal.db", GROUP_COMMIT_S)
        acts = ActionStore(self._folder / "acts.db", durable=False)
        self._outboxes = [Outbox(journal, source.name) for source in self._sources]
        limiter = ConnectLimiter(CONNECTING_MOST)
        threads = [threading.Thread(target=self._run_node, args=(at, acts, limiter))
                   for at in range(len(self._sources))]
        for thread in threads:
            thread.start()
        self._tick()
        for thread in threads:
            thread.join(3.0)
        journal.close()
        acts.close()

    def _run_node(self, at: int, acts: ActionStore, limiter: ConnectLimiter) -> None:
        source, token = self._sources[at], self._tokens[at]
        self._clocks.local.source = source
        identity = NodeIdentity(node_key(self._folder, source.name), token.hub, token)
        config = NodeConfig(
            self._hubs, lambda _: None, identity, source.name, SIMULATED,
            boot_id_of(1, source.name), self._folder, acts, is_made_up=True,
            connect_limiter=limiter, options=f"node={source.name},profile=h100,gpus={GPUS},seed=1")
        run_node(config, source, self._outboxes[at], self._stop, source.wake)

    def _tick(self) -> None:
        report_at = 0.0
        while not self._stop.wait(TICK_S):
            control = read_control(self._folder)
            for at, source in enumerate(self._sources):
                source.ahead_s = control.apart_s * (0.5 if at % 2 else -0.5)
                if not control.is_paused:
                    source.tick(time.time())
            if time.monotonic() - report_at >= REPORT_EVERY_S:
                report_at = time.monotonic()
                self._report()

    def _report(self) -> None:
        replace(self._folder / "nodes.json", {
            source.name: asdict(Progress(source.start, source.number, outbox.pending))
            for source, outbox in zip(self._sources, self._outboxes, strict=True)})


def replace(path: Path, content: object) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content))
    beside.rename(path)


def read_control(folder: Path) -> Control:
    path = folder / "control.json"
    return Control(**json.loads(path.read_text())) if path.exists() else Control()


def main(argv: list[str]) -> None:
    folder = Path(argv[0])
    NodeCrowd(folder, tuple(argv[1].split(",")),
              enrolment_tokens(folder / "tokens", os.environ)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
