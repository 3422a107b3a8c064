"""Reader of AMD's boards. Each file is guarded: one bad field is an Absence, one bad board a
state. Not verified on hardware yet: built from the kernel's source and public captures of boards
(docs/hardware.md)."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudeck.contract.wire import MAX_GPUS

from ...readings import BackendEvent, OnDemandReading, ProcessReading, Reading
from .. import ReaderUnavailableError
from .board import MACHINE_ID, AmdBoard
from .driver import MODULE, driver_version
from .processes import KFD, PROC, AmdProcessList, kfd_gpus
from .sysfs import DRM, board_folders, pci_address

PROCESSES_EVERY_S = 2.0
SLOW_EVERY_S = 15.0


def open_reader(options: str = "") -> "AmdReader":
    return AmdReader()


class AmdReader:
    def __init__(self, drm: Path = DRM, proc: Path = PROC, kfd: Path = KFD, module: Path = MODULE,
                 machine_id: Path = MACHINE_ID,
                 clock: Callable[[], float] = time.monotonic) -> None:
        folders = _in_order(board_folders(drm)[:MAX_GPUS], kfd)
        if not folders and not module.is_dir():
            raise ReaderUnavailableError("no_driver", (
                "the amdgpu kernel module is not loaded: run `sudo modprobe amdgpu`, and see "
                "`dmesg` if that fails."))
        if not folders:
            raise ReaderUnavailableError("no_gpus", (
                "the amdgpu driver is loaded and has no GPU: see `lspci | grep -i amd` and "
                "`dmesg`."))
        self._clock, self._module = clock, module
        self._boards = [AmdBoard(folder, index, machine_id)
                        for index, folder in enumerate(folders)]
        self._processes = AmdProcessList(
            {board.address: board.facts.uuid for board in self._boards}, proc, kfd)
        self._read_at: float | None = None
        self._slow_at: float | None = None
        self._listed_at: float | None = None

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        is_slow = self._slow_at is None or now - self._slow_at >= SLOW_EVERY_S - 0.5
        if is_slow:
            self._slow_at = now
        gpus = tuple(board.read(is_slow) for board in self._boards)
        return Reading(
            taken_at=time.time(), interval_s=interval_s, gpus=gpus,
            facts=tuple(board.facts for board in self._boards), processes=self._list(now),
            driver_version=driver_version(self._module), detail=" ".join(self._notes())[:1_024])

    def fresh(self) -> OnDemandReading:
        return OnDemandReading(
            self._processes.read(self._clock(), is_whole=True),
            {board.facts.uuid: board.mem_used_now() for board in self._boards},
            {board.facts.uuid: board.energy_now() for board in self._boards})

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """Report nothing: the driver has no events but its log."""

    def close(self) -> None:
        """Close nothing: no file stays open."""

    def _list(self, now: float) -> tuple[ProcessReading, ...] | None:
        if self._listed_at is not None and now - self._listed_at < PROCESSES_EVERY_S - 0.5:
            return None
        self._listed_at = now
        return self._processes.read(now, is_whole=False)

    def _notes(self) -> Iterator[str]:
        yield from (f"GPU {board.facts.index} {note}" for board in self._boards
                    if (note := board.note()))


def _in_order(folders: list[Path], kfd: Path) -> list[Path]:
    """Return the boards as programs of ROCm count them, so that an index means the same here and
    there; then those on which they cannot run."""
    places = {address: place for place, (_, address) in enumerate(kfd_gpus(kfd))}
    last = len(places)
    return sorted(folders, key=lambda folder: places.get(
        pci_address(folder).rpartition(".")[0], last))
