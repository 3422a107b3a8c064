"""Processes as the kernel shows them: the process table, and who exactly a process is.

Read through the open folder of a process, so that all answers are of the same one: `look` for what
is shown of a Task, `facts` for what an action compares.
"""

import errno
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from gpudeck.contract.actions import ProcessIdentity

from .jobs import ProcessSummary, ProcessTableRow
from .managers import SOME_SLURM_JOB, CgroupMembership, paths_of, place_of, scheduler_of
from .owners import VARIABLES
from .privileges import in_host_namespace
from .redact import redact_words

PROC = Path("/proc")
# Of pidfd_open: EINVAL before kernel 6.9, ENOENT since: the number is that of a thread.
NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
PF_KTHREAD = 0x00200000
# Longer ones, of containers, would make a preview of hundreds of processes too big to send.
CGROUP_MAX = 128
WORDS_MAX = 4_096
STAT_BYTES = 4_096  # fifty numbers and a name of 64 bytes: the kernel gives all at once
PATH_MAX = 512


ENVIRON_BYTES = 1_000_000
_WANTED = frozenset(name.encode() for name in VARIABLES)
COMMAND_MAX = 1_024
STEP = "slurmstepd"
STEP_TITLE = re.compile(r"\[([0-9]{1,18})\.")
STEPS_KNOWN_S = 2.0

State = Literal["running", "paused", "uninterruptible", "zombie"]
# `t`: held by a debugger. Everything that can still run counts as running, asleep or not.
STATES: dict[str, State] = {"T": "paused", "t": "paused", "D": "uninterruptible",
                            "Z": "zombie", "X": "zombie"}


