"""Control group of a process, in cgroup v2."""

from pathlib import Path

from .processes import PROC

CGROUP = Path("/sys/fs/cgroup")
_LINE = "0::"


def group_of(pid: int | str, proc: Path = PROC) -> str | None:
    """Return the control group of a process, as a path below the root of cgroup v2. None: it has
    ended, or is in none."""
    try:
        lines = (proc / str(pid) / "cgroup").read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return None
    return next((line.removeprefix(_LINE) for line in lines if line.startswith(f"{_LINE}/")), None)


def folder_of(group: str, root: Path = CGROUP) -> str:
    """Return the folder of a control group, as NVIDIA's driver expects it."""
    return f"{root}{group}".rstrip("/")
