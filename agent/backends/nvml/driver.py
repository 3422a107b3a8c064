"""NVIDIA's driver, as this machine shows it without opening it."""

import re
from pathlib import Path

MODULE = Path("/proc/driver/nvidia/version")
DEVICE_FILES = "/dev/nvidia"
LIBRARY = b"libnvidia-ml.so"
VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


def driver_version(path: Path = MODULE) -> str | None:
    """Return the version of the loaded kernel module; None: not loaded, or not to be seen from
    here."""
    try:
        first = path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return None
    match = VERSION.search(first)
    return match[1] if match else None
