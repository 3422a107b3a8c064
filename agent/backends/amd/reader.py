"""Reader of AMD's boards. Not verified on hardware yet: built from the kernel's source and public
captures of boards (docs/hardware.md)."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpudeck.contract.wire import MAX_GPUS

from ...tasks.privileges import PROC
from .. import ReaderUnavailableError
from ..sysfs import DRM, board_folders, pci_address
from ..sysfs_board import MACHINE_IDS
from ..sysfs_reader import SysfsReader
from .board import AmdBoard
from .driver import AMD, MODULE, driver_version
from .processes import KFD, AmdProcessList, kfd_gpus


def open_reader(options: str = "") -> "AmdReader":
    return AmdReader()


class AmdReader(SysfsReader):
    def __init__(self, drm: Path = DRM, proc: Path = PROC, kfd: Path = KFD, module: Path = MODULE,
                 machine_ids: tuple[Path, ...] = MACHINE_IDS,
                 clock: Callable[[], float] = time.monotonic) -> None:
        folders = _in_order(board_folders(AMD, drm)[:MAX_GPUS], kfd)
        if not folders and not module.is_dir():
            raise ReaderUnavailableError("no_driver", (
                "the amdgpu kernel module is not loaded: run `sudo modprobe amdgpu`, and see "
                "`dmesg` if that fails."))
        if not folders:
            raise ReaderUnavailableError("no_gpus", (
                "the amdgpu driver is loaded and has no GPU: see `lspci | grep -i amd` and "
                "`dmesg`."))
        boards = [AmdBoard(folder, index, machine_ids) for index, folder in enumerate(folders)]
        super().__init__(boards, AmdProcessList(
            {board.address: board.facts.uuid for board in boards}, proc, kfd),
            partial(driver_version, module), clock)


def _in_order(folders: list[Path], kfd: Path) -> list[Path]:
    """Return the boards as programs of ROCm count them, so that an index means the same here and
    there; then those on which they cannot run."""
    places = {address: place for place, (_, address) in enumerate(kfd_gpus(kfd))}
    last = len(places)
    return sorted(folders, key=lambda folder: places.get(
        pci_address(folder).rpartition(".")[0], last))
