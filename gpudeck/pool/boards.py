"""Which boards a process sees by itself, without asking the driver's library."""

import contextlib
from pathlib import Path

BOARDS = Path("/proc/driver/nvidia/gpus")


def boards_seen(folder: Path = BOARDS) -> frozenset[str]:
    """UUIDs that the kernel module shows to this process; in a container, those that it was
    given."""
    found = set()
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            for line in (each / "information").read_text().splitlines():
                if line.startswith("GPU UUID:"):
                    found.add(line.partition(":")[2].strip())
    return frozenset(found)
