"""NVIDIA boards through NVML. The only pynvml, with nvml_gpm and nvml_mig.

Every call is guarded per Gpu and per field: one bad field is an Absence, one bad Gpu a state.
What a board or driver lacks (NOT_SUPPORTED, no such symbol) is remembered and not asked again;
a fresh process forgets it, see reader_process. Sources of the quirks: nvml-mps.md A, citing
nvml.h and pynvml 13.615.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml
from msgspec import structs

from gpudeck.metrics import COLUMNS, WIDTH, Absence
from gpudeck.wire import MAX_GPUS, GpuFacts

from . import Fresh, GpuReading, ProcessReading, Reading, Unavailable
from .nvml_errors import NEVER, NO_DRIVER, Code, Lost, no_gpus, unavailable, why
from .nvml_gpm import Gpm
from .nvml_lists import Held, Kept, held
from .nvml_lost import KERNEL, lost_boards
from .nvml_mig import NOT_WITH_MIG, Instance, Instances
from .row import Counter, Row

PROCESSES_EVERY_S = 2.0
LOST_ASKED_EVERY_S = 15.0
LIMITS_EVERY_S = 60.0
BLIND_READS_MAX = 5

MEMORY_TEMP = pynvml.NVML_FI_DEV_MEMORY_TEMP
ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
POWER_INSTANT = pynvml.NVML_FI_DEV_POWER_INSTANT
# Never nvmlDeviceGetPcieThroughput: it blocks for 20 ms a call.
PCIE_TX = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
PCIE_RX = pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
FIELDS = (MEMORY_TEMP, ENERGY, POWER_INSTANT, PCIE_TX, PCIE_RX)

_UNION_MEMBER = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal",
                 6: "usVal"}

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

    def read(self) -> Reading:
        now = self._clock()
        interval_s = 1.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        taken_at = time.time()
        gpus = tuple(gpu for board in self._boards for gpu in board.read_all(now, taken_at))
        self._give_up_if_blind(gpus)
        return Reading(
            taken_at=taken_at, interval_s=interval_s, gpus=gpus,
            facts=tuple(device.facts for device in self._devices()),
            processes=self._processes(now), driver_version=self._driver,
            happenings=tuple(each for board in self._boards
                             for each in board.instances.happened()),
        )

    def _devices(self) -> "list[Board | Instance]":
        """Each board, and after it its MIG instances."""
        devices: list[Board | Instance] = []
        for board in self._boards:
            devices += [board, *board.instances.all]
        return devices

    def fresh(self) -> Fresh:
        for board in self._boards:
            board.look(self._clock(), time.time())
        devices = self._devices()
        return Fresh(tuple(each for device in devices for each in device.list_now()),
                     {device.facts.uuid: device.mem_used_now() for device in devices})

    def _give_up_if_blind(self, gpus: tuple[GpuReading, ...]) -> None:
        """A container that lost access to its devices gets Unknown Error for everything (A.6):
        only a fresh process, or a restart of the container, helps."""
        blind = all(gpu.state == "ok" and Absence.PRESENT not in gpu.absent for gpu in gpus)
        self._blind_reads = self._blind_reads + 1 if blind else 0
        if self._blind_reads >= BLIND_READS_MAX:
            raise unavailable(Code.UNKNOWN)

    def _processes(self, now: float) -> tuple[ProcessReading, ...] | None:
        # Half a period early, so that a tick a few ms short of two seconds counts.
        if self._processes_at is not None and now - self._processes_at < PROCESSES_EVERY_S - 0.5:
            return None
        self._processes_at = now
        return tuple(process for device in self._devices() for process in device.processes(now))

    def close(self) -> None:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            print(f"nvmlShutdown: {error}", file=sys.stderr)


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


class Board:
    """One Gpu: its handle, what it never reports, and what differences are taken from."""

    def __init__(self, handle: Any, facts: GpuFacts) -> None:
        self.handle = handle  # None: lost before we had one
        self._never: dict[Any, Absence] = {}
        self._fields = list(FIELDS)
        self._counters = {PCIE_TX: Counter(), PCIE_RX: Counter()}
        self._sampled_to: dict[int, int] = {}
        self._gpm = Gpm()
        self._lost_at: float | None = None
        self._limits_at: float | None = None
        self._busy_to = 0
        self._busy: dict[int, float] = {}
        self._silent_busy = 0
        self._kept = Kept()
        self.facts = facts
        self.instances = Instances(self, lambda device: Board(device, facts))

    def read_all(self, now: float, at: float) -> list[GpuReading]:
        """Its own and those of its MIG instances; a board that is lost has lost them too."""
        self.look(now, at)
        own = self.read(now)
        if own.state == "lost":
            return [own, *(each.lost() for each in self.instances.all)]
        try:
            return [own, *(each.read(now) for each in self.instances.all)]
        except Lost:
            return [own, *(each.lost() for each in self.instances.all)]

    def look(self, now: float, at: float) -> None:
        try:
            if self._lost_at is None and self.instances.look(now, at):
                self._never.clear()  # the answers are others with MIG on
                self._fields, self._gpm = list(FIELDS), Gpm()
        except Lost:
            self._lost_at = now

    def read(self, now: float) -> GpuReading:
        if self._lost_at is not None and now - self._lost_at < LOST_ASKED_EVERY_S:
            return self._lost()
        try:
            if self._limits_at is None or now - self._limits_at >= LIMITS_EVERY_S:
                self.facts, self._limits_at = self._read_facts(), now
            row = self._read_row(now)
        except Lost:
            self._lost_at = now
            return self._lost()
        self._lost_at = None
        self._tell_missing(row)
        return GpuReading(self.facts.uuid, "ok", tuple(row.values), bytes(row.absent))

    def _reopen(self) -> None:
        if self.handle is None:
            try:
                self.handle = pynvml.nvmlDeviceGetHandleByUUID(self.facts.uuid)
            except pynvml.NVMLError:
                raise Lost from None

    def _lost(self) -> GpuReading:
        absent = bytes([Absence.LOST]) * WIDTH
        return GpuReading(self.facts.uuid, "lost", (0.0,) * WIDTH, absent)

    def ask(self, name: str, *arguments: Any, question: Any = None) -> Any:
        """The answer of this pynvml function, or an Absence. `question` is what a refusal is
        remembered by, where the arguments change from call to call."""
        question = question or (name, *arguments)
        if question in self._never:
            return self._never[question]
        self._reopen()
        try:
            return getattr(pynvml, name)(self.handle, *arguments)
        except pynvml.NVMLError as error:
            absence = why(error.value)
            if error.value in NEVER:
                self._never[question] = absence
            return absence
        except (pynvml.NVMLLibraryMismatchError, AttributeError):
            self._never[question] = Absence.UNSUPPORTED
            return Absence.UNSUPPORTED

    def first(self, *names: str, arguments: Sequence[Any] = ()) -> Any:
        """The first of these that this driver has: newer and older names of one thing."""
        answer: Any = Absence.UNSUPPORTED
        for name in names:
            answer = self.ask(name, *arguments)
            if answer is not Absence.UNSUPPORTED:
                break
        return answer

    def _read_row(self, now: float) -> Row:
        row = Row()
        fields = self._read_fields()
        self._put_utilization(row)
        self._put_power(row, fields)
        self._put_traffic(row, fields, now)
        memory = self._memory()
        row.put("mem_used_bytes", _of(memory, lambda: float(memory.used)))
        row.put("temp_c", self._temperature())
        row.put("mem_temp_c", _known(fields, MEMORY_TEMP))
        row.put("sm_clock_mhz", self.ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM))
        row.put("mem_clock_mhz", self.ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM))
        row.put("fan_pct", self.ask("nvmlDeviceGetFanSpeed"))
        row.put("throttle_bits", self.first(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        ))
        return row

    def _put_utilization(self, row: Row) -> None:
        rates = self.ask("nvmlDeviceGetUtilizationRates")
        now_pct = _of(rates, lambda: float(rates.gpu))
        mean, peak = self._samples(pynvml.NVML_GPU_UTILIZATION_SAMPLES, 100) or (now_pct, now_pct)
        row.put("util_pct", mean)
        row.put("util_max_pct", peak)
        row.put("mem_util_pct", _of(rates, lambda: float(rates.memory)))
        if self.instances.is_on:
            for key in NOT_WITH_MIG:
                row.put(key, Absence.UNSUPPORTED)

    def _put_power(self, row: Row, fields: dict[int, Any]) -> None:
        sampled = self._samples(pynvml.NVML_TOTAL_POWER_SAMPLES, 5_000_000)
        if sampled is not None:
            mean, peak = sampled
        else:
            mean = peak = self.ask("nvmlDeviceGetPowerUsage")
            instant = _known(fields, POWER_INSTANT)
            if not isinstance(mean, Absence) and not isinstance(instant, Absence):
                peak = max(mean, instant)
        row.put("power_w", mean, 1e-3)
        row.put("power_max_w", peak, 1e-3)
        energy = _known(fields, ENERGY)
        if isinstance(energy, Absence):
            energy = self.ask("nvmlDeviceGetTotalEnergyConsumption")
        row.put("energy_j", energy, 1e-3)

    def _put_traffic(self, row: Row, fields: dict[int, Any], now: float) -> None:
        gpm = self._gpm.read(self.handle, now, why)
        row.put("sm_active_pct", gpm.get(pynvml.NVML_GPM_METRIC_SM_UTIL, self._gpm.absence))
        for key, field, metric in (
            ("pcie_tx_bytes_per_s", PCIE_TX, pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC),
            ("pcie_rx_bytes_per_s", PCIE_RX, pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC),
        ):
            count = _known(fields, field)
            if not isinstance(count, Absence):
                row.put(key, self._counters[field].rate(int(count), fields[field][1], now))
            elif metric in gpm:
                row.put(key, gpm[metric], 2**20)
            else:
                row.put(key, count)

    def _read_fields(self) -> dict[int, Any]:
        """field -> (number, bits), or an Absence."""
        answers: dict[int, Any] = {
            field: Absence.UNSUPPORTED for field in FIELDS if field not in self._fields
        }
        if not self._fields:
            return answers
        found = self.ask("nvmlDeviceGetFieldValues", self._fields, question="fields")
        if isinstance(found, Absence):
            return answers | dict.fromkeys(self._fields, found)
        for each in found:
            # The call succeeds if any field did: each has a verdict of its own.
            if each.nvmlReturn == pynvml.NVML_SUCCESS:
                member = _UNION_MEMBER.get(each.valueType, "ullVal")
                bits = 32 if each.valueType in (1, 5) else 64
                answers[each.fieldId] = (getattr(each.value, member), bits)
            else:
                answers[each.fieldId] = why(each.nvmlReturn)
        self._fields = [field for field in self._fields
                        if answers[field] is not Absence.UNSUPPORTED]
        return answers

    def _samples(self, kind: int, sane_max: int) -> tuple[float, float] | None:
        """Mean and maximum of what the driver itself sampled since the last time."""
        since = self._sampled_to.get(kind, 0)
        answer = self.ask("nvmlDeviceGetSamples", kind, since, question=("samples", kind))
        if isinstance(answer, Absence):
            return None
        member = _UNION_MEMBER.get(answer[0], "uiVal")
        fresh = [(each.timeStamp, float(getattr(each.sampleValue, member)))
                 for each in answer[1] if each.timeStamp > since]
        if not fresh:
            return None
        newest = self._sampled_to[kind] = max(at for at, _ in fresh)
        # The first time the whole buffer comes, history and all.
        values = [value for at, value in fresh
                  if 0 <= value <= sane_max and (since or at > newest - 1_000_000)]
        return (sum(values) / len(values), max(values)) if values else None

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

    def _read_facts(self) -> GpuFacts:
        memory = self._memory()
        pci = self.ask("nvmlDeviceGetPciInfo")
        limit_mw = self.first(
            "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"
        )
        name = self.ask("nvmlDeviceGetName")
        return structs.replace(
            self.facts,
            name=(_fact(name) and str(name)[:128]) or self.facts.name,
            pci_bus_id=_of(pci, lambda: str(pci.busId)[:128] or None, None),
            mem_total_bytes=_of(memory, lambda: float(memory.total), None),
            power_limit_w=_of(limit_mw, lambda: limit_mw / 1_000, None),
            sm_clock_max_mhz=_fact(self.ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM)),
            mem_clock_max_mhz=_fact(self.ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM)),
            temp_shutdown_c=_fact(self.ask("nvmlDeviceGetTemperatureThreshold", 0)),
            temp_slowdown_c=_fact(self.ask("nvmlDeviceGetTemperatureThreshold", 1)),
        )

    def _tell_missing(self, row: Row) -> None:
        missing = {
            metric.key: Absence(absent).word
            for metric, absent in zip(COLUMNS, row.absent, strict=True)
            if absent in (Absence.UNSUPPORTED, Absence.DENIED)
        }
        if missing != self.facts.missing:
            self.facts = structs.replace(self.facts, missing=missing)

    def processes(self, now: float) -> tuple[ProcessReading, ...]:
        rows = None
        if self._lost_at is None:
            try:
                rows = self._list()
            except Lost:
                self._lost_at = now
        return self._kept.take(rows, now)

    def list_now(self) -> tuple[ProcessReading, ...]:
        """Without shares of time, which are differences. A lost Gpu holds nobody's memory."""
        try:
            found = self._held()
        except Lost:
            return ()
        if found is None:
            raise Unavailable("failed", f"Gpu {self.facts.index} does not list its processes")
        return tuple(ProcessReading(pid, self.facts.uuid, memory, None, kind)
                     for pid, (memory, kind) in found.items())

    def _list(self) -> tuple[ProcessReading, ...] | None:
        found = self._held()
        if found is None:
            return None
        busy = self._busy_pct(found)
        return tuple(
            ProcessReading(pid, self.facts.uuid, memory, busy.get(pid), kind)
            for pid, (memory, kind) in found.items()
        )

    def _held(self) -> Held | None:
        """None: it would not say this time. With MIG on, what its instances do not tell."""
        found = held(self.first, lambda each: not self.instances.owns(each))
        if found is Absence.UNKNOWN:
            return None
        return {} if isinstance(found, Absence) else found

    def _busy_pct(self, listed: dict[int, Any]) -> dict[int, float]:
        """SM share by pid. An idle process has no row; when nobody was busy there is no answer
        at all. Rows may hold garbage: foreign pids, shares over 100 (nvtop's checks)."""
        if not listed:
            return {}
        rows = self.ask("nvmlDeviceGetProcessUtilization", self._busy_to, question="busy")
        if rows in (Absence.UNSUPPORTED, Absence.DENIED):
            return {}
        if isinstance(rows, Absence):
            self._silent_busy += 1
            # Twice nothing over four seconds: nobody was busy. Once may be bad timing.
            if self._busy_to and self._silent_busy >= 2:
                self._busy = {}
                return dict.fromkeys(listed, 0.0)
            return {pid: self._busy[pid] for pid in listed if pid in self._busy}
        self._silent_busy = 0
        first, since = self._busy_to == 0, self._busy_to
        fresh = [row for row in rows if row.timeStamp > since]
        self._busy_to = max([row.timeStamp for row in fresh], default=since)
        if first:  # an average over the whole buffer: dead processes and all
            return {}
        self._busy = dict.fromkeys(listed, 0.0)
        for row in fresh:
            shares = (row.smUtil, row.memUtil, row.encUtil, row.decUtil)
            if row.pid in listed and max(shares) <= 100:
                self._busy[row.pid] = float(row.smUtil)
        return self._busy


def _of(answer: Any, take: Callable[[], Any], otherwise: Any = ...) -> Any:
    """What `take` makes of an answer; of an Absence, itself or `otherwise`."""
    if isinstance(answer, Absence):
        return answer if otherwise is ... else otherwise
    return take()


def _fact(answer: Any) -> Any:
    return None if isinstance(answer, Absence) else answer


def _known(fields: dict[int, Any], field: int) -> Any:
    answer = fields[field]
    return answer if isinstance(answer, Absence) else answer[0]
