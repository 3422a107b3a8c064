"""Rights of this process, and the namespace of its process ids; apart from the process table, which
takes long to load."""

import os
from pathlib import Path

PROC = Path("/proc")
HOST_PID_NAMESPACE = 4026531836  # PROC_PID_INIT_INO of the kernel
CAP_KILL, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 5, 19, 21


def in_host_namespace(proc: Path = PROC) -> bool:
    """Return whether our pids are the machine's: a driver speaks of no others."""
    try:
        return os.stat(proc / "self/ns/pid").st_ino == HOST_PID_NAMESPACE
    except OSError:
        return False


def capabilities(proc: Path = PROC) -> frozenset[int] | None:
    """Return the capabilities in effect, by the kernel's numbers. None: the kernel does not say."""
    try:
        lines = (proc / "self/status").read_text().splitlines()
        mask = int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)
    except (OSError, ValueError, StopIteration):
        return None
    return frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)


def sees_all(proc: Path = PROC) -> bool:
    """Return whether no process of the machine is hidden from us."""
    return CAP_SYS_PTRACE in (capabilities(proc) or ()) and in_host_namespace(proc)
