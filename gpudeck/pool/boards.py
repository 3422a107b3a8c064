"""Boards that a process sees by itself, without asking the driver's library."""

import contextlib
import os
from pathlib import Path

BOARDS = Path("/proc/driver/nvidia/gpus")
# Docker, Podman and Kubernetes leave these behind.
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
CONTAINER_ENV = "KUBERNETES_SERVICE_HOST"


def boards_seen(folder: Path = BOARDS) -> tuple[str, ...]:
    """Return the UUIDs that the kernel module shows to this process, in the order of their PCI
    addresses; empty: it cannot say. A container may show all boards there, and have some of
    them."""
    if any(path.exists() for path in CONTAINER_FILES) or CONTAINER_ENV in os.environ:
        return ()
    uuids = []
    with contextlib.suppress(OSError):
        for board in sorted(folder.iterdir()):
            for line in (board / "information").read_text().splitlines():
                if line.startswith("GPU UUID:"):
                    uuids.append(line.partition(":")[2].strip())
    return tuple(uuids)
