"""Many simulated nodes side by side: one tick reads them all, each reports on its own socket."""

import gc
import logging
import platform
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpudeck.network.keys import EnrolmentToken
from gpudeck.network.tls import tls_context
from gpudeck.rate import RateLimiter

from ..backends import SIMULATED, ReaderUnavailableError
from ..backends.simulation.chance import seed_of
from ..backends.simulation.folder import control_file
from ..backends.simulation.reader import SimulatedReader
from ..backends.simulation.world import SimulationOptions
from ..journal.store import ActionStore
from ..link.admission import ConnectLimiter
from ..link.identity import NodeIdentity, node_key, pinned_hub
from ..link.outbox import Outbox
from ..link.outbox_file import OutboxFile
from ..node import run_node
from ..node_config import NodeConfig
from ..reader.inbox import ReaderInbox
from ..readings import OnDemandReading
from ..runtime.wake import ThreadWakeSignal

log = logging.getLogger("gpudeck.agent.simulator")

# So many nodes of one process connect at a time. The hub gives each 5 s to identify itself,
# which a thousand that come at once on a busy machine all miss: then they come again.
CONNECTING_MOST = 8
ROOM_EVERY_S = 0.01
SLICES = 20  # a second's readings are spread over so many parts of it
SPREAD_S = 0.6
GROUP_COMMIT_S = 0.05
KEEP_ENERGY_EVERY_S = 600.0  # a file for each node
LATE_MAX_S = 5.0
HUNG_AFTER_S = 6.0  # as late as the watchdog of a real reader child
LEAVE_WITHIN_S = 3.0


class OncePerMinuteFilter(logging.Filter):
    """Log filter: a thousand nodes that report the same thing are one line."""

    def __init__(self) -> None:
        super().__init__()
        self._pace = RateLimiter(burst=1, every_s=60.0)

    def filter(self, record: logging.LogRecord) -> bool:
        return self._pace.may(record.getMessage().split(" pending=")[0], record.created)


class SimulatedSource(ReaderInbox):
    """Source of a simulated node, in place of a reader child and its watchdog."""

    def __init__(self, reader: SimulatedReader) -> None:
        super().__init__()
        self.wake = ThreadWakeSignal()
        self._reader = reader

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        try:
            return None if self._reader.hangs() else self._reader.fresh()
        except ReaderUnavailableError:
            return None

    @property
    def pids(self) -> frozenset[int]:
        return frozenset()

    def readers_of(self, uuid: str) -> frozenset[int]:
        return frozenset()

    def close(self) -> None:
        self._reader.close()

    def tick(self) -> None:
        if self._reader.hangs():
            if self.state == "ok" and (self.age_s or 0.0) > HUNG_AFTER_S:
                self.state, self.detail = "hung", "the driver does not answer. Values are stale."
                self.wake.ring()
            return
        began = time.monotonic()
        try:
            reading = self._reader.read()
        except ReaderUnavailableError as why:
            changed, self.state, self.detail = self.state != why.state, why.state, why.detail
            if changed:
                self.wake.ring()
            return
        now = time.monotonic()
        self.put(reading, now)
        self.read_s = now - began
        self.state, self.detail = "ok", ""
        self.wake.ring()


def host(
    hub: str, tokens: Sequence[EnrolmentToken], names: Sequence[str], options: SimulationOptions,
    data: Path,
    stop: threading.Event,
) -> None:
    """`tokens`: none, or one for each name."""
    _raise_file_limit()
    logging.getLogger("gpudeck.agent.conversation").addFilter(OncePerMinuteFilter())
    journal = OutboxFile(data / "journal.db", GROUP_COMMIT_S)
    acts = ActionStore(data / "acts.db", durable=False)
    tls = tls_context(hub, None)
    pin = pinned_hub(data, tokens[0].hub if tokens else None)
    control = control_file(options.world)
    sources = [
        SimulatedSource(SimulatedReader(replace(options, node=name), control, KEEP_ENERGY_EVERY_S))
        for name in names
    ]

    limiter = ConnectLimiter(CONNECTING_MOST)
    ready_sources: list[SimulatedSource] = []

    def run(number: int) -> None:
        name = names[number]
        sources[number].tick()  # the first reading costs as much as 25 others
        ready_sources.append(sources[number])
        identity = NodeIdentity(node_key(data, name), pin, tokens[number] if tokens else None)
        config = NodeConfig((hub,), lambda _: tls, identity, name, SIMULATED,
                            boot_id_of(options.seed, name),
                            data, acts, platform.platform(), is_made_up=True,
                            connect_limiter=limiter, options=_words(replace(options, node=name)))
        run_node(config, sources[number], Outbox(journal, name), stop, sources[number].wake)

    nodes = [threading.Thread(target=run, args=(number,)) for number in range(len(names))]
    starter = threading.Thread(target=_start, args=(names, nodes, limiter, stop))
    starter.start()
    _tick(ready_sources, stop)
    starter.join()
    deadline = time.monotonic() + LEAVE_WITHIN_S
    for node in nodes:
        if node.ident is not None:
            node.join(max(0.0, deadline - time.monotonic()))
    for source in sources:
        source.close()
    journal.close()
    acts.close()


def _words(options: SimulationOptions) -> str:
    """Return the options as open_reader takes them."""
    world = "" if options.world is None else f",world={options.world}"
    return (f"node={options.node},profile={options.profile},gpus={options.gpus},"
            f"seed={options.seed}{world}")


def _start(names: Sequence[str], nodes: Sequence[threading.Thread], limiter: ConnectLimiter,
           stop: threading.Event) -> None:
    for name, node in zip(names, nodes, strict=True):
        while not limiter.admits(name):
            if stop.wait(ROOM_EVERY_S):
                return
        node.start()
    gc.freeze()  # what exists now stays: the collector need not scan it again


def _raise_file_limit() -> None:
    """Allow a descriptor per node: the usual 1,024 is too few for a fleet."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def boot_id_of(seed: int, name: str) -> str:
    """Return a boot id per node: each stands for a machine, though all run on this one."""
    return f"{seed_of(seed, name, 'boot'):016x}"


def _tick(sources: Sequence[SimulatedSource], stop: threading.Event) -> None:
    """Read every source once a second, on the wall clock's second, a slice at a time."""
    second = int(time.time()) + 1
    while not stop.is_set():
        for part in range(SLICES):
            if stop.wait(max(0.0, second + SPREAD_S * part / SLICES - time.time())):
                return
            for source in sources[part::SLICES]:
                source.tick()
        second = _next(second, time.time())


def _next(second: int, now: float) -> int:
    """Return the next second to read. After a stop of the machine or a step of its clock: go on
    from now, make up for nothing. A machine that cannot keep up gets a pause as long as it was
    late, for what was read has to get through, and nodes that are still to come, too."""
    late_s = now - (second + 1)
    if late_s < -2.0:
        return int(now) + 1
    return second + 1 if late_s <= 0.0 else int(now + min(late_s, LATE_MAX_S)) + 1
