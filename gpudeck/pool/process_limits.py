"""Limits of a leased process, as the kernel says them: neither `gpudeck run` nor the agent takes
the other's word."""

import os
from collections.abc import Collection
from pathlib import Path

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def limits_of(pid: int, cores: Collection[int], ram_bytes: int | None) -> tuple[str, ...]:
    """Return the limits of a process. `cpus`: it runs on these cores alone; `ram`: its control
    group gets no more memory than that."""
    limits = []
    if cores and _affinity(pid) <= set(cores):
        limits.append("cpus")
    most = None if ram_bytes is None else memory_most(pid)
    if ram_bytes is not None and most is not None and most <= ram_bytes:
        limits.append("ram")
    return tuple(limits)


def _affinity(pid: int) -> set[int]:
    try:
        return set(os.sched_getaffinity(pid))
    except OSError:
        return {-1}


def memory_most(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> int | None:
    """Return the memory limit of a process's control group, in either hierarchy; None: it has no
    limit, or none that is seen."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    files = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            files.append(groups / path.lstrip("/") / "memory.max")
        elif "memory" in controllers.split(","):
            files.append(groups / "memory" / path.lstrip("/") / "memory.limit_in_bytes")
    for file in files:
        try:
            return int(file.read_text())
        except (OSError, ValueError):  # `max` is no number
            continue
    return None
