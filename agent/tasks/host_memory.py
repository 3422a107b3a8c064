"""Room for more memory of a process: on its machine, and in each cgroup that it is in. A limit of a
container is hit long before the machine is full, and then the kernel kills the process."""

from dataclasses import dataclass
from pathlib import Path

from .processes import PROC

CGROUPS = Path("/sys/fs/cgroup")
KIB = 1_024


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """Room in bytes, and where: "" is the machine, else the path of a cgroup."""

    free_bytes: float
    cgroup: str = ""

    @property
    def words(self) -> str:
        return f"the cgroup {self.cgroup}" if self.cgroup else "this machine"


def rooms(cgroups: str, folder: Path = CGROUPS, proc: Path = PROC) -> tuple[MemoryRoom, ...] | None:
    """Return the room of the machine and of each limited cgroup. `cgroups`: the process's own file
    of that name in /proc. None: something of it cannot be read, so that nobody knows."""
    try:
        machine = MemoryRoom(_available(proc))
        return (machine, *_limited(cgroups, folder))
    except (OSError, ValueError):
        return None


def _available(proc: Path) -> float:
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return float(value.split()[0]) * KIB
    raise ValueError("no MemAvailable")


def _limited(cgroups: str, folder: Path) -> list[MemoryRoom]:
    second, first = None, None
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            first = path
        elif (number, controllers) == ("0", ""):
            second = path
    if first is not None:
        return _levels(folder / "memory", first, "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file")
    if second is None:
        raise ValueError("no cgroup of memory")
    return _levels(folder, second, "memory.max", "memory.current", "inactive_file")


def _levels(top: Path, path: str, limit: str, usage: str, cache: str) -> list[MemoryRoom]:
    """Read each level. One without a file of limits has none; one that is not there is another
    namespace's, of which nothing is known."""
    levels = []
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        raise ValueError("outside of what is mounted here")
    for depth in range(len(parts) + 1):
        level = top.joinpath(*parts[:depth])
        if not level.is_dir():
            raise ValueError(f"{level} is not there")
        if not (level / limit).exists():
            continue
        text = (level / limit).read_text().strip()
        if text == "max":
            continue
        used_bytes = float((level / usage).read_text()) - _reclaimable(level, cache)
        levels.append(MemoryRoom(float(text) - used_bytes, "/" + "/".join(parts[:depth])))
    return levels


def _reclaimable(level: Path, cache: str) -> float:
    """Return what the kernel gives back before it kills anybody."""
    for line in (level / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == cache:
            return float(value)
    return 0.0
