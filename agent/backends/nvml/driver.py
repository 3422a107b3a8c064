"""What this machine shows of NVIDIA's driver without opening it."""

import re
from pathlib import Path

MODULE = Path("/proc/driver/nvidia/version")
DEVICE_FILES = "/dev/nvidia"
LIBRARY = b"libnvidia-ml.so"
VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


def driver_version(path: Path = MODULE) -> str | None:
    """Of the loaded kernel module; None: not loaded, or not to be seen from here."""
    try:
        first = path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return None
    found = VERSION.search(first)
    return found[1] if found else None
