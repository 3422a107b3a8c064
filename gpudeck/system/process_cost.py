"""Cost of a process of this machine: CPU seconds and memory. Linux."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def cpu_s(pid: int, proc: Path = PROC) -> float | None:
    """Return the CPU seconds of a process since its start. /proc counts in hundredths, which for a
    process that takes one per cent is not a number for two seconds; the process's own clock does
    not (clock_getcpuclockid(3), which Python has for threads only)."""
    if proc is PROC:
        try:
            return time.clock_gettime((~pid << 3) | 2)
        except OSError:
            pass
    try:
        words = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def spent_s(pids: Iterable[int], proc: Path = PROC) -> dict[int, float]:
    """Return the CPU seconds of those processes that exist."""
    return {pid: seconds for pid in pids if (seconds := cpu_s(pid, proc)) is not None}


def pss_bytes(pid: int, proc: Path = PROC) -> float | None:
    """Return the memory of a process; None: it has ended, or is another user's."""
    try:
        with open(proc / str(pid) / "smaps_rollup") as file:
            amounts = (line.split()[1] for line in file if line.startswith("Pss:"))
            return float(next(amounts)) * 1024
    except (OSError, ValueError, StopIteration):
        return None


def children_of(pid: int, proc: Path = PROC) -> list[int]:
    """Return children and their descendants, started by any of its threads."""
    children: list[int] = []
    for file in (proc / str(pid) / "task").glob("*/children"):
        try:
            children += map(int, file.read_text().split())
        except OSError:  # that thread has ended
            continue
    return children + [descendant for child in children for descendant in children_of(child, proc)]
