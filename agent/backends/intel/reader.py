"""Reader of Intel's boards. Not verified on hardware yet: built from the kernel's source and public
captures of boards (docs/hardware.md)."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gpudeck.contract.wire import MAX_GPUS

from ...readings import ProcessReading
from ...tasks.privileges import PROC
from .. import ReaderUnavailableError
from ..sysfs import DRM, is_asleep
from ..sysfs_board import MACHINE_IDS
from ..sysfs_reader import SysfsReader
from .board import IntelBoard
from .driver import DRIVERS, MODULES, boards_and_integrated, driver_of, driver_version
from .processes import IntelProcessList

LISTS_EVERY_S = 1.0  # the use of a board is the sum of its processes'


def open_reader(options: str = "") -> "IntelReader":
    return IntelReader()


class IntelReader(SysfsReader):
    def __init__(self, drm: Path = DRM, proc: Path = PROC, modules: Path = MODULES,
                 machine_ids: tuple[Path, ...] = MACHINE_IDS,
                 clock: Callable[[], float] = time.monotonic) -> None:
        folders, integrated = boards_and_integrated(drm)
        if not folders:
            raise _unavailable(bool(integrated), modules)
        boards = {folder: IntelBoard(folder, index, machine_ids)
                  for index, folder in enumerate(folders[:MAX_GPUS])}
        drivers = tuple({driver_of(folder) for folder in boards})
        super().__init__([*boards.values()], _ListOfBoards(boards, proc),
                         partial(driver_version, modules, drivers=drivers), clock, LISTS_EVERY_S)


class _ListOfBoards:
    """List of the processes on boards, which tells each board its use."""

    def __init__(self, boards: Mapping[Path, IntelBoard], proc: Path) -> None:
        self._boards = boards
        self._processes = IntelProcessList(
            {board.address: board.facts.uuid for board in boards.values()}, proc)

    def read(self, now: float, is_whole: bool) -> tuple[ProcessReading, ...]:
        asleep = {board.facts.uuid: board.devices()
                  for folder, board in self._boards.items() if is_asleep(folder)}
        processes = self._processes.read(now, is_whole, asleep)
        for board in self._boards.values():
            board.use = self._processes.use_of(board.facts.uuid)
        return processes


def _unavailable(is_integrated: bool, modules: Path) -> ReaderUnavailableError:
    if is_integrated:
        return ReaderUnavailableError("no_gpus", (
            "the only graphics of Intel here are the processor's own, which are not listed as a "
            "GPU: leave intel out of --backend."))
    if not any((modules / name).is_dir() for name in DRIVERS):
        return ReaderUnavailableError("no_driver", (
            "neither of Intel's kernel modules is loaded: run `sudo modprobe xe` (or i915, for "
            "boards before Battlemage), and see `dmesg` if that fails."))
    return ReaderUnavailableError("no_gpus", (
        "the drivers xe and i915 have no board here: see `lspci | grep -i intel` and `dmesg`."))
