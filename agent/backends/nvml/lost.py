"""The names of boards that were lost before we asked: NVML gives no handle and no UUID then, the
kernel module still has both in /proc (open-gpu-kernel-modules, nv-procfs.c)."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpudeck.wire import GpuFacts

KERNEL = Path("/proc/driver/nvidia/gpus")
# It prints question marks for a board it never initialised.
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class KernelBoard(NamedTuple):
    """A board as the kernel module names it."""

    uuid: str
    name: str
    bus_id: str  # as NVML writes it

    def facts(self, index: int) -> GpuFacts:
        return GpuFacts(uuid=self.uuid, index=index, name=self.name, pci_bus_id=self.bus_id)


def lost_boards(
    lost: Sequence[int], opened: frozenset[str], kernel: Path = KERNEL
) -> list[GpuFacts]:
    """Facts of the boards at these indexes. Both count in the order of the bus. Where the kernel
    knows more or fewer that did not open, none: a wrong name is worse than a missing one."""
    unopened = [known for known in known_to(kernel) if known.uuid not in opened]
    if len(unopened) != len(lost):
        for index in lost:
            print(f"GPU {index} is lost, and which one it is cannot be told; see `dmesg`",
                  file=sys.stderr)
        return []
    return [known.facts(index) for index, known in zip(lost, unopened, strict=True)]


def known_to(kernel: Path) -> Iterator[KernelBoard]:
    for path in sorted(kernel.glob("*/information")):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        pairs = (line.partition(":") for line in lines)
        said = {key.strip(): value.strip() for key, _, value in pairs}
        uuid = said.get("GPU UUID", "")
        if _UUID.fullmatch(uuid) and said.get("GPU Excluded") != "Yes":
            bus = f"0000{path.parent.name}".upper()
            name = f"NVIDIA {said.get('Model', 'GPU').removeprefix('NVIDIA ')}"
            yield KernelBoard(uuid, name[:128], bus)
