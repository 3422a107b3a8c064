"""The machine that figures are of."""

import os
import platform
import re
from pathlib import Path


def machine() -> str:
    """Describe the hardware that figures depend on, nothing that identifies this machine."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", _text("/proc/meminfo"), re.M)
    release = ".".join(platform.release().split(".")[:2])
    return ", ".join([
        f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()}",
        f"{int(memory[1]) / 2**20:.0f} GiB of memory" if memory else "memory unknown",
        f"{platform.system()} {release}", f"Python {platform.python_version()}",
    ])


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
