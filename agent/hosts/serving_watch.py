"""Reader of the metrics of model servers in a separate thread, so that a server that does not
answer delays nothing else.

Only a process whose command line names an engine is asked, at the port that its flags name, and
only where the kernel says that its user listens there in this network namespace. To send a line to
any other port could disturb what listens: a collective's rendezvous is a port too.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gpudeck.contract.serving import EVERY_S, MOST_SERVERS, ServingSample

from ..tasks import processes
from .listeners import trouble_of
from .serving_core import ServingAddress, ServingCounters, address_of, sample_of
from .serving_fetch import ServingUnreadableError, fetch

CLIMB_MAX = 8

ServingTask = tuple[str, int]  # the id of a task, its process
Fetch = Callable[[int, str], str]


class ServingWatch:
    """Watch of model servers. The node's thread calls `set_tasks`; `samples` has what was read
    last."""

    def __init__(self, proc: Path = Path("/proc"), get: Fetch = fetch) -> None:
        self._proc, self._get = proc, get
        self._tasks: tuple[ServingTask, ...] = ()
        self._before: dict[str, ServingCounters] = {}
        self._stopping = threading.Event()
        self.samples: tuple[ServingSample, ...] = ()
        self._thread: threading.Thread | None = None

    def set_tasks(self, tasks: Iterable[ServingTask]) -> None:
        self._tasks = tuple(dict.fromkeys(tasks))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="serving", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            self.step()

    def step(self) -> None:
        samples: dict[tuple[int, int], ServingSample] = {}
        counters: dict[str, ServingCounters] = {}
        for task_id, pid in self._tasks:
            if len(samples) >= MOST_SERVERS:
                break
            server = self._server_of(pid)
            # The first of a server's workers represents it.
            if server is None or (key := (server[0], server[1].port)) in samples:
                continue
            samples[key] = self._read(task_id, *server, counters)
        self._before = counters
        self.samples = tuple(samples.values())

    def _read(self, task_id: str, pid: int, address: ServingAddress,
              counters: dict[str, ServingCounters]) -> ServingSample:
        engine = address.engine
        trouble = trouble_of(pid, address.port, self._proc)
        if trouble:
            return ServingSample(task_id, engine.name, trouble)
        try:
            text = self._get(address.port, engine.path)
        except ServingUnreadableError as error:
            return ServingSample(task_id, engine.name, str(error)[:256])
        sample, counters[task_id] = sample_of(task_id, engine, text, time.monotonic(),
                                              self._before.get(task_id))
        return sample

    def _server_of(self, pid: int) -> tuple[int, ServingAddress] | None:
        """Return the server that a process is or descends from. The server itself often holds no
        GPU: its workers are its children."""
        here = pid
        for _ in range(CLIMB_MAX):
            summary = processes.about(here, self._proc)
            address = None if summary is None else address_of(summary.words)
            if address is not None:
                return here, address
            row = processes.row_of(here, self._proc)
            if row is None or row.parent <= 2:
                return None
            here = row.parent
        return None
