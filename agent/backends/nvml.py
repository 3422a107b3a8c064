"""NVIDIA boards through NVML. The only pynvml, with the nvml_*.py beside it.

Every call is guarded per Gpu and per field: one bad field is an Absence, one bad Gpu a state.
What a board or driver lacks (NOT_SUPPORTED, no such symbol) is remembered and not asked again;
a fresh process forgets it, see reader_process. Sources of the quirks: nvml-mps.md A, citing
nvml.h and pynvml 13.615.

Every second one call for all field values and one for each that has none; every 15 s the slow
ones with them, in the same call. Calls into the driver queue up behind one lock, which the CUDA
calls of the tasks want too.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
from msgspec import structs

from gpudeck.metrics import COLUMNS, SLOW, WIDTH, Absence, Metric, metric
from gpudeck.wire import MAX_GPUS, GpuFacts

from . import Fresh, GpuReading, Happening, ProcessReading, Reading
from .nvml_ask import Asker, Lost, taken
from .nvml_errors import NO_DRIVER, Code, no_gpus, unavailable
from .nvml_events import Events
from .nvml_facts import read_facts
from .nvml_fields import Answers, Field, read_fields
from .nvml_gpm import Gpm
from .nvml_links import Topology
from .nvml_lost import KERNEL, lost_boards
from .nvml_processes import ProcessLists
from .nvml_samples import Samples
from .nvml_slow import Around, Slow, allocated_bytes, unseen_bytes
from .row import Counter, Row

PROCESSES_EVERY_S = 2.0
LOST_ASKED_EVERY_S = 15.0
LIMITS_EVERY_S = 60.0
SLOW_EVERY_S = 15.0
BLIND_READS_MAX = 5

MEMORY_TEMP: Field = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)
ENERGY: Field = (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0)
POWER_INSTANT: Field = (pynvml.NVML_FI_DEV_POWER_INSTANT, 0)
# Never nvmlDeviceGetPcieThroughput: it blocks for 20 ms a call.
PCIE_TX: Field = (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0)
PCIE_RX: Field = (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0)
FIELDS = (MEMORY_TEMP, ENERGY, POWER_INSTANT, PCIE_TX, PCIE_RX)
GPM = (pynvml.NVML_GPM_METRIC_SM_UTIL, pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
       pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC)


def open_reader(options: str = "") -> "NvmlReader":
    return NvmlReader()


class NvmlReader:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, kernel: Path = KERNEL
    ) -> None:
        self._clock = clock
        try:
            pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
            self._driver = str(pynvml.nvmlSystemGetDriverVersion())
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise unavailable(error.value, error) from error
        except pynvml.NVMLLibraryMismatchError as error:
            raise unavailable(Code.FUNCTION_NOT_FOUND) from error
        self._boards = _boards(min(count, MAX_GPUS), kernel)
        if not self._boards:
            raise no_gpus()
        self._blind_reads = 0
        self._read_at: float | None = None
        self._processes_at: float | None = None
        self._slow_at: float | None = None
        self._topology = Topology()
        self._events: Events | None = None

    def watch(self, tell: Callable[[Happening], None]) -> None:
        self._events = Events({board.facts.uuid: board.handle for board in self._boards
                               if board.handle is not None}, tell)

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        taken_at = time.time()
        slow = _is_due(self._slow_at, now, SLOW_EVERY_S)
        # Before the Gpus: what nobody holds is told from the two together.
        processes = self._processes(now, slow)
        gpus = tuple(board.read(now, slow) for board in self._boards)
        self._give_up_if_blind(gpus)
        if slow:
            self._slow_at = now
            self._topology.learn([(board, board.facts.pci_bus_id, board.nvlinks_up)
                                  for board in self._boards if board.is_here])
        facts = tuple(board.facts for board in self._boards)
        return Reading(
            taken_at=taken_at, interval_s=interval_s, gpus=gpus, facts=facts,
            processes=processes, driver_version=self._driver,
            links=self._topology.links([each.uuid for each in facts]),
        )

    def fresh(self) -> Fresh:
        return Fresh(tuple(each for board in self._boards for each in board.list_now()),
                     {board.facts.uuid: board.mem_used_now() for board in self._boards})

    def _give_up_if_blind(self, gpus: tuple[GpuReading, ...]) -> None:
        """A container that lost access to its devices gets Unknown Error for everything (A.6):
        only a fresh process, or a restart of the container, helps."""
        blind = all(gpu.state == "ok" and Absence.PRESENT not in gpu.absent for gpu in gpus)
        self._blind_reads = self._blind_reads + 1 if blind else 0
        if self._blind_reads >= BLIND_READS_MAX:
            raise unavailable(Code.UNKNOWN)

    def _processes(self, now: float, wanted: bool) -> tuple[ProcessReading, ...] | None:
        if not wanted and not _is_due(self._processes_at, now, PROCESSES_EVERY_S):
            return None
        self._processes_at = now
        return tuple(process for board in self._boards for process in board.processes(now))

    def close(self) -> None:
        if self._events is not None and not self._events.close():
            return
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            print(f"nvmlShutdown: {error}", file=sys.stderr)


def _is_due(last: float | None, now: float, every_s: float) -> bool:
    """Half a second early, so that a tick a few ms short of it counts."""
    return last is None or now - last >= every_s - 0.5


def _boards(count: int, kernel: Path) -> "list[Board]":
    """Without those that the driver counts and does not let us see (A.1)."""
    opened = {index: _open(index) for index in range(count)}
    lost = [index for index, board in opened.items() if board is Absence.LOST]
    boards = [board for board in opened.values() if isinstance(board, Board)]
    known = frozenset(board.facts.uuid for board in boards)
    if lost:
        boards += [Board(None, facts) for facts in lost_boards(lost, known, kernel)]
    return sorted(boards, key=lambda board: board.facts.index)


def _open(index: int) -> "Board | Absence":
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError as error:
        if error.value in NO_DRIVER:
            raise unavailable(error.value) from error
        print(f"GPU {index} cannot be opened: {error}", file=sys.stderr)
        return Absence.LOST if error.value == Code.GPU_IS_LOST else Absence.DENIED
    return Board(handle, GpuFacts(uuid=uuid, index=index, name="NVIDIA GPU"))


class Board(Asker):
    """One Gpu: its handle, what it never reports, and what differences are taken from."""

    def __init__(self, handle: Any, facts: GpuFacts) -> None:
        super().__init__(handle, facts.uuid)
        self.facts = facts
        self._lost_at: float | None = None
        self._lists = ProcessLists(self.ask, facts.uuid)
        self._allocated: float | Absence = Absence.UNKNOWN
        self._begin()

    def _begin(self) -> None:
        """With nothing to take differences from, as after a reset."""
        self._limits_at: float | None = None
        self._counters = {PCIE_TX: Counter(hides_32=True), PCIE_RX: Counter(hides_32=True)}
        self._samples = Samples(self)
        self._gpm = Gpm(GPM)
        self._slow = Slow(self)
        self._slow_at: float | None = None
        self._missing_slow: dict[str, str] = {}

    @property
    def is_here(self) -> bool:
        return self._lost_at is None

    @property
    def nvlinks_up(self) -> int | None:
        return self._slow.nvlinks.up

    def read(self, now: float, slow: bool = False) -> GpuReading:
        if self._lost_at is not None:
            if now - self._lost_at < LOST_ASKED_EVERY_S:
                return self._lost()
            self.doubt()
            self.forget()
            self._begin()
        self.begin(now)
        try:
            reading = self._read(now, slow or self._slow_at is None)
        except Lost:
            self._lost_at = now
            return self._lost()
        self._lost_at = None
        return reading

    @property
    def handle(self) -> Any:
        """None: lost before we had one."""
        return self._handle

    def _read(self, now: float, slow: bool) -> GpuReading:
        answers = read_fields(self, (*FIELDS, *self._slow.fields()) if slow else FIELDS)
        memory, temp_c = self._memory(), self._temperature()
        if self._limits_at is None or now - self._limits_at >= LIMITS_EVERY_S:
            self.facts, self._limits_at = read_facts(self, self.facts, memory, temp_c), now
        row = self._read_row(now, answers, memory, temp_c)
        slow_row = None
        if slow:
            around = Around(memory, temp_c, self.facts.temp_slowdown_c,
                            self._unseen_bytes(now, memory))
            slow_row = self._slow.read(self._handle, now, answers, around)
            self._slow_at = now
            self._missing_slow = _missing(SLOW, slow_row)
        missing = _missing(COLUMNS, row) | self._missing_slow
        if missing != self.facts.missing:
            self.facts = structs.replace(self.facts, missing=missing)
        return GpuReading(
            self.facts.uuid, "ok", tuple(row.values), bytes(row.absent),
            slow=() if slow_row is None else tuple(slow_row.values),
            slow_absent=b"" if slow_row is None else bytes(slow_row.absent),
        )

    def _lost(self) -> GpuReading:
        absent = bytes([Absence.LOST]) * WIDTH
        return GpuReading(self.facts.uuid, "lost", (0.0,) * WIDTH, absent)

    def _unseen_bytes(self, now: float, memory: Any) -> "float | Absence":
        return unseen_bytes(self._allocated, allocated_bytes(memory), self._lists.amounts(now))

    def _read_row(self, now: float, answers: Answers, memory: Any, temp_c: Any) -> Row:
        row = Row()
        self._put_utilization(row)
        self._put_power(row, answers)
        self._put_traffic(row, answers, now)
        row.put("mem_used_bytes", taken(memory, lambda said: float(said.used)))
        row.put("temp_c", temp_c)
        row.put("mem_temp_c", answers.number(MEMORY_TEMP))
        row.put("sm_clock_mhz", self.ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM))
        row.put("mem_clock_mhz", self.ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM))
        row.put("fan_pct", self.ask("nvmlDeviceGetFanSpeed"))
        row.put("throttle_bits", self.first(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        ))
        return row

    def _put_utilization(self, row: Row) -> None:
        gpu = self._samples.mean_and_peak(
            pynvml.NVML_GPU_UTILIZATION_SAMPLES, metric("util_pct").high)
        memory = self._samples.mean_and_peak(
            pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, metric("mem_util_pct").high)
        rates = None
        if gpu is None or memory is None:
            rates = self.ask("nvmlDeviceGetUtilizationRates")
        mean, peak = gpu or (taken(rates, lambda said: float(said.gpu)),) * 2
        row.put("util_pct", mean)
        row.put("util_max_pct", peak)
        row.put("mem_util_pct", taken(rates, lambda said: float(said.memory))
                if memory is None else memory[0])

    def _put_power(self, row: Row, answers: Answers) -> None:
        sampled = self._samples.mean_and_peak(
            pynvml.NVML_TOTAL_POWER_SAMPLES, metric("power_w").high * 1_000)
        if sampled is not None:
            mean, peak = sampled
        else:
            mean = peak = self.ask("nvmlDeviceGetPowerUsage")
            instant = answers.number(POWER_INSTANT)
            if not isinstance(mean, Absence) and not isinstance(instant, Absence):
                peak = max(mean, instant)
        row.put("power_w", mean, 1e-3)
        row.put("power_max_w", peak, 1e-3)
        energy = answers.number(ENERGY)
        if isinstance(energy, Absence):
            energy = self.ask("nvmlDeviceGetTotalEnergyConsumption")
        row.put("energy_j", energy, 1e-3)

    def _put_traffic(self, row: Row, answers: Answers, now: float) -> None:
        gpm = self._gpm.read(self._handle, now, self.why)
        row.put("sm_active_pct", gpm.get(pynvml.NVML_GPM_METRIC_SM_UTIL, self._gpm.absence))
        for key, field, number in (
            ("pcie_tx_bytes_per_s", PCIE_TX, pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC),
            ("pcie_rx_bytes_per_s", PCIE_RX, pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC),
        ):
            counted = answers.counted(field)
            if not isinstance(counted, Absence):
                row.put(key, self._counters[field].rate(*counted, now))
            elif number in gpm:
                row.put(key, gpm[number], 2**20)
            else:
                row.put(key, counted)

    def mem_used_now(self) -> float | None:
        try:
            memory = self._memory()
        except Lost:
            return None
        return None if isinstance(memory, Absence) else float(memory.used)

    def _memory(self) -> Any:
        answer = self.ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        if answer is Absence.UNSUPPORTED:  # before 510 there is no second version
            answer = self.ask("nvmlDeviceGetMemoryInfo")
        return answer

    def _temperature(self) -> "float | Absence":
        answer: float | Absence = self.first(
            "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature",
            arguments=(pynvml.NVML_TEMPERATURE_GPU,),
        )
        return answer

    def processes(self, now: float) -> tuple[ProcessReading, ...]:
        if self._lost_at is None:
            self.now = now
            try:
                self._allocated = allocated_bytes(self._memory())
                return self._lists.read(now)
            except Lost:
                self._lost_at = now
        return self._lists.kept(now)

    def list_now(self) -> tuple[ProcessReading, ...]:
        """A lost Gpu holds nobody's memory."""
        try:
            return self._lists.fresh()
        except Lost:
            return ()


def _missing(metrics: tuple[Metric, ...], row: Row) -> dict[str, str]:
    return {each.key: Absence(why).word for each, why in zip(metrics, row.absent, strict=True)
            if why in (Absence.UNSUPPORTED, Absence.DENIED)}
