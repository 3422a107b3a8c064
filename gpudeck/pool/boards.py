"""Which boards a process sees by itself, without asking the driver's library."""

import contextlib
import os
from pathlib import Path

BOARDS = Path("/proc/driver/nvidia/gpus")
# Docker, Podman and Kubernetes leave these behind.
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
CONTAINER_ENV = "KUBERNETES_SERVICE_HOST"


def boards_seen(folder: Path = BOARDS) -> tuple[str, ...]:
    """UUIDs that the kernel module shows to this process, in the order of their PCI addresses;
    empty: it cannot say. A container may show all boards there, and have some of them."""
    if any(path.exists() for path in CONTAINER_FILES) or CONTAINER_ENV in os.environ:
        return ()
    found = []
    with contextlib.suppress(OSError):
        for each in sorted(folder.iterdir()):
            for line in (each / "information").read_text().splitlines():
                if line.startswith("GPU UUID:"):
                    found.append(line.partition(":")[2].strip())
    return tuple(found)
