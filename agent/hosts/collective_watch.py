"""Watch of jobs that look stuck: their NCCL is asked which rank the others wait for, in separate
threads, so that a service that does not answer delays nothing else, and few others.

A job whose boards do not look stuck is never asked. The port is asked only where the kernel says
that one of the job's own processes listens there, and believed only where a rank is one of them.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gpudeck.contract.collectives import MOST_JOBS, CollectiveSample

from ..tasks import processes
from . import ras_query
from .listeners import answers, listens, trouble_of
from .ras_core import (
    NOBODYS,
    OTHER_JOB,
    PORT,
    RasUnreadableError,
    StandstillTracker,
    SuspectJob,
    parse,
    pids_of,
    port_of,
    standstill,
)

LOOK_EVERY_S = 2.0
SUSPECT_S = 15.0  # before a job is asked for the first time
ASK_EVERY_S = 30.0
MOST_AT_ONCE = 4  # each may hold an answer of ras_query.MOST_BYTES
VARIABLE, ENVIRON_BYTES = b"NCCL_RAS_ADDR=", 131_072

Ask = Callable[[int, ras_query.Meant], bytes]
Start = Callable[[Callable[[], None]], None]


def in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="collective", daemon=True).start()


@dataclass(slots=True)
class WatchedJob:
    since: float
    asked_at: float | None = None
    tracker: StandstillTracker = field(default_factory=StandstillTracker)
    sample: CollectiveSample | None = None
    is_asked: bool = False  # now

    def is_due(self, now: float) -> bool:
        if self.asked_at is None:
            return now - self.since >= SUSPECT_S
        return not self.is_asked and now - self.asked_at >= ASK_EVERY_S

    @property
    def turn(self) -> tuple[bool, float]:
        """Order among those that are due: whose NCCL could not be read last time waits for the
        others, so that services that hang delay only each other."""
        return (self.sample is not None and self.sample.trouble != "",
                self.since if self.asked_at is None else self.asked_at)


class CollectiveWatch:
    """The node's thread calls `set_suspects`; `samples` has what was read last."""

    def __init__(self, proc: Path = Path("/proc"), ask: Ask = ras_query.ask,
                 clock: Callable[[], float] = time.monotonic, start: Start = in_thread) -> None:
        """`start`: runs a query, besides this thread."""
        self._proc, self._ask, self._clock, self._start = proc, ask, clock, start
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._suspects: tuple[SuspectJob, ...] = ()
        self._jobs: dict[str, WatchedJob] = {}
        self._stopping = threading.Event()
        self.samples: tuple[CollectiveSample, ...] = ()
        self._thread: threading.Thread | None = None

    def set_suspects(self, suspects: Iterable[SuspectJob]) -> None:
        self._suspects = tuple(suspects)[:MOST_JOBS]
        if self._suspects and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="collectives", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            self.step()

    def step(self) -> None:
        now, suspects = self._clock(), self._suspects
        self._jobs = {job.id: self._jobs.get(job.id) or WatchedJob(now) for job in suspects}
        due = [(self._jobs[job.id], job) for job in suspects if self._jobs[job.id].is_due(now)]
        for entry, job in sorted(due, key=lambda pair: pair[0].turn):
            if not self._room.acquire(blocking=False):
                break
            entry.asked_at, entry.is_asked = now, True
            self._start(partial(self._query, entry, job))
        self.samples = tuple(entry.sample for entry in self._jobs.values()
                             if entry.sample is not None)

    def _query(self, entry: WatchedJob, job: SuspectJob) -> None:
        try:
            entry.sample = self._read(job, entry.tracker)
        finally:
            entry.is_asked = False
            self._room.release()

    def _read(self, job: SuspectJob, tracker: StandstillTracker) -> CollectiveSample | None:
        task_id, trouble = job.tasks[0][0], ""
        pids = [pid for _, pid in job.tasks]
        for pid in pids:  # any process that listens there speaks for all ranks
            port = self._port(pid)
            trouble = trouble_of(pid, port, self._proc)
            if trouble:
                continue
            is_listener = listens(pids, port, self._proc)
            if not is_listener:
                return CollectiveSample(task_id, NOBODYS if is_listener is None else OTHER_JOB)
            try:
                communicators = parse(self._ask(port, partial(self._answers, pids, port)))
            except RasUnreadableError as error:
                return CollectiveSample(task_id, str(error)[:256])
            if not pids_of(communicators) & self._inner_pids(job):
                return CollectiveSample(task_id, OTHER_JOB)
            return standstill(task_id, communicators,
                              tracker.update(communicators, self._clock()))
        return CollectiveSample(task_id, trouble)

    def _answers(self, pids: Sequence[int], port: int, client_port: int) -> bool:
        return answers(pids, port, client_port, self._proc)

    def _port(self, pid: int) -> int:
        """Return the port that its environment names, which is all that is read of it."""
        try:
            with open(self._proc / str(pid) / "environ", "rb") as file:
                words = file.read(ENVIRON_BYTES).split(b"\0")
        except OSError:
            return PORT
        address = next((word.removeprefix(VARIABLE) for word in words
                        if word.startswith(VARIABLE)), b"")
        return port_of(os.fsdecode(address)) or PORT

    def _inner_pids(self, job: SuspectJob) -> set[int]:
        """Return the pids of its processes as they know them themselves."""
        inner_pids = set()
        for _, pid in job.tasks:
            try:
                status = (self._proc / str(pid) / "status").read_bytes()
                inner_pids.add(int(processes.status_fields(status)[b"NSpid"].split()[-1]))
            except (OSError, KeyError, IndexError, ValueError):
                continue
        return inner_pids
