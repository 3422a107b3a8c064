"""NVIDIA boards through NVML; pynvml is imported in this folder alone.

Every call is guarded per GPU and per field: one bad field is an Absence, one bad GPU a state.
What a board or driver lacks (NOT_SUPPORTED, no such symbol) is remembered and not asked again;
a fresh process forgets it, see agent/reader. Sources of the quirks: pitfalls.md A, citing
nvml.h and pynvml 13.615.

Every second one call for all field values and one for each that has none; every 15 s the slow
ones with them, in the same call. Calls into the driver queue up behind one lock, which the CUDA
calls of the tasks want too.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pynvml

from gpudeck.contract.wire import MAX_GPUS, GpuFacts
from gpudeck.measures.metrics import UNKNOWN, Absence

from ...readings import BackendEvent, GpuReading, OnDemandReading, ProcessReading, Reading
from .. import StaleReaderError
from .board import NvmlBoard
from .errors import unavailable
from .events import NvmlEventWatcher
from .kernel import DEVICES, KERNEL, BoardPowerStates, lost_boards
from .links import GpuTopology
from .mig import MigInstance
from .session import NvmlOpenedBoard, NvmlSession, none_opened, notes, open_board
from .xids import explain

PROCESSES_EVERY_S = 2.0
SLOW_EVERY_S = 15.0
BLIND_READS_MAX = 5


def open_reader(options: str = "") -> "NvmlReader":
    return NvmlReader()


class NvmlReader:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, kernel: Path = KERNEL,
        devices: Path = DEVICES,
    ) -> None:
        self._clock = clock
        self._session = NvmlSession()
        self._sleep = BoardPowerStates(devices, kernel)
        self._boards, self._shut = _boards(self._session.count, self._sleep, kernel)
        self._blind_reads, self._has_seen = 0, False
        self._read_at: float | None = None
        self._processes_at: float | None = None
        self._slow_at: float | None = None
        self._topology = GpuTopology()
        self._events: NvmlEventWatcher | None = None

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        self._events = NvmlEventWatcher(
            {board.facts.uuid: board.handle for board in self._boards if board.handle is not None},
            lambda event: tell(explain(event, [device.facts for device in self._devices()])))

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        taken_at = time.time()
        slow = _is_due(self._slow_at, now, SLOW_EVERY_S)
        if self._sleep.unnamed_woke():
            raise StaleReaderError
        self._look_around(now)
        # Before the GPUs: what nobody holds follows from both.
        processes = self._processes(now, slow)
        accounted = () if processes is None else tuple(
            row for board in self._boards for row in board.accounted(processes, taken_at))
        read = [board.read_all(now, slow) for board in self._boards]
        self._give_up_if_blind([board_and_instances[0] for board_and_instances in read])
        if slow:
            self._slow_at = now
            self._topology.learn([(board, board.facts.pci_bus_id, board.metrics.nvlinks.up)
                                  for board in self._boards if board.is_here])
        self._session.renew_if_lost(self._boards, now)
        self._session.check(self._boards)
        facts = tuple(device.facts for device in self._devices())
        return Reading(
            taken_at=taken_at, interval_s=interval_s, facts=facts,
            gpus=tuple(gpu for board_and_instances in read for gpu in board_and_instances),
            processes=processes, driver_version=self._session.driver,
            cuda_version=self._session.cuda,
            links=self._topology.links([gpu.uuid for gpu in facts]),
            detail=notes(self._boards, self._shut)[:1_024], accounted=accounted,
        )

    def _devices(self) -> "list[NvmlBoard | MigInstance]":
        """Return each board, and after it its MIG instances."""
        devices: list[NvmlBoard | MigInstance] = []
        for board in self._boards:
            devices += [board, *board.instances.all]
        return devices

    def fresh(self) -> OnDemandReading:
        self._look_around(self._clock())
        devices = self._devices()
        fresh = OnDemandReading(tuple(process for device in devices
                                      for process in device.list_now()),
                                {device.facts.uuid: device.mem_used_now() for device in devices},
                                {board.facts.uuid: board.energy_now() for board in self._boards})
        self._session.check(self._boards)
        return fresh

    def _look_around(self, now: float) -> None:
        for board in self._boards:
            board.asleep = self._sleep.is_asleep(board.facts.pci_bus_id)
            board.look(now)

    def _give_up_if_blind(self, gpus: Sequence[GpuReading]) -> None:
        """A container that lost access to its devices gets Unknown Error for everything (A.6):
        only a fresh process, or a restart of the container, helps. A fresh one that sees nothing
        either says so at once, or the node would be well for some seconds at each attempt."""
        awake = [gpu for gpu, board in zip(gpus, self._boards, strict=True) if not board.asleep]
        blind = bool(awake) and all(
            gpu.state != "lost" and Absence.PRESENT not in gpu.absent
            and UNKNOWN in gpu.absent for gpu in awake)
        self._blind_reads = self._blind_reads + 1 if blind else 0
        self._has_seen = self._has_seen or not blind
        if self._blind_reads >= (BLIND_READS_MAX if self._has_seen else 1):
            raise unavailable(pynvml.NVML_ERROR_UNKNOWN)

    def _processes(self, now: float, is_forced: bool) -> tuple[ProcessReading, ...] | None:
        if not is_forced and not _is_due(self._processes_at, now, PROCESSES_EVERY_S):
            return None
        self._processes_at = now
        return tuple(process for device in self._devices() for process in device.processes(now))

    def close(self) -> None:
        if self._events is None or self._events.close():
            self._session.close()


def _is_due(last: float | None, now: float, every_s: float) -> bool:
    """Half a second early, so that a tick a few ms short of it counts."""
    return last is None or now - last >= every_s - 0.5


def _boards(
    count: int, sleep: BoardPowerStates, kernel: Path
) -> "tuple[list[NvmlBoard], list[NvmlOpenedBoard]]":
    """Return the boards, and those that the driver counts and does not let us see (A.1): listed
    under no name."""
    sleepers = sleep.sleepers(count := min(count, MAX_GPUS))
    # A sleeping board is not opened: it would wake.
    results = [open_board(index) for index in range(count) if index not in sleepers]
    boards = [NvmlBoard(result.handle, GpuFacts(uuid=result.uuid, index=result.index,
                                                name="NVIDIA GPU"))
              for result in results if not result.code]
    boards += [NvmlBoard(None, sleeper.facts(index))
               for index, sleeper in sleepers.items() if sleeper]
    uuids = frozenset(board.facts.uuid for board in boards)
    lost_indexes = [result.index for result in results
                    if result.code == pynvml.NVML_ERROR_GPU_IS_LOST]
    if lost_indexes:
        boards += [NvmlBoard(None, facts) for facts in lost_boards(lost_indexes, uuids, kernel)]
    if not boards:
        raise none_opened(results, len(sleepers))
    listed = {board.facts.index for board in boards}
    return (sorted(boards, key=lambda board: board.facts.index),
            [result for result in results if result.index not in listed])
