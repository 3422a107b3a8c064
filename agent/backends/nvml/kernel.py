"""Boards as the kernel shows them, where the driver is not, or must not be, asked.

Names of those that were lost before we asked: NVML gives no handle and no UUID then, the kernel
module still has both in /proc (open-gpu-kernel-modules, nv-procfs.c). And which are powered down:
reading one through the driver would wake it (pitfalls.md 22;
Documentation/ABI/testing/sysfs-devices-power).
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpudeck.contract import vendors
from gpudeck.contract.wire import GpuFacts

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
    lost_indexes: Sequence[int], opened: frozenset[str], kernel: Path = KERNEL
) -> list[GpuFacts]:
    """Return facts of the boards at these indexes. Both count in the order of the bus. Where the
    kernel knows more or fewer that did not open, none: a wrong name is worse than a missing one."""
    unopened = [board for board in kernel_boards(kernel) if board.uuid not in opened]
    if len(unopened) != len(lost_indexes):
        for index in lost_indexes:
            print(f"GPU {index} is lost, and which one is not known; see `dmesg`",
                  file=sys.stderr)
        return []
    return [board.facts(index) for index, board in zip(lost_indexes, unopened, strict=True)]


def kernel_boards(kernel: Path) -> Iterator[KernelBoard]:
    for path in sorted(kernel.glob("*/information")):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        pairs = (line.partition(":") for line in lines)
        entries = {key.strip(): value.strip() for key, _, value in pairs}
        uuid = entries.get("GPU UUID", "")
        if _UUID.fullmatch(uuid) and entries.get("GPU Excluded") != "Yes":
            bus = f"0000{path.parent.name}".upper()
            name = f"NVIDIA {entries.get('Model', 'GPU').removeprefix('NVIDIA ')}"
            yield KernelBoard(uuid, name[:128], bus)


DEVICES = Path("/sys/bus/pci/devices")
NVIDIA = vendors.PCI[vendors.NVIDIA]
# 3D and display controllers: what NVML counts, in the order of the bus.
DISPLAY = ("0x0300", "0x0302")
WORD_BYTES = 256
_BUS = re.compile(r"([0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class BoardPowerStates:
    def __init__(self, devices: Path = DEVICES, kernel: Path = KERNEL) -> None:
        self._devices = devices
        self._kernel = kernel
        self._folders: dict[str, Path | None] = {}
        self._unnamed: list[Path] = []

    def is_asleep(self, bus_id: str | None) -> bool:
        """Return whether the board sleeps, by NVML's bus id; unknown is awake: the driver answers
        then as well as it can."""
        folder = self._folder(bus_id) if bus_id else None
        return folder is not None and _is_down(folder)

    def sleepers(self, count: int) -> dict[int, KernelBoard | None]:
        """Return index -> which board, of those that sleep before we have opened any. None: the
        kernel module has never seen its UUID. Empty where the kernel does not count as the driver
        does: an index must not be given to a wrong board."""
        boards = [path for path in sorted(self._devices.glob("*")) if _is_board(path)]
        if len(boards) != count:
            return {}
        named_boards = {facts.bus_id[-12:].lower(): facts for facts in kernel_boards(self._kernel)}
        down = {index: path for index, path in enumerate(boards) if _is_down(path)}
        self._unnamed = [path for path in down.values() if path.name not in named_boards]
        return {index: named_boards.get(path.name) for index, path in down.items()}

    def unnamed_woke(self) -> bool:
        """Return whether a board that had no UUID to be listed under has one now."""
        return any(not _is_down(path) for path in self._unnamed)

    def _folder(self, bus_id: str) -> Path | None:
        if bus_id not in self._folders:
            name = _BUS.fullmatch(bus_id.lower())
            folder = self._devices / name[2] if name else None
            self._folders[bus_id] = folder if folder and _is_board(folder) else None
        return self._folders[bus_id]


def _is_board(folder: Path) -> bool:
    return _word(folder / "vendor") == NVIDIA and _word(folder / "class")[:6] in DISPLAY


def _is_down(folder: Path) -> bool:
    return (_word(f"{folder}/power/runtime_status") == "suspended"
            or _word(f"{folder}/power_state") == "D3cold")


def _word(path: Path | str) -> str:
    """Read a word: two for each board in each second, and a Path and a file object cost four times
    as much."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, WORD_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)