@dataclass(frozen=True, slots=True)
class ProcessRunState:
    state: State
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessDetails:
    """A process as its folder in /proc shows it, read once."""

    row: ProcessTableRow
    uid: int
    command: str | None  # without secrets
    words: tuple[str, ...]
    program: str
    env: Mapping[str, str]
    place: CgroupMembership
    gids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Facts of a process, as far as an action needs them. None: could not be read."""

    row: ProcessTableRow
    identity: ProcessIdentity
    cgroups: str
    words: tuple[str, ...]
    executable_path: str | None
    oom_score_adj: int | None
    caught_signals: int  # mask of the signals that it handles itself
    manager: str | None
    group: str | None = None  # the cgroup of all that it manages with this one


def table(proc: Path = PROC) -> dict[int, ProcessTableRow]:
    """Return all processes. A process may end while we read: then it is not in the table."""
    names = [name for name in os.listdir(proc) if name.isdigit()]
    rows = (row_of(int(name), proc) for name in names)
    return {row.pid: row for row in rows if row is not None}


def row_of(pid: int, proc: Path = PROC) -> ProcessTableRow | None:
    try:
        # Every task, every other second: a Path and a file object cost four times as much.
        file = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return row_in(pid, os.read(file, STAT_BYTES))
    except OSError:
        return None
    finally:
        os.close(file)


def about(pid: int, proc: Path = PROC) -> ProcessSummary | None:
    """Read what climbing from a task to the root of its Job needs; cheap."""
    try:
        folder = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        uid, _ = status_of(read_in("status", folder))
        return ProcessSummary(uid, words_in(folder))
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(folder)


def _digest(text: str) -> str:
    import hashlib  # OpenSSL with it; hardly ever needed, and `gpudeck top` must be there at once

    return hashlib.sha256(text.encode()).hexdigest()


def facts(pid: int, folder: int, pidfd: int) -> ProcessFacts | None:
    """Read its facts; `folder` is the open /proc/PID, `pidfd` its handle. None: it has ended."""
    try:
        row = row_in(pid, read_in("stat", folder))
        uid, caught_signals = status_of(read_in("status", folder))
        cgroups = read_in("cgroup", folder).decode(errors="replace")
    except (OSError, ValueError, IndexError):
        return None
    if row is None:
        return None
    executable, path = _executable(folder)
    whole = ";".join(sorted(cgroups.rstrip("\n").split("\n")))
    identity = ProcessIdentity(
        pid=pid, start_ticks=row.start_ticks, uid=uid, executable=executable,
        cgroup=whole if len(whole) <= CGROUP_MAX else _digest(whole),
        pidfs_inode=os.fstat(pidfd).st_ino if has_pidfs() else None,
    )
    place = place_of(paths_of(cgroups))
    return ProcessFacts(row, identity, whole, words_in(folder), path, _oom_score_adj(folder),
                        caught_signals, place.manager if place.group is not None else (
                            _scheduler(pid, folder, uid) or place.manager), place.group)


def _scheduler(pid: int, folder: int, uid: int) -> str | None:
    """Return the manager of a process that is in no group of a scheduler: by what started it, or by
    its variables; where they cannot be read, any job of its user may be the one."""
    steps, env = slurm_steps(), _environment(folder)
    if pid in steps.jobs or env is None:
        return steps.jobs.get(pid, SOME_SLURM_JOB if uid in steps.users else None)
    return scheduler_of(env)


def age_s(start_ticks: int) -> float:
    """Return its age in seconds, by the clock that start times are counted on: it goes on during
    suspend, and nobody sets it."""
    return uptime_s() - began_s(start_ticks)


def uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def began_s(start_ticks: int) -> float:
    """Return when it began, in seconds since the start of the machine."""
    return start_ticks / os.sysconf("SC_CLK_TCK")


@cache
def has_pidfs() -> bool:
    """Return whether each pidfd has a unique inode, never used again before a reboot: from kernel
    6.9 on. Older kernels give every anonymous file the same."""
    pidfd, other = os.pidfd_open(os.getpid()), os.eventfd(0)
    try:
        one, two = os.fstat(pidfd), os.fstat(other)
        return (one.st_dev, one.st_ino) != (two.st_dev, two.st_ino)
    finally:
        os.close(pidfd)
        os.close(other)


FOREIGN_PIDS = ("Which tasks are on the GPUs is not known here: this is a PID namespace of a "
                "container, where the driver's process ids have no meaning. Start it with hostPID: "
                "true (Kubernetes) or --pid=host (Docker) to see them.")


def namespace_trouble(proc: Path = PROC) -> str:
    """Return why tasks may be missing or nameless here; "": all can be seen (pitfalls.md 8)."""
    if not in_host_namespace(proc):
        return ("this agent has its own PID namespace: the driver does not list the processes of "
                "the machine to it, and their memory counts as unattributed; start "
                "it with hostPID: true (Kubernetes) or --pid=host (Docker).")
    if _hides_others(proc):
        return (f"{proc} is mounted with hidepid: tasks of other users have no owner and no "
                "command here; run the agent as root, or in the group that the mount's gid= names.")
    return ""


def _hides_others(proc: Path) -> bool:
    """Test what the mount does: its option has several spellings, and gid= may except us."""
    try:
        os.close(os.open(proc / "1/stat", os.O_RDONLY | os.O_CLOEXEC))
    except (FileNotFoundError, PermissionError):
        return True
    except OSError:
        return False
    return False


@dataclass(frozen=True, slots=True)
class SlurmSteps:
    """Processes that Slurm runs on this machine: below a slurmstepd of root's, one for each step of
    a job."""

    jobs: Mapping[int, str]  # manager of a process
    users: frozenset[int]


def slurm_steps(proc: Path = PROC) -> SlurmSteps:
    return _slurm_steps(proc, int(time.monotonic() / STEPS_KNOWN_S))


@lru_cache(maxsize=2)
def _slurm_steps(proc: Path, _moment: int) -> SlurmSteps:
    """Look for them once for all processes of one job, and soon again."""
    rows = table(proc)
    new = {pid: _job_of_step(pid, proc) for pid in rows
           if _comm(pid, proc) == STEP and _uid_of(pid, proc) == 0}
    jobs: dict[int, str] = {}
    while new:
        new = {row.pid: new[row.parent] for row in rows.values()
               if row.parent in new and row.pid not in jobs}
        jobs |= new
    return SlurmSteps(jobs, frozenset(
        uid for pid in jobs if (uid := _uid_of(pid, proc)) is not None))


def _job_of_step(pid: int, proc: Path) -> str:
    """Return the job of a step by its title, `slurmstepd: [12.batch]`."""
    try:
        title = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        title = ""
    match = STEP_TITLE.search(title)
    return f"slurm job {match[1]}" if match else SOME_SLURM_JOB


def _comm(pid: int, proc: Path) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def _uid_of(pid: int, proc: Path) -> int | None:
    try:
        return status_of((proc / str(pid) / "status").read_bytes())[0]
    except (OSError, ValueError, IndexError):
        return None


@cache
def own_manager() -> str | None:
    """Return what manages us too: it is no manager of a task, as all of this machine is inside
    it."""
    try:
        text = (PROC / "self/cgroup").read_text(errors="replace")
    except OSError:
        return None
    place, uid = place_of(paths_of(text)), os.geteuid()
    if place.group is not None:
        return place.manager
    folder = os.open(PROC / "self", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _scheduler(os.getpid(), folder, uid) or place.manager
    finally:
        os.close(folder)


def ourselves() -> frozenset[int]:
    """Return this process and its line of parents."""
    return _line_of(os.getpid(), os.getppid())


@lru_cache(maxsize=2)
def _line_of(pid: int, parent: int) -> frozenset[int]:
    pids = {pid}
    while parent > 0 and parent not in pids:
        pids.add(parent)
        row = row_of(parent)
        parent = 0 if row is None else row.parent
    return frozenset(pids)


def file_id(path: str | Path) -> str | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return f"{status.st_dev}:{status.st_ino}"


def row_in(pid: int, stat: bytes) -> ProcessTableRow | None:
    # The name in brackets may hold brackets and blanks itself: split after the last one.
    fields = stat.rpartition(b")")[2].split(maxsplit=20)
    try:
        return ProcessTableRow(pid, int(fields[1]), int(fields[3]), int(fields[19]),
                               fields[0].decode(),
                               bool(int(fields[6]) & PF_KTHREAD))
    except (IndexError, ValueError):
        return None


def read_in(name: str, folder: int, most: int = 65_536) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
        return file.read(most)


def status_fields(text: bytes) -> dict[bytes, bytes]:
    # A name may hold a carriage return, and no line feed.
    return dict(line.split(b":", 1) for line in text.split(b"\n") if b":" in line)


def status_of(text: bytes) -> tuple[int, int]:
    """Return the real uid, and the mask of caught signals. Not the owner of the folder: that is
    root for a process that may not be dumped."""
    fields = status_fields(text)
    return int(fields.get(b"Uid", b"").split()[0]), int(fields.get(b"SigCgt", b"0"), 16)


def _executable(folder: int) -> tuple[str | None, str | None]:
    """Return (device:inode, path). Others' need CAP_SYS_PTRACE; a kernel thread has none."""
    try:
        status = os.stat("exe", dir_fd=folder)
        path = os.fsencode(os.readlink("exe", dir_fd=folder))
        return f"{status.st_dev}:{status.st_ino}", path.decode(errors="replace")[:PATH_MAX]
    except OSError:
        return None, None


