"""A board through NVML: its values, its MIG instances and its processes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pynvml
from msgspec import structs

from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMN, UNKNOWN, UNSUPPORTED, WIDTH, Absence

from ...readings import GpuReading, ProcessAccounting, ProcessReading
from .ask import GpuLostError
from .facts import read_facts, read_pending
from .fields import read_fields
from .gpu import NvmlGpu, allocated_bytes, unseen_bytes
from .group_memory import own_limit
from .metrics import FAST_GPM, NvmlBoardMetrics
from .mig import MigInstanceSet
from .processes import NvmlAccounting, NvmlProcessLists

LOST_ASKED_EVERY_S = 15.0
LIMITS_EVERY_S = 60.0
FAILED_READS_MAX = 5
MEMORY, UTILIZATION = COLUMN["mem_used_bytes"], COLUMN["util_pct"]

Answer = TypeVar("Answer")


class NvmlBoard(NvmlGpu):
    """A GPU with its handle, what it never reports, and the counters that rates are taken from."""

    def __init__(self, handle: Any, facts: GpuFacts) -> None:
        super().__init__(handle, facts)
        self.lost_at: float | None = None
        self._lists = NvmlProcessLists(self, facts.uuid,
                                       lambda row: not self.instances.owns(row))
        self._accounting = NvmlAccounting(self)
        self.instances = MigInstanceSet(self)
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing to take differences from, as after a reset."""
        self._limits_at: float | None = None
        self._own_limit: Any = None  # of the control group that this process is in
        self.pending: tuple[str, ...] = ()  # modes that wait for a reset, for people
        self.metrics = NvmlBoardMetrics(self)
        self._has_slow, self._missing_fast, self._missing_slow = False, {}, {}
        self._failed_reads = 0  # in a row

    @property
    def is_here(self) -> bool:
        return self.lost_at is None and not self.asleep

    def look(self, now: float) -> None:
        """Look for its MIG instances."""
        if not self.is_here:
            return
        self.now = now
        if self._while_here(lambda: self.instances.look(now)):
            self.forget()  # the answers are others with MIG on
            self._begin()

    def _while_here(self, ask: Callable[[], Answer]) -> Answer | None:
        """Return the answer; None: the board is lost."""
        try:
            return ask()
        except GpuLostError:
            self.lost_at = self.now
            return None

    def read_all(self, now: float, slow: bool) -> list[GpuReading]:
        """Read its own values, then those of its MIG instances, which are lost with their board."""
        own, instances = self.read(now, slow), self.instances.all
        if own.state != "lost":
            readings = self._while_here(
                lambda: [instance.read(now, slow) for instance in instances])
            if readings is not None:
                return [own, *readings]
        return [own, *(instance.lost_reading() for instance in instances)]

    def read(self, now: float, slow: bool = False) -> GpuReading:
        if self.asleep:
            return GpuReading(self.facts.uuid, "ok", (0.0,) * WIDTH,
                              bytes([UNKNOWN]) * WIDTH)
        if self.lost_at is not None:
            if now - self.lost_at < LOST_ASKED_EVERY_S:
                return self.lost_reading()
            self.doubt()
            self.forget()
            self._begin()
        self.begin(now)
        self.lost_at = None
        return (self._while_here(lambda: self._read(now, slow or not self._has_slow))
                or self.lost_reading())

    def _read(self, now: float, slow: bool) -> GpuReading:
        answers = read_fields(self, self.metrics.fields(slow))
        is_due = self._limits_at is None or now - self._limits_at >= LIMITS_EVERY_S
        if is_due:
            self._own_limit = self.ask(own_limit)
        memory = self.memory()
        has_mig = bool(self.instances.is_on)
        temp_c = self.first("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature",
                            arguments=(pynvml.NVML_TEMPERATURE_GPU,))
        if is_due:
            self.facts, self._limits_at = read_facts(self, self.facts, memory, temp_c), now
            self.pending = read_pending(self)
        row = self.metrics.fast(now, answers, memory, temp_c, has_mig)
        reading = self._make_reading(row, self.metrics.slow(
            now, answers, memory, temp_c, self._unseen_bytes(now, memory), has_mig)
            if slow else None)
        self._failed_reads = self._failed_reads + 1 if _fails(reading.absent) else 0
        return (structs.replace(reading, state="error")
                if self._failed_reads >= FAILED_READS_MAX else reading)

    def _unseen_bytes(self, now: float, memory: Any) -> "float | Absence":
        if self.instances.is_on:
            return UNSUPPORTED  # its instances tell it, and whose it is
        return unseen_bytes(self._allocated, allocated_bytes(memory), self._lists.amounts(now))

    def memory(self) -> Any:
        """Return its memory. To a process in a group with a limit the driver says that group's."""
        return UNKNOWN if type(self._own_limit) is int else super().memory()

    def energy_now(self) -> float | None:
        if self.asleep:
            return None
        try:
            energy = self.ask("nvmlDeviceGetTotalEnergyConsumption")
        except GpuLostError:
            return None
        return None if isinstance(energy, Absence) else float(energy) * 1e-3

    def accounted(self, listed: Sequence[ProcessReading], at: float) -> tuple[ProcessAccounting,
                                                                              ...]:
        """Return the accounting of processes that have left the list."""
        if not self.is_here or self._lists.is_refused:
            return ()
        pids = [process.pid for process in listed if process.gpu_uuid == self.facts.uuid]
        return self._while_here(
            lambda: self._accounting.read_ended(bool(self.facts.accounting_on), pids, at)) or ()

    def processes(self, now: float) -> tuple[ProcessReading, ...]:
        if self.is_here:
            self.now = now
            self._while_here(lambda: self._list(now))
        return self._lists.last_listed(now)

    def _list(self, now: float) -> None:
        self._allocated = allocated_bytes(self.memory())
        self._lists.read(now)

    def list_now(self) -> tuple[ProcessReading, ...]:
        """List them now. A lost GPU holds nobody's memory, and one with a task on it does not
        sleep."""
        if self.asleep:
            return ()
        try:
            return self._lists.fresh()
        except GpuLostError:
            return ()

    def note(self) -> str:
        """Return what is wrong with it while the rest is read, and what to do; it comes after its
        name."""
        if self.asleep:
            return "is asleep (powered down) and was not woken to be read."
        if self.lost_at is not None:
            return ("is lost: look for its Xid in `dmesg`; reset it or reboot, and check its seat "
                    "and power.")
        if self._failed_reads >= FAILED_READS_MAX:
            return ("fails every driver call: look for its Xid in `dmesg`; drain the node, then "
                    "reset the GPU or reboot.")
        if self.needs_reset:
            return ("must be reset before it works again: end its tasks, then run "
                    f"`sudo nvidia-smi --gpu-reset -i {self.facts.uuid}`, or reboot.")
        if type(self._own_limit) is int:
            return ("answers this agent with the memory limit of the agent's own control group, so "
                    "its memory is not known: start the agent in a group without a limit.")
        if self.metrics.is_gpm_dead:
            return ("runs kernels and all of its performance counters (GPM) say 0: SM activity and "
                    "the like are unknown while it works. Another profiler may be using them; "
                    "resetting the GPU or reloading the driver brings them back.")
        return f"waits for a reset: {'; '.join(self.pending)}." if self.pending else ""


def _fails(absent: bytes) -> bool:
    """Return whether nothing is known but, at most, how much memory is in use, which the kernel
    module answers by itself, and what GPM counts, where utilization fails and is not just
    unsupported."""
    present = {at for at, why in enumerate(absent) if why == Absence.PRESENT}
    answers = {MEMORY} | ({COLUMN[key] for key in FAST_GPM} if absent[UTILIZATION] == UNKNOWN
                          else set())
    return UNKNOWN in absent and present <= answers
