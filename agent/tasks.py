"""From a pid to a Task: who it is, whose it is, since when; with processes.py the only reader of
/proc."""

import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gpudeck.wire import Task

from .backends import ProcessReading
from .jobs import root_of
from .managers import WHOLE_JOBS, manager_of
from .processes import about, ourselves, own_manager, row_of
from .redact import redact
from .sampler import Seen

COMMAND_MAX = 1_024

State = Literal["running", "paused", "uninterruptible", "zombie"]
# `t`: held by a debugger. Everything that can still run counts as running, asleep or not.
STATES: dict[str, State] = {"T": "paused", "t": "paused", "D": "uninterruptible", "Z": "zombie",
                            "X": "zombie"}

@dataclass(frozen=True, slots=True)
class Stat:
    state: State
    start_ticks: int


class TaskTable:
    """Remembers what it has read: a process is asked for its command line once."""

    def __init__(self, boot_id: str, proc: Path = Path("/proc")) -> None:
        self._boot_id = boot_id
        self._proc = proc
        self._known: dict[tuple[int, int], Task] = {}

    def describe(self, processes: Sequence[ProcessReading]) -> tuple[Seen, ...]:
        seen = tuple(self._seen(process) for process in processes)
        present = {(each.task.pid, each.task.start_ticks) for each in seen}
        self._known = {key: task for key, task in self._known.items() if key in present}
        return seen

    def _seen(self, process: ProcessReading) -> Seen:
        if process.task is not None:
            return self._use(process.task, process, process.state)
        if process.start_ticks is not None:  # the backend knows better than our /proc
            task = self._remembered(process, process.start_ticks, self._as_told)
            return self._use(task, process, process.state)
        stat = read_stat(self._proc, process.pid)
        if stat is None:
            return self._use(self._gone(process), process, None)
        task = self._remembered(process, stat.start_ticks, self._from_proc)
        return self._use(task, process, stat.state)

    def _use(self, task: Task, process: ProcessReading, state: State | None) -> Seen:
        return Seen(task, process.gpu_uuid, process.mem_used_bytes, process.sm_pct, state)

    def _remembered(
        self, process: ProcessReading, start_ticks: int,
        make: Callable[[ProcessReading, int], Task],
    ) -> Task:
        key = (process.pid, start_ticks)
        if key not in self._known:
            self._known[key] = make(process, start_ticks)
        return self._known[key]

    def _as_told(self, process: ProcessReading, start_ticks: int) -> Task:
        return self._task(process, start_ticks, process.started_at, process.user, process.command)

    def _from_proc(self, process: ProcessReading, start_ticks: int) -> Task:
        folder = self._proc / str(process.pid)
        return self._task(
            process, start_ticks, started_at(self._proc, start_ticks), owner(folder),
            command_line(folder), manager(folder),
        )

    def _gone(self, process: ProcessReading) -> Task:
        """The driver still lists it and /proc does not: it is just ending, or it lives in a PID
        namespace that we do not see."""
        for (pid, _), task in self._known.items():
            if pid == process.pid:
                return task
        return self._task(process, 0, None, None, None)

    def _task(
        self, process: ProcessReading, start_ticks: int, began: float | None,
        user: str | None, command: str | None, managed_by: str | None = None,
    ) -> Task:
        kind = process.kind
        if command is not None and "nvidia-cuda-mps-server" in command.split(" ", 1)[0]:
            kind = "mps_server"
        return Task(
            id=self._id(process.pid, start_ticks), pid=process.pid,
            start_ticks=start_ticks, started_at=began, user=(user or None) and user[:128],
            command=command and redact(command)[:COMMAND_MAX], kind=kind, manager=managed_by,
            job_id=self._job_id(process.pid, start_ticks, managed_by),
        )

    def _id(self, pid: int, start_ticks: int) -> str:
        return f"{self._boot_id[:8]}-{pid}-{start_ticks}"

    def _job_id(self, pid: int, start_ticks: int, managed_by: str | None) -> str:
        """As it was when the Task was first seen; an act looks again."""
        if managed_by is not None and managed_by.startswith(WHOLE_JOBS) and (
                managed_by != own_manager()):
            return managed_by[:128]
        row = row_of(pid, self._proc)
        if row is None or row.start_ticks != start_ticks:
            return self._id(pid, start_ticks)
        root = root_of(pid, lambda each: row_of(each, self._proc),
                       lambda each: about(each, self._proc), ourselves()) or row
        return self._id(root.pid, root.start_ticks)


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def read_stat(proc: Path, pid: int) -> Stat | None:
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in brackets may hold brackets and blanks itself: split after the last one.
    fields = text.rpartition(")")[2].split()
    try:
        return Stat(STATES.get(fields[0], "running"), int(fields[19]))
    except (IndexError, ValueError):
        return None


@lru_cache(maxsize=4)
def _booted_at(proc: Path) -> float | None:
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def started_at(proc: Path, start_ticks: int) -> float | None:
    booted = _booted_at(proc)
    return None if booted is None else booted + start_ticks / os.sysconf("SC_CLK_TCK")


def owner(folder: Path) -> str | None:
    try:
        uid = folder.stat().st_uid
    except OSError:
        return None
    return _user_name(uid)


@lru_cache(maxsize=1_024)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def command_line(folder: Path) -> str | None:
    """None for what has none: a zombie, or a process we may not look at."""
    try:
        raw = (folder / "cmdline").read_bytes()[: COMMAND_MAX * 8]
    except OSError:
        return None
    words = raw.rstrip(b"\0").split(b"\0")
    return " ".join(word.decode(errors="replace") for word in words) or None


def manager(folder: Path) -> str | None:
    try:
        paths = [line.split(":", 2)[2] for line in (folder / "cgroup").read_text().splitlines()]
    except (OSError, IndexError):
        return None
    return next((found for path in paths if (found := manager_of(path))), None)