def words_in(folder: int) -> tuple[str, ...]:
    try:
        raw = read_in("cmdline", folder)[:WORDS_MAX]
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in raw.rstrip(b"\0").split(b"\0") if word)


def _oom_score_adj(folder: int) -> int | None:
    try:
        return int(read_in("oom_score_adj", folder))
    except (OSError, ValueError):
        return None


def look(pid: int, proc: Path = Path("/proc")) -> ProcessDetails | None:
    """Read it through the open folder, so that all is of one process; None: it has ended. What may
    not be read is not known, and takes nothing else with it."""
    try:
        folder = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        row = row_in(pid, _read("stat", folder))
        words = _split(_read("cmdline", folder, COMMAND_MAX * 8))
        if row is None:
            return None
        return ProcessDetails(
            row, _uid(folder), redact_words(words) or None, words, _program(folder, words),
            _environment(folder) or {},
            place_of(paths_of(_read("cgroup", folder).decode(errors="replace"))),
            _gids(_read("status", folder)))
    finally:
        os.close(folder)


def _read(name: str, folder: int, most: int = 65_536) -> bytes:
    try:
        return read_in(name, folder, most)
    except OSError:
        return b""


def _split(raw: bytes) -> tuple[str, ...]:
    """Split a command line. Empty for what has none: a zombie, or a process we may not look at."""
    if not raw:
        return ()
    return tuple(word.decode(errors="replace") for word in raw.rstrip(b"\0").split(b"\0"))


def _uid(folder: int) -> int:
    """Return its uid. The folder's own only if all else fails: that is root's for what may not be
    dumped."""
    try:
        return status_of(_read("status", folder))[0]
    except (ValueError, IndexError):
        return os.fstat(folder).st_uid


def _program(folder: int, words: Sequence[str]) -> str:
    try:
        path = os.fsencode(os.readlink("exe", dir_fd=folder)).decode(errors="replace")
    except OSError:
        path = words[0].split(" ", 1)[0] if words else ""
    return path.removesuffix(" (deleted)").rpartition("/")[2]


def _environment(folder: int) -> dict[str, str] | None:
    """Return the variables that are asked for, and no others. None: they may not be read."""
    try:
        whole = read_in("environ", folder, ENVIRON_BYTES)
    except PermissionError:
        return None
    except OSError:
        return {}
    variables = {}
    for line in whole.split(b"\0"):
        name, _, value = line.partition(b"=")
        if name in _WANTED and len(value) <= COMMAND_MAX:
            variables[name.decode()] = value.decode(errors="replace")
    if variables.get("HOSTNAME") == os.uname().nodename:  # a pod on the host's network
        del variables["HOSTNAME"]
    return variables


def _gids(status: bytes) -> tuple[int, ...]:
    """Return the process's own group, and those that it was given in addition."""
    fields = status_fields(status)
    words = (*fields.get(b"Gid", b"").split()[:1], *fields.get(b"Groups", b"").split())
    return tuple(dict.fromkeys(int(word) for word in words if word.isdigit()))


def read_stat(proc: Path, pid: int) -> ProcessRunState | None:
    row = row_of(pid, proc)
    return None if row is None else ProcessRunState(STATES.get(row.state, "running"),
                                                    row.start_ticks)


def command_line(pid: int) -> str | None:
    """Return its command line; None for what has none: a zombie, or a process we may not look
    at."""
    return " ".join(_words(pid)) or None


def shown_command(pid: int) -> str | None:
    """Return its command line without secrets."""
    return redact_words(_words(pid)) or None


def _words(pid: int) -> tuple[str, ...]:
    try:
        return _split(Path(f"/proc/{pid}/cmdline").read_bytes()[: COMMAND_MAX * 8])
    except OSError:
        return ()
