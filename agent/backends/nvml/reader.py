"""NVIDIA boards through NVML. The only pynvml, with the nvml_*.py beside it.

Every call is guarded per Gpu and per field: one bad field is an Absence, one bad Gpu a state.
What a board or driver lacks (NOT_SUPPORTED, no such symbol) is remembered and not asked again;
a fresh process forgets it, see reader_process. Sources of the quirks: nvml-mps.md A, citing
nvml.h and pynvml 13.615.

Every second one call for all field values and one for each that has none; every 15 s the slow
ones with them, in the same call. Calls into the driver queue up behind one lock, which the CUDA
calls of the tasks want too.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pynvml
from msgspec import structs

from gpudeck.metrics import COLUMN, LOST, UNKNOWN, UNSUPPORTED, WIDTH, Absence, metric
from gpudeck.wire import MAX_GPUS, GpuFacts

from ...readings import (
    BackendEvent,
    GpuReading,
    OnDemandReading,
    ProcessAccounting,
    ProcessReading,
    Reading,
)
from .. import StaleReaderError
from ..row import MetricRow, MonotonicCounter
from .accounting import NvmlAccounting
from .ask import GpuLostError, NvmlDevice, taken
from .errors import NvmlReturnCode, unavailable
from .events import NvmlEventWatcher
from .facts import read_facts, read_pending
from .fields import Field, NvmlFieldValues, read_fields
from .gpm import GpmSampler
from .links import GpuTopology
from .lost import KERNEL, lost_boards
from .mig import NOT_WITH_MIG, SLOW_NOT_WITH_MIG, MigInstance, MigInstanceSet
from .processes import NvmlProcessLists
from .samples import NvmlSampleBuffers
from .session import NvmlSession, none_opened, notes
from .sleep import DEVICES, BoardPowerStates
from .slow import FastReadingContext, NvmlSlowMetrics, allocated_bytes, unseen_bytes

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
        self, clock: Callable[[], float] = time.monotonic, kernel: Path = KERNEL,
        devices: Path = DEVICES,
    ) -> None:
        self._clock = clock
        self._session = NvmlSession()
        self._sleep = BoardPowerStates(devices, kernel)
        self._boards = _boards(self._session, self._sleep, kernel)
        self._blind_reads, self._has_seen = 0, False
        self._read_at: float | None = None
        self._processes_at: float | None = None
        self._slow_at: float | None = None
        self._topology = GpuTopology()
        self._events: NvmlEventWatcher | None = None

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        self._events = NvmlEventWatcher({board.facts.uuid: board.handle for board in self._boards
                                         if board.handle is not None}, tell)

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        taken_at = time.time()
        slow = _is_due(self._slow_at, now, SLOW_EVERY_S)
        if self._sleep.unnamed_woke():
            raise StaleReaderError
        self._look_around(now)
        # Before the Gpus: what nobody holds is told from the two together.
        processes = self._processes(now, slow)
        accounted = () if processes is None else tuple(
            each for board in self._boards for each in board.accounted(processes, taken_at))
        read = [board.read_all(now, slow) for board in self._boards]
        self._give_up_if_blind([board_and_instances[0] for board_and_instances in read])
        if slow:
            self._slow_at = now
            self._topology.learn([(board, board.facts.pci_bus_id, board.nvlinks_up)
                                  for board in self._boards if board.is_here])
        self._session.renew_if_lost(self._boards, now)
        self._session.check(self._boards)
        facts = tuple(device.facts for device in self._devices())
        return Reading(
            taken_at=taken_at, interval_s=interval_s, facts=facts,
            gpus=tuple(gpu for board_and_instances in read for gpu in board_and_instances),
            processes=processes, driver_version=self._session.driver,
            links=self._topology.links([each.uuid for each in facts]),
            detail=notes(self._boards, self._session.shut)[:1_024], accounted=accounted,
        )

    def _devices(self) -> "list[NvmlBoard | MigInstance]":
        """Each board, and after it its MIG instances."""
        devices: list[NvmlBoard | MigInstance] = []
        for board in self._boards:
            devices += [board, *board.instances.all]
        return devices

    def fresh(self) -> OnDemandReading:
        self._look_around(self._clock())
        devices = self._devices()
        fresh = OnDemandReading(tuple(each for device in devices for each in device.list_now()),
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
            gpu.state == "ok" and Absence.PRESENT not in gpu.absent
            and UNKNOWN in gpu.absent for gpu in awake)
        self._blind_reads = self._blind_reads + 1 if blind else 0
        self._has_seen = self._has_seen or not blind
        if self._blind_reads >= (BLIND_READS_MAX if self._has_seen else 1):
            raise unavailable(NvmlReturnCode.UNKNOWN)

    def _processes(self, now: float, wanted: bool) -> tuple[ProcessReading, ...] | None:
        if not wanted and not _is_due(self._processes_at, now, PROCESSES_EVERY_S):
            return None
        self._processes_at = now
        return tuple(process for device in self._devices() for process in device.processes(now))

    def close(self) -> None:
        if self._events is None or self._events.close():
            self._session.close()


def _is_due(last: float | None, now: float, every_s: float) -> bool:
    """Half a second early, so that a tick a few ms short of it counts."""
    return last is None or now - last >= every_s - 0.5


def _boards(session: NvmlSession, sleep: BoardPowerStates, kernel: Path) -> "list[NvmlBoard]":
    """Without those that the driver counts and does not let us see (A.1)."""
    count = min(session.count, MAX_GPUS)
    sleepers = sleep.sleepers(count)
    found = list(session.open(count, frozenset(sleepers)))
    boards = [NvmlBoard(each.handle, GpuFacts(uuid=each.uuid, index=each.index, name="NVIDIA GPU"))
              for each in found if not each.code]
    boards += [NvmlBoard(None, known.facts(index)) for index, known in sleepers.items() if known]
    known = frozenset(board.facts.uuid for board in boards)
    lost = [each.index for each in found if each.code == NvmlReturnCode.GPU_IS_LOST]
    if lost:
        boards += [NvmlBoard(None, facts) for facts in lost_boards(lost, known, kernel)]
    listed = {board.facts.index for board in boards}
    session.shut = tuple(each for each in found if each.index not in listed)
    if not boards:
        raise none_opened(found, len(sleepers))
    return sorted(boards, key=lambda board: board.facts.index)


class NvmlBoard(NvmlDevice):
    """One Gpu: its handle, what it never reports, and what differences are taken from."""

    def __init__(self, handle: Any, facts: GpuFacts) -> None:
        super().__init__(handle, facts.uuid)
        self.facts = facts
        self._lost_at: float | None = None
        self._lists = NvmlProcessLists(self.ask, facts.uuid,
                                       lambda row: not self.instances.owns(row))
        self._allocated: float | Absence = UNKNOWN
        self._accounting = NvmlAccounting(self.ask, facts.uuid)
        self.instances = MigInstanceSet(self)
        self._begin()

    def _begin(self) -> None:
        """With nothing to take differences from, as after a reset."""
        self._limits_at: float | None = None
        self.pending: tuple[str, ...] = ()  # modes that wait for a reset, for people
        self._counters = {PCIE_TX: MonotonicCounter(hides_32=True),
                          PCIE_RX: MonotonicCounter(hides_32=True)}
        self._samples = NvmlSampleBuffers(self)
        self._gpm = GpmSampler(GPM)
        self._ran = False  # a kernel, since the last slow reading
        self._slow = NvmlSlowMetrics(self)
        self._slow_at: float | None = None
        self._missing_fast: Mapping[str, str] = {}
        self._missing_slow: Mapping[str, str] = {}

    @property
    def is_here(self) -> bool:
        return self._lost_at is None and not self.asleep

    @property
    def lost_at(self) -> float | None:
        return self._lost_at

    @property
    def counts_nothing(self) -> bool:
        """GPM says 0 while kernels run."""
        return self._gpm.is_dead

    @property
    def nvlinks_up(self) -> int | None:
        return self._slow.nvlinks.up

    def look(self, now: float) -> None:
        """For its MIG instances."""
        if self._lost_at is not None or self.asleep:
            return
        self.now = now
        try:
            if self.instances.look(now):
                self.forget()  # the answers are others with MIG on
                self._begin()
        except GpuLostError:
            self._lost_at = now

    def read_all(self, now: float, slow: bool) -> list[GpuReading]:
        """Its own, then those of its MIG instances: who has lost a board has lost them too."""
        own, instances = self.read(now, slow), self.instances.all
        try:
            if own.state != "lost":
                return [own, *(each.read(now, slow) for each in instances)]
        except GpuLostError:
            self._lost_at = now
        return [own, *(each.lost() for each in instances)]

    def read(self, now: float, slow: bool = False) -> GpuReading:
        if self.asleep:
            return GpuReading(self.facts.uuid, "ok", (0.0,) * WIDTH,
                              bytes([UNKNOWN]) * WIDTH)
        if self._lost_at is not None:
            if now - self._lost_at < LOST_ASKED_EVERY_S:
                return self._lost()
            self.doubt()
            self.forget()
            self._begin()
        self.begin(now)
        try:
            reading = self._read(now, slow or self._slow_at is None)
        except GpuLostError:
            self._lost_at = now
            return self._lost()
        self._lost_at = None
        return reading

    def _read(self, now: float, slow: bool) -> GpuReading:
        answers = read_fields(self, (*FIELDS, *self._slow.fields()) if slow else FIELDS)
        memory, temp_c = self._memory(), self._temperature()
        if self._limits_at is None or now - self._limits_at >= LIMITS_EVERY_S:
            self.facts, self._limits_at = read_facts(self, self.facts, memory, temp_c), now
            self.pending = read_pending(self)
        row = self._read_row(now, answers, memory, temp_c)
        slow_row = None
        if slow:
            around = FastReadingContext(memory, temp_c, self.facts.temp_slowdown_c,
                                        self._unseen_bytes(now, memory), self._ran)
            self._ran = False
            slow_row = self._slow.read(self._handle, now, answers, around)
            self._withhold(slow_row, SLOW_NOT_WITH_MIG)
            self._slow_at = now
            self._missing_slow = slow_row.missing()
        fast = row.missing()
        if slow or fast is not self._missing_fast:
            self._missing_fast, missing = fast, {**fast, **self._missing_slow}
            if missing != self.facts.missing:
                self.facts = structs.replace(self.facts, missing=missing)
        return GpuReading(
            self.facts.uuid, "ok", tuple(row.values), bytes(row.absent),
            slow=() if slow_row is None else tuple(slow_row.values),
            slow_absent=b"" if slow_row is None else bytes(slow_row.absent),
        )

    def _lost(self) -> GpuReading:
        absent = bytes([LOST]) * WIDTH
        return GpuReading(self.facts.uuid, "lost", (0.0,) * WIDTH, absent)

    def _unseen_bytes(self, now: float, memory: Any) -> "float | Absence":
        if self.instances.is_on:
            return UNSUPPORTED  # its instances tell it, and whose it is
        return unseen_bytes(self._allocated, allocated_bytes(memory), self._lists.amounts(now))

    def _read_row(self, now: float, answers: NvmlFieldValues, memory: Any,
                  temp_c: Any) -> MetricRow:
        row = MetricRow()
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

    def _put_utilization(self, row: MetricRow) -> None:
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
        self._withhold(row, NOT_WITH_MIG)

    def _withhold(self, row: MetricRow, keys: tuple[str, ...]) -> None:
        """What MIG takes away, whatever the driver says."""
        if self.instances.is_on:
            for key in keys:
                row.put(key, UNSUPPORTED)

    def _put_power(self, row: MetricRow, answers: NvmlFieldValues) -> None:
        sampled = self._samples.mean_and_peak(
            pynvml.NVML_TOTAL_POWER_SAMPLES, metric("power_w").high * 1_000)
        if sampled is not None:
            mean, peak = sampled
        else:
            mean = peak = self.ask("nvmlDeviceGetPowerUsage")
            instant = answers.number(POWER_INSTANT)
            if type(mean) is not Absence and type(instant) is not Absence:
                peak = max(mean, instant)
        row.put("power_w", mean, 1e-3)
        row.put("power_max_w", peak, 1e-3)
        energy = answers.number(ENERGY)
        if type(energy) is Absence:
            energy = self.ask("nvmlDeviceGetTotalEnergyConsumption")
        row.put("energy_j", energy, 1e-3)

    def _put_traffic(self, row: MetricRow, answers: NvmlFieldValues, now: float) -> None:
        at = COLUMN["util_max_pct"]
        ran = row.absent[at] == Absence.PRESENT and row.values[at] > 0
        self._ran |= ran
        gpm = self._gpm.read(self._handle, now, self.why, ran)
        row.put("sm_active_pct", gpm.get(pynvml.NVML_GPM_METRIC_SM_UTIL, self._gpm.absence))
        for key, field, number in (
            ("pcie_tx_bytes_per_s", PCIE_TX, pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC),
            ("pcie_rx_bytes_per_s", PCIE_RX, pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC),
        ):
            counted = answers.counted(field)
            if type(counted) is not Absence:
                row.put(key, self._counters[field].rate(*counted, now))
            elif isinstance(sampled := gpm.get(number), float):
                row.put(key, sampled, 2**20)
            else:
                row.put(key, counted)

    def mem_used_now(self) -> float | None:
        if self.asleep:
            return None
        try:
            memory = self._memory()
        except GpuLostError:
            return None
        return None if type(memory) is Absence else float(memory.used)

    def energy_now(self) -> float | None:
        if self.asleep:
            return None
        try:
            energy = self.ask("nvmlDeviceGetTotalEnergyConsumption")
        except GpuLostError:
            return None
        return None if isinstance(energy, Absence) else float(energy) * 1e-3

    def _memory(self) -> Any:
        answer = self.ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        if answer is UNSUPPORTED:  # before 510 there is no second version
            answer = self.ask("nvmlDeviceGetMemoryInfo")
        return answer

    def _temperature(self) -> "float | Absence":
        answer: float | Absence = self.first(
            "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature",
            arguments=(pynvml.NVML_TEMPERATURE_GPU,),
        )
        return answer

    def accounted(self, listed: Sequence[ProcessReading], at: float) -> tuple[ProcessAccounting,
                                                                              ...]:
        """Of those that have left the list."""
        if not self.is_here or self._lists.is_refused:
            return ()
        pids = [each.pid for each in listed if each.gpu_uuid == self.facts.uuid]
        try:
            return self._accounting.ended(bool(self.facts.accounting_on), pids, at)
        except GpuLostError:
            self._lost_at = self.now
            return ()

    def processes(self, now: float) -> tuple[ProcessReading, ...]:
        if self.is_here:
            self.now = now
            try:
                self._allocated = allocated_bytes(self._memory())
                return self._lists.read(now)
            except GpuLostError:
                self._lost_at = now
        return self._lists.kept(now)

    def list_now(self) -> tuple[ProcessReading, ...]:
        """A lost Gpu holds nobody's memory, and one with a task on it does not sleep."""
        if self.asleep:
            return ()
        try:
            return self._lists.fresh()
        except GpuLostError:
            return ()
