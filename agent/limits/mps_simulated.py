"""MPS of a simulated node, asked in this very process: no program is started for it."""

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ..backends.simulation.folder import SimulatedJobsFile, SimulationControlFile
from ..backends.simulation.jobs import SimulatedJob
from ..backends.simulation.mps_answers import SimulatedMpsDaemon, SimulatedMpsState
from ..backends.simulation.mps_state import (
    SimulatedMpsRecord,
    client,
    clients_of,
    mps_file,
    new_server,
    pipes_path,
)
from ..backends.simulation.reader import parse_options
from ..backends.simulation.world import SimulationOptions
from .mps import LocalMpsDaemons, path_trouble


class _NodeMpsDaemon(SimulatedMpsDaemon):
    def __init__(self, record: SimulatedMpsRecord, jobs: Callable[[], Sequence[SimulatedJob]],
                 options: SimulationOptions) -> None:
        super().__init__(record.default, record.of)
        self._record = record
        self._jobs = jobs
        self._options = options

    def look(self) -> SimulatedMpsState:
        """Return the state now. A server begins with the first client, and outlives them all."""
        record, pids = self._record, [job.pid for job in self._clients()]
        if record.server is None and pids:
            record.server = new_server(record, self._options.seed, self._options.node)
        return SimulatedMpsState({} if record.server is None else {record.server: pids})

    def let_go(self, server: int, pid: int) -> None:
        self._record.lose(client(job) for job in self._clients() if job.pid == pid)

    def end_servers(self) -> None:
        self._record.lose(map(client, self._clients()))

    def _clients(self) -> list[SimulatedJob]:
        return clients_of(self._record, self._jobs())


class SimulatedMpsControl:
    def __init__(self, options: SimulationOptions, folder: Path) -> None:
        self.pipes = pipes_path(folder, options.node)
        self._options = options
        self._socket = self.pipes / "control"
        self._file = mps_file(folder, options.node)
        self._jobs_file = SimulatedJobsFile(folder, options.node)
        self._control = SimulationControlFile(folder / "control.json")
        self._one_at_a_time = threading.Lock()
        record = self._file.now() or SimulatedMpsRecord()
        self._file.keep(record)
        if record.is_up:
            self._listen()

    def is_installed(self) -> bool:
        return True

    def has_server(self) -> bool:
        return True

    def log(self) -> Path | None:
        return None

    def uid_of(self, server: int) -> int | None:
        """Return who runs the server: the user of its clients, like all the demo's processes."""
        return os.geteuid()

    def ask(self, pipes: Path | None, command: str, within_s: float) -> str | None:
        if pipes not in (None, self.pipes) or not self._one_at_a_time.acquire(timeout=within_s):
            return None
        try:
            record = self._now()
            return self._answer(record, command) if record.is_up else None
        finally:
            self._one_at_a_time.release()

    def start(self, pipes: Path | None) -> tuple[int, str]:
        if pipes not in (None, self.pipes):
            return 1, f"the one daemon of a simulated node is in {self.pipes}"
        with self._one_at_a_time:
            record = self._now()
            if record.is_up:
                return 1, "An instance of this daemon is already running"
            self._begin(record)
        return 0, ""

    def _answer(self, record: SimulatedMpsRecord, command: str) -> str:
        before = msgspec.json.encode(record)
        daemon = _NodeMpsDaemon(record, self._jobs, self._options)
        answer = daemon.answer(command)
        if daemon.is_over:
            record.is_up, record.server = False, None
            self._socket.unlink(missing_ok=True)
        if msgspec.json.encode(record) != before:
            self._file.keep(record)
        return answer

    def _jobs(self) -> list[SimulatedJob]:
        return [live.job for live in self._jobs_file.lives() or ()]

    def _now(self) -> SimulatedMpsRecord:
        """Return the record, after control.json: an order in it is obeyed once, when it appears."""
        record = self._file.now() or SimulatedMpsRecord()
        orders = self._control.now().nodes.get(self._options.node)
        is_killed = orders is not None and orders.mps == "dead"
        if is_killed != record.is_killed:
            record.is_killed = is_killed
            if is_killed:
                record.is_up = False  # its socket stays, as after kill -9
            elif not record.is_up and self._socket.exists():
                record.begin(time.time())
            self._file.keep(record)
        return record

    def _begin(self, record: SimulatedMpsRecord) -> None:
        record.begin(time.time())
        self._file.keep(record)
        self._listen()

    def _listen(self) -> None:
        """Create a socket file for those who look for one. Nothing is lost if that fails."""
        with suppress(OSError):
            self.pipes.mkdir(parents=True, exist_ok=True)
            os.mknod(self._socket, stat.S_IFSOCK | 0o666)


def open_mps(options: str) -> LocalMpsDaemons | None:
    """Open the MPS of a simulated node. None: no MPS is simulated there."""
    parsed = parse_options(options)
    if not parsed.mps or parsed.world is None:
        return None
    if path_trouble(pipes_path(parsed.world, parsed.node)):
        return LocalMpsDaemons("")  # a folder whose name is too long for any daemon
    front = SimulatedMpsControl(parsed, parsed.world)
    return LocalMpsDaemons(pipes=front.pipes, is_alone=True, front=front)
