"""Does a process stand still because its cgroup is frozen, as `docker pause` does it?

SIGTERM reaches such a process only once it is thawed, and SIGKILL at once, or, in a freezer of v1,
then too (pitfalls.md E): it would die without having been asked, or not at all. No SIGCONT helps.
"""

from functools import cache
from pathlib import Path

PROC = Path("/proc")


def is_frozen(cgroups: str, proc: Path = PROC) -> bool:
    """`cgroups` as in /proc/PID/cgroup, its lines parted by line ends or `;`. False where the
    groups of the machine cannot be seen, as in a container."""
    return any(_says_so(line, proc) for line in cgroups.replace(";", "\n").split("\n"))


def _says_so(line: str, proc: Path) -> bool:
    number, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if ".." in path.split("/"):  # outside of our cgroup namespace
        return False
    if number == "0" and not controllers:
        return _holds(proc, "cgroup2", "", path, "cgroup.events", "frozen 1")
    if "freezer" in controllers.split(","):
        return _holds(proc, "cgroup", "freezer", path, "freezer.state", "FROZEN", "FREEZING")
    return False


def _holds(proc: Path, kind: str, option: str, path: str, file: str, *words: str) -> bool:
    for place in _mounts(proc, kind, option):
        try:
            state = (place / path.strip("/") / file).read_text(errors="replace")
        except (OSError, ValueError):
            continue
        return any(line in words for line in state.splitlines())
    return False


@cache
def _mounts(proc: Path, kind: str, option: str) -> tuple[Path, ...]:
    """Return where this hierarchy is, by the table of mounts: v1 and v2 may exist side by side."""
    try:
        text = (proc / "self/mounts").read_text(errors="replace")
    except OSError:
        return ()
    rows = (line.split(" ") for line in text.splitlines())
    return tuple(Path(row[1]) for row in rows if len(row) > 3 and row[2] == kind
                 and (not option or option in row[3].split(",")))
