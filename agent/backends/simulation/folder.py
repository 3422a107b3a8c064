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
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from ...tasks.task_table import boot_id, read_stat
from .board import SimulatedBoardLimits
from .control import SimulationControl, parse
from .jobs import SimulatedJob
from .world import Kept, LiveJob, TaskState

LOOK_EVERY_S = 0.25

_LIMITS = msgspec.json.Decoder(dict[str, SimulatedBoardLimits])
_JOBS = msgspec.json.Decoder(tuple[SimulatedJob, ...])
_KEPT: msgspec.json.Decoder[Kept] = msgspec.json.Decoder(Kept)
PROC = Path("/proc")


class SimulationControlFile:
    """The last good content of `control.json`; a broken one is told of once and changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._looked_at = -1.0
        self._control = SimulationControl()

    def now(self) -> SimulationControl:
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            self._look()
        return self._control

    def _look(self) -> None:
        try:
            found = os.stat(self._path)
        except OSError:
            self._seen, self._control = None, SimulationControl()
            return
        # A rename in place keeps neither inode nor time; a rewrite changes time or size.
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if stamp != self._seen:
            self._seen = stamp
            self._read()

    def _read(self) -> None:
        try:
            control, said = parse(self._path.read_text())
            changed_at = 0.0 if self._seen is None else self._seen[0] / 1e9
            self._control = replace(control, changed_at=changed_at)
        except (OSError, ValueError, RecursionError) as error:
            said = [f"not understood, the former one stays in force: {error}"]
        for sentence in said:
            print(f"{self._path.name}: {sentence}", file=sys.stderr, flush=True)


def jobs_path(folder: Path, node: str) -> Path:
    return folder / "world" / f"{node}.jobs"


class SimulatedJobsFile:
    """The real processes of one node, and which of them are still there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._jobs: tuple[SimulatedJob, ...] | None = None

    def lives(self) -> tuple[LiveJob, ...] | None:
        """None: no such file, the node has no real processes."""
        self._look()
        if self._jobs is None:
            return None
        found = ((job, state_of(job.pid, job.start_ticks)) for job in self._jobs)
        return tuple(LiveJob(job, state) for job, state in found if state is not None)

    def _look(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = found.st_mtime_ns, found.st_ino
            if stamp != self._seen:
                self._jobs = _JOBS.decode(self._path.read_bytes())
                self._seen = stamp
        except FileNotFoundError:
            self._jobs = self._seen = None


def limits_path(folder: Path, node: str) -> Path:
    return folder / "world" / f"{node}.limits"


class SimulatedLimitsFile:
    """What was set on the Gpus of one node, by their UUID."""

    def __init__(self, folder: Path, node: str) -> None:
        self._folder, self._node = folder, node
        self._seen: tuple[int, int] | None = None
        self._limits: dict[str, SimulatedBoardLimits] = {}

    def now(self) -> dict[str, SimulatedBoardLimits]:
        try:
            found = os.stat(limits_path(self._folder, self._node))
            stamp: tuple[int, int] | None = (found.st_mtime_ns, found.st_ino)
        except FileNotFoundError:
            stamp = None
        if stamp != self._seen:
            self._seen = stamp
            self._limits = read_limits(self._folder, self._node)
        return self._limits

    def forget(self) -> None:
        """A driver that is loaded anew knows of none."""
        limits_path(self._folder, self._node).unlink(missing_ok=True)


def read_limits(folder: Path, node: str) -> dict[str, SimulatedBoardLimits]:
    try:
        return _LIMITS.decode(limits_path(folder, node).read_bytes())
    except FileNotFoundError:
        return {}


def write_limits(folder: Path, node: str, limits: dict[str, SimulatedBoardLimits]) -> None:
    renew(limits_path(folder, node), msgspec.json.encode(limits))


def write_jobs(folder: Path, node: str, jobs: tuple[SimulatedJob, ...]) -> None:
    renew(jobs_path(folder, node), msgspec.json.encode(jobs))


def write_tasks(folder: Path, jobs: dict[str, tuple[SimulatedJob, ...]]) -> None:
    """The real processes of all nodes, for `demo.json`. Those that stand alone come first: whoever
    takes any task takes no others with it."""
    tasks = [{"id": task_id(job), "node": node, "pid": job.pid, "kind": job.kind,
              "job": job.job_id, "rank": job.rank, "workers": job.workers,
              "ignores_sigterm": job.ignores_sigterm}
             for node, theirs in jobs.items() for job in theirs]
    tasks.sort(key=lambda task: task["job"] != task["id"])
    renew(folder / "world" / "tasks.json", msgspec.json.encode(tasks))


def read_energy(folder: Path, node: str) -> Kept | None:
    try:
        return _KEPT.decode((folder / "world" / f"{node}.energy").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def write_energy(folder: Path, node: str, at: float, joules: list[float]) -> None:
    renew(folder / "world" / f"{node}.energy", msgspec.json.encode((at, joules)))


def renew(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f"{path.suffix}.new")
    new.write_bytes(content)
    new.replace(path)


def state_of(pid: int, start_ticks: int) -> TaskState | None:
    """Of that very process; None when it has ended, even if its pid lives on in another."""
    stat = read_stat(PROC, pid)
    if stat is None or stat.start_ticks != start_ticks or stat.state == "zombie":
        return None
    return stat.state


def task_id(job: SimulatedJob) -> str:
    return identity(job.pid, job.start_ticks)


def identity(pid: int, start_ticks: int) -> str:
    """As tasks.py makes it."""
    return f"{_boot_id()[:8]}-{pid}-{start_ticks}"


_boot_id = cache(boot_id)
