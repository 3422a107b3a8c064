"""Many simulated nodes side by side: one tick reads them all, each reports on its own socket."""

import gc
import logging
import platform
import resource
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpudeck.client import tls_context
from gpudeck.keys import Token
from gpudeck.wire import ReaderState

from .acts_journal import ActsStore
from .backends import Fresh, Happening, Reading, Unavailable
from .backends.simulated import Options, SimulatedReader
from .backends.simulation.chance import seed_of
from .backends.simulation.folder import ControlFile
from .journal import Journal
from .key import Identity, node_key, pinned_hub
from .node import NodeConfig, run_node

log = logging.getLogger("gpudeck.agent.simulate")

STARTS_PER_S = 250.0  # a hub that has just come up is not met by all at once
SLICES = 20  # a second's readings are spread over so many parts of it
SPREAD_S = 0.6
GROUP_COMMIT_S = 0.05
KEEP_ENERGY_EVERY_S = 60.0
HUNG_AFTER_S = 6.0  # as late as the watchdog of a real reader child
LEAVE_WITHIN_S = 3.0


class OncePerMinute(logging.Filter):
    """A thousand nodes that say the same thing are one line."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        words = record.getMessage().split(" pending=")[0]
        last = self._said_at.get(words)
        if last is not None and record.created - last < 60:
            return False
        self._said_at[words] = record.created
        return True


class SimulatedSource:
    """What a reader child and its watchdog are to a real node, in this process."""

    def __init__(self, reader: SimulatedReader) -> None:
        self._reader = reader
        self._unread: Reading | None = None
        self._happened: list[Happening] = []
        self._read_at: float | None = None
        self._on_news: Callable[[], None] = lambda: None
        self.state: ReaderState = "starting"
        self.detail = ""
        self.read_s: float | None = None

    @property
    def age_s(self) -> float | None:
        return None if self._read_at is None else time.monotonic() - self._read_at

    def latest(self) -> Reading | None:
        reading, self._unread = self._unread, None
        return reading

    def happenings(self) -> tuple[Happening, ...]:
        happened, self._happened = tuple(self._happened), []
        return happened

    def on_news(self, call: Callable[[], None]) -> None:
        self._on_news = call

    def fresh(self, timeout_s: float) -> Fresh | None:
        try:
            return None if self._reader.hangs() else self._reader.fresh()
        except Unavailable:
            return None

    @property
    def pids(self) -> frozenset[int]:
        return frozenset()

    def close(self) -> None:
        self._reader.close()

    def tick(self) -> None:
        if self._reader.hangs():
            if self.state == "ok" and (self.age_s or 0.0) > HUNG_AFTER_S:
                self.state, self.detail = "hung", "the driver does not answer. Values are stale."
                self._on_news()
            return
        began = time.monotonic()
        try:
            reading = self._reader.read()
        except Unavailable as why:
            changed, self.state, self.detail = self.state != why.state, why.state, why.detail
            if changed:
                self._on_news()
            return
        self._happened += reading.happenings
        self._unread, self._read_at = reading, time.monotonic()
        self.read_s = self._read_at - began
        self.state, self.detail = "ok", ""
        self._on_news()


def host(
    hub: str, tokens: Sequence[Token], names: Sequence[str], options: Options, data: Path,
    stop: threading.Event,
) -> None:
    """`tokens`: none, or one for each name."""
    _raise_file_limit()
    logging.getLogger("gpudeck.agent.node").addFilter(OncePerMinute())
    journal = Journal(data / "journal.db", GROUP_COMMIT_S)
    acts = ActsStore(data / "acts.db", durable=False)
    tls = tls_context(hub, None)
    pin = pinned_hub(data, tokens[0].hub if tokens else None)
    control = None if options.world is None else ControlFile(options.world / "control.json")
    sources = [
        SimulatedSource(SimulatedReader(replace(options, node=name), control, KEEP_ENERGY_EVERY_S))
        for name in names
    ]

    def run(number: int) -> None:
        name = names[number]
        stop.wait(number / STARTS_PER_S)
        identity = Identity(node_key(data, name), pin, tokens[number] if tokens else None)
        config = NodeConfig(hub, tls, identity, name, "simulated", boot_id_of(options.seed, name),
                            data, acts, platform.platform(), is_made_up=True)
        run_node(config, sources[number], journal.outbox(name), stop)

    nodes = [threading.Thread(target=run, args=(number,)) for number in range(len(names))]
    for node in nodes:
        node.start()
    gc.freeze()  # what is there now stays: the collector need not look at it again
    _tick(sources, stop)
    deadline = time.monotonic() + LEAVE_WITHIN_S
    for node in nodes:
        node.join(max(0.0, deadline - time.monotonic()))
    for source in sources:
        source.close()
    journal.close()
    acts.close()


def _raise_file_limit() -> None:
    """A descriptor per node: the usual 1,024 is too few for a fleet."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def boot_id_of(seed: int, name: str) -> str:
    """Each simulated node is a machine of its own, though all run on this one."""
    return f"{seed_of(seed, name, 'boot'):016x}"


def _tick(sources: Sequence[SimulatedSource], stop: threading.Event) -> None:
    """Every source once a second, on the wall clock's second, a slice at a time."""
    second = int(time.time()) + 1
    while not stop.is_set():
        for part in range(SLICES):
            if stop.wait(max(0.0, second + SPREAD_S * part / SLICES - time.time())):
                return
            for source in sources[part::SLICES]:
                source.tick()
        # After a stop of the machine or a step of its clock: go on from now, make up for nothing.
        second = max(second + 1, int(time.time()))
        if second > time.time() + 2:
            second = int(time.time()) + 1
