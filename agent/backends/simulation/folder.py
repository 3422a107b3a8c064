"""The files of a simulated fleet: what people set, which real processes are its jobs, energy.

    DIR/control.json       set by people and tests, read by every node
    DIR/world/NODE.jobs    the real processes that are this node's jobs, written by their keeper
    DIR/world/tasks.json   their ids, nodes and pids, for the demo
    DIR/world/NODE.energy  the energy counters, so that they go on after a restart
    DIR/world/NODE.limits  power caps, clock locks, modes, as a driver keeps them until reloaded
    DIR/world/NODE.mps     see mps_state.py
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ...tasks.boot_id import boot_id
from ...tasks.processes import read_stat
from .board import SimulatedBoardLimits
from .control import SimulationControl, parse
from .jobs import SimulatedJob
from .world import LiveJob, StoredEnergy, TaskState

LOOK_EVERY_S = 0.25

_LIMITS = msgspec.json.Decoder(dict[str, SimulatedBoardLimits])
_JOBS = msgspec.json.Decoder(tuple[SimulatedJob, ...])
_ENERGY: msgspec.json.Decoder[StoredEnergy] = msgspec.json.Decoder(StoredEnergy)
PROC = Path("/proc")

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """Content of a file, read again whenever it is another. No path: it is never there."""

    def __init__(self, path: Path | None, read: Callable[[Path], Content]) -> None:
        self.path = path
        self.changed_at = 0.0  # UTC; when the file was written
        self._read = read
        self._stamp: tuple[int, int, int] | None = None
        self._content: Content | None = None

    def now(self) -> Content | None:
        """Return the content; None: there is no such file."""
        if self.path is None:
            return None
        try:
            info = os.stat(self.path)
            # A rename in place keeps neither inode nor time; a rewrite changes time or size.
            stamp = info.st_mtime_ns, info.st_size, info.st_ino
            if stamp != self._stamp:
                self.changed_at = info.st_mtime_ns / 1e9
                self._content, self._stamp = self._read(self.path), stamp
        except FileNotFoundError:
            self._content = self._stamp = None
        return self._content

    def keep(self, content: Content) -> None:
        if self.path is not None:
            renew(self.path, msgspec.json.encode(content))

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class SimulationControlFile:
    """The last good content of `control.json`; a broken one is reported once and changes
    nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = WatchedFile(path, self._read)
        self._looked_at = -1.0
        self._control = SimulationControl()

    def now(self) -> SimulationControl:
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            try:
                self._control = self._file.now() or SimulationControl()
            except OSError:  # its folder is not for us
                self._control = SimulationControl()
        return self._control

    def _read(self, path: Path) -> SimulationControl:
        control = self._control
        try:
            control, warnings = parse(path.read_text())
            control = replace(control, changed_at=self._file.changed_at)
        except (OSError, ValueError, RecursionError) as error:
            warnings = [f"not understood, the former one stays in force: {error}"]
        for sentence in warnings:
            print(f"{path.name}: {sentence}", file=sys.stderr, flush=True)
        return control


def control_file(world: Path | None) -> SimulationControlFile:
    return SimulationControlFile(world and world / "control.json")


def node_path(world: Path | None, node: str, kind: str) -> Path | None:
    """Return the path; None: this node lives without files."""
    return None if world is None else world / "world" / f"{node}.{kind}"


class SimulatedJobsFile(WatchedFile[tuple[SimulatedJob, ...]]):
    """The real processes of one node, and which of them are still there."""

    def __init__(self, world: Path | None, node: str) -> None:
        super().__init__(node_path(world, node, "jobs"),
                         lambda path: _JOBS.decode(path.read_bytes()))

    def lives(self) -> tuple[LiveJob, ...] | None:
        """Return the live jobs; None: no such file, the node has no real processes."""
        jobs = self.now()
        if jobs is None:
            return None
        states = ((job, state_of(job.pid, job.start_ticks)) for job in jobs)
        return tuple(LiveJob(job, state) for job, state in states if state is not None)


def limits_file(
    world: Path | None, node: str
) -> WatchedFile[dict[str, SimulatedBoardLimits]]:
    """Return the file of what was set on the GPUs of one node, by their UUID."""
    return WatchedFile(node_path(world, node, "limits"),
                       lambda path: _LIMITS.decode(path.read_bytes()))


def energy_file(world: Path | None, node: str) -> WatchedFile[StoredEnergy | None]:
    return WatchedFile(node_path(world, node, "energy"), _read_energy)


def _read_energy(path: Path) -> StoredEnergy | None:
    try:
        return _ENERGY.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def write_jobs(folder: Path, node: str, jobs: tuple[SimulatedJob, ...]) -> None:
    SimulatedJobsFile(folder, node).keep(jobs)


def write_tasks(folder: Path, jobs: dict[str, tuple[SimulatedJob, ...]]) -> None:
    """Write the real processes of all nodes, for `demo.json`. Those that stand alone come first:
    acting on one of those affects no other task."""
    tasks = [{"id": task_id(job), "node": node, "pid": job.pid, "kind": job.kind,
              "job": job.job_id, "rank": job.rank, "workers": job.workers,
              "ignores_sigterm": job.ignores_sigterm}
             for node, node_jobs in jobs.items() for job in node_jobs]
    tasks.sort(key=lambda task: task["job"] != task["id"])
    renew(folder / "world" / "tasks.json", msgspec.json.encode(tasks))


def renew(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f"{path.suffix}.new")
    new.write_bytes(content)
    new.replace(path)


def state_of(pid: int, start_ticks: int) -> TaskState | None:
    """Return the state of that very process; None when it has ended, even if its pid lives on in
    another."""
    stat = read_stat(PROC, pid)
    if stat is None or stat.start_ticks != start_ticks or stat.state == "zombie":
        return None
    return stat.state


def task_id(job: SimulatedJob) -> str:
    return identity(job.pid, job.start_ticks)


def identity(pid: int, start_ticks: int) -> str:
    """Return the id that tasks/task_table.py makes."""
    return f"{_boot_id()[:8]}-{pid}-{start_ticks}"


_boot_id = cache(boot_id)
