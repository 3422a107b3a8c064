"""Group the processes of a process table into Jobs. Pure.

A Job's root is found by climbing from a task's process to its parents, and its members are all
whose line of parents leads to the root. Climbing too far would end more than was meant, so it
stops early: at another user, at another session, at whatever people sit in front of, and at
everything that runs one task after another.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

CLIMB_MAX = 64

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "ash",
                    "busybox", "xonsh", "nu", "pwsh"))
# Beside these: a new session below one of them is still its work (torch's elastic agent gives
# each rank a session of its own).
LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "mpiexec.hydra",
                       "orterun", "prterun", "hydra_pmi_proxy", "prted", "orted"))
LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands")
SEATS = frozenset((
    "tmux", "tmux:", "screen", "SCREEN", "zellij", "byobu", "dtach", "abduco", "mosh-server",
    "script", "expect", "xterm", "gnome-terminal-server", "konsole", "alacritty", "kitty", "foot",
    "login", "sshd", "sshd-session", "sshd:", "su", "sudo", "doas", "runuser", "setpriv", "init",
    "systemd", "cron", "crond", "atd", "anacron", "supervisord", "runsv", "runsvdir",
    "s6-supervise", "s6-svscan", "dumb-init", "tini", "docker-init", "catatonit", "conmon",
    "containerd-shim", "containerd-shim-runc-v2", "slurmstepd", "slurmd", "slurmstepd:", "code",
    "code-server", "node", "pycharm", "rstudio-server", "rserver", "rsession", "emacs", "vim",
    "nvim", "raylet", "gcs_server", "dask", "dask-worker", "celery", "airflow", "prefect",
    "parallel", "xargs", "make", "task-spooler", "tsp", "pueued",
))
# As the beginning of a name, also of a script or module that an interpreter runs.
SEAT_PREFIXES = ("jupyter", "ipykernel", "colab", "marimo", "ray", "dask", "celery", "gpudeck")


@dataclass(frozen=True, slots=True)
class ProcessTableRow:
    """A line of the process table."""

    pid: int
    parent: int
    session: int
    start_ticks: int
    state: str  # the kernel's letter
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """Facts of a parent that climbing needs."""

    uid: int
    words: tuple[str, ...]  # of its command line


def root_of(
    pid: int,
    row_of: Callable[[int], ProcessTableRow | None],
    about: Callable[[int], ProcessSummary | None],
    own_pids: Container[int],
) -> ProcessTableRow | None:
    """Return the topmost process of the Job that `pid` belongs to. `own_pids`: never climbed
    into."""
    here, whose = row_of(pid), about(pid)
    if here is None or whose is None:
        return None
    for _ in range(CLIMB_MAX):
        parent = row_of(here.parent)
        if parent is None or parent.pid <= 2 or parent.is_kernel or parent.pid in own_pids:
            break
        above = about(parent.pid)
        if above is None or above.uid != whose.uid or is_seat(above.words):
            break
        if parent.session != here.session and not is_launcher(above.words):
            break
        if parent.start_ticks > here.start_ticks:  # its parent's pid has been reused
            break
        here = parent
    return here


def members(root: int, rows: Mapping[int, ProcessTableRow]) -> tuple[ProcessTableRow, ...]:
    """Return the root and all below it, parents before their children."""
    return below((root,), rows)


def below(roots: Iterable[int], rows: Mapping[int, ProcessTableRow]) -> tuple[ProcessTableRow, ...]:
    children: dict[int, list[ProcessTableRow]] = {}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row)
    descendants: dict[int, ProcessTableRow] = {pid: rows[pid] for pid in roots if pid in rows}
    queue = list(descendants)
    for pid in queue:
        for child in children.get(pid, ()):
            if child.pid not in descendants:
                descendants[child.pid] = child
                queue.append(child.pid)
    return tuple(descendants.values())


def one_tree(processes: Iterable[tuple[ProcessTableRow, int]]) -> tuple[ProcessTableRow, ...]:
    """Return these processes, which come with their uids, root first: where all descend from one of
    them and have one user. Else none: that is not proven."""
    pairs = [*processes]
    rows = {row.pid: row for row, _ in pairs}
    parents = {row.pid: rows[row.parent] for row in rows.values() if row.parent in rows}
    tree = below((pid for pid in rows if pid not in parents), rows)
    is_proven = (
        len(rows) - len(parents) == 1 and len(tree) == len(pairs)
        and len({uid for _, uid in pairs}) == 1
        # Else the pid of its parent has been reused.
        and all(parent.start_ticks <= rows[pid].start_ticks for pid, parent in parents.items()))
    return tree if is_proven else ()


def is_seat(words: tuple[str, ...]) -> bool:
    """Return whether people sit there, or it runs one task after the other: never part of a Job
    from below."""
    names = _names(words)
    return bool(names) and (
        names[0] in SHELLS or names[0] in SEATS
        or any(name.startswith(SEAT_PREFIXES) for name in names))


def is_launcher(words: tuple[str, ...]) -> bool:
    names = _names(words)
    return any(name in LAUNCHERS or name.startswith(LAUNCHER_MODULES) for name in names)


def _names(words: tuple[str, ...]) -> list[str]:
    """Return the program, and the script or module if an interpreter runs it. A login shell has a
    dash before its name."""
    if not words:
        return []
    first = words[0].split(" ", 1)[0].rpartition("/")[2].lstrip("-")
    names = [first]
    if first.startswith(("python", "pypy", "uv", "conda", "node", "perl", "env")):
        rest = [word for word in words[1:4] if not word.startswith("-") or word == "-m"]
        names += [word.rpartition("/")[2] for word in rest[:2] if word != "-m"]
    return names
