"""One board through NVML: its values, its MIG instances and its processes."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from gpudeck.metrics import LOST, UNKNOWN, UNSUPPORTED, WIDTH, Absence
from gpudeck.wire import GpuFacts

from ...readings import GpuReading, ProcessAccounting, ProcessReading
from .accounting import NvmlAccounting
from .ask import GpuLostError, NvmlDevice
from .facts import read_facts, read_pending
from .fast import FIELDS, NvmlFastMetrics, read_memory, read_temperature
from .fields import read_fields
from .mig import SLOW_NOT_WITH_MIG, MigInstanceSet, withhold
from .processes import NvmlProcessLists
from .slow import FastReadingContext, NvmlSlowMetrics, allocated_bytes, unseen_bytes

LOST_ASKED_EVERY_S = 15.0
LIMITS_EVERY_S = 60.0


class NvmlBoard(NvmlDevice):
    """One GPU: its handle, what it never reports, and the counters that rates are taken from."""

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
        self._fast = NvmlFastMetrics(self)
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
        return self._fast.is_gpm_dead

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
        memory, temp_c = read_memory(self), read_temperature(self)
        if self._limits_at is None or now - self._limits_at >= LIMITS_EVERY_S:
            self.facts, self._limits_at = read_facts(self, self.facts, memory, temp_c), now
            self.pending = read_pending(self)
        row = self._fast.read(now, answers, memory, temp_c, bool(self.instances.is_on))
        slow_row = None
        if slow:
            around = FastReadingContext(memory, temp_c, self.facts.temp_slowdown_c,
                                        self._unseen_bytes(now, memory), self._fast.take_ran())
            slow_row = self._slow.read(self._handle, now, answers, around)
            withhold(slow_row, SLOW_NOT_WITH_MIG, bool(self.instances.is_on))
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

    def mem_used_now(self) -> float | None:
        if self.asleep:
            return None
        try:
            memory = read_memory(self)
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
                self._allocated = allocated_bytes(read_memory(self))
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
