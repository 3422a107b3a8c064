"""MIG: the instances of a board, each listed as a GPU beside its parent.

What NVML does with MIG on (nvml.h; pitfalls.md A.2, A.3 and 7): no utilization
rates, neither of the board nor of an instance; only memory and GPM are an instance's own, heat,
power and clocks are the board's. Handles come by place, with gaps where one was destroyed. The
board's process list is that of all its instances, and only for the privileged.
"""

from math import ceil
from typing import Any

import pynvml
from msgspec import structs

from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMNS, SLOW, Absence, Metric

from ...readings import GpuReading, ProcessReading
from ..metric_row import MetricRow
from .ask import GpuLostError, NvmlDevice, map_answer
from .gpm import GpmSampler
from .gpu import NvmlGpu, allocated_bytes, unseen_bytes
from .metrics import FAST_GPM, SLOW_GPM
from .processes import NvmlProcessLists

OFF_LOOKED_AT_EVERY_S = 15.0
MIG_MODE_ON = 1
# Facts of the board that are its instances' too.
OF_ITS_BOARD = ("index", "pci_bus_id", "minor", "serial", "compute_capability", "numa_node")
# No such place, nobody in it, or somebody we have no access to.
_EMPTY = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED,
          pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_NOT_FOUND)
_NO_SUCH_CALL = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED,
                 pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

Ids = tuple[int, int]  # of GPU instance and compute instance


class MigInstance(NvmlGpu):
    def __init__(self, parent: NvmlGpu, handle: Any, uuid: str, ids: Ids) -> None:
        super().__init__(handle, GpuFacts(uuid, parent.facts.index, parent.facts.name))
        self._parent = parent
        self._gpm = GpmSampler(tuple(FAST_GPM.values()), self._take_sample)
        self._slow_gpm = GpmSampler(tuple(SLOW_GPM.values()), self._take_sample)
        self._has_own_gpm_call = True
        # Its own lists need no privilege; a host of vGPUs has only the board's.
        self._own = self._lists = NvmlProcessLists(self, uuid)
        self._of_board = NvmlProcessLists(parent, uuid, lambda row: ids_of(row) == self.ids)
        self.ids = ids
        # GPM measures GPU instances, and memory is theirs too: whose the figure is nobody can
        # say where several compute instances are in one.
        self.is_alone = True
        self._read_facts()

    def read(self, now: float, slow: bool) -> GpuReading:
        self.now = now
        memory = self.memory()
        row = _unsupported(MetricRow(), COLUMNS)
        row.put("mem_used_bytes", map_answer(memory, lambda info: float(info.used)))
        if self.is_alone:
            self._gpm.put(row, FAST_GPM, self._parent.handle, now, self.why)
        slow_row = None
        if slow or not self._has_slow:
            self._read_facts()  # nobody says that a UUID comes with one size only
            slow_row = self._read_slow(now, memory)
        self._follow_board(memory)
        return self._make_reading(row, slow_row)

    def _read_slow(self, now: float, memory: Any) -> MetricRow:
        row = _unsupported(MetricRow.slow(), SLOW)
        if hasattr(memory, "reserved"):
            row.put("mem_reserved_bytes", float(memory.reserved))
        if self.is_alone:
            row.put("mem_unseen_bytes", unseen_bytes(
                self._allocated, allocated_bytes(memory), self._lists.amounts(now)))
            self._slow_gpm.put(row, SLOW_GPM, self._parent.handle, now, self.why)
        return row

    def _take_sample(self, board: Any, sample: Any) -> None:
        """Take a sample by the call that nvml.h has for this, or by the handle where the driver
        lacks it."""
        if self._has_own_gpm_call:
            try:
                pynvml.nvmlGpmMigSampleGet(board, self.ids[0], sample)
                return
            except pynvml.NVMLError as error:
                if error.value not in _NO_SUCH_CALL:
                    raise
                self._has_own_gpm_call = False
        pynvml.nvmlGpmSampleGet(self.handle, sample)

    def _read_facts(self) -> None:
        """Read its own facts. Those of its board come with the first reading."""
        board, was = self._parent.facts, self.facts
        name = self.ask("nvmlDeviceGetName")
        size = self.ask("nvmlDeviceGetAttributes_v2")
        full_name = board.name if type(name) is Absence else str(name)[:128]
        self.facts = GpuFacts(
            uuid=self.uuid, index=board.index, name=full_name, parent_uuid=board.uuid,
            mig_profile=_profile(full_name, size), gpu_instance=self.ids[0],
            compute_instance=self.ids[1], missing=was.missing,
            mem_total_bytes=None if type(size) is Absence else size.memorySizeMB * 2.0**20,
        )

    def _follow_board(self, memory: Any) -> None:
        """A new instance, or its board, may report some values only later."""
        board, total = self._parent.facts, self.facts.mem_total_bytes
        now = structs.replace(
            self.facts, mem_total_bytes=total if type(memory) is Absence else float(memory.total),
            **{name: getattr(board, name) for name in OF_ITS_BOARD},
        )
        if now != self.facts:
            self.facts = now

    def processes(self, now: float) -> tuple[ProcessReading, ...]:
        self.now = now
        try:
            self._allocated = allocated_bytes(self.memory())
            rows = self._own.read(now)
            self._lists = self._of_board if self._own.is_refused else self._own
            return self._of_board.read(now) if self._own.is_refused else rows
        except GpuLostError:
            return self._lists.last_listed(now)  # the next reading says so

    def list_now(self) -> tuple[ProcessReading, ...]:
        """List them now. A lost GPU holds nobody's memory."""
        try:
            rows = self._own.fresh()
            return self._of_board.fresh() if self._own.is_refused else rows
        except GpuLostError:
            return ()


class MigInstanceSet:
    """Instances of one board, as they are at each look: identified by UUID, never by place."""

    def __init__(self, parent: NvmlGpu) -> None:
        self._parent = parent
        self._by_place: dict[int, MigInstance] = {}
        self._most = 0  # places
        self._looked_at: float | None = None
        self.is_on: bool | None = None  # None: not known yet

    @property
    def all(self) -> tuple[MigInstance, ...]:
        return tuple(self._by_place.values())

    def look(self, now: float) -> bool:
        """Look for instances; return whether MIG has been switched since the last look."""
        if self._is_soon(now):
            return False
        mode = self._parent.ask("nvmlDeviceGetMigMode")
        if mode is Absence.UNKNOWN:
            return False
        self._looked_at = now
        was, self.is_on = self.is_on, type(mode) is not Absence and mode[0] == MIG_MODE_ON
        self._by_place = self._find_instances() if self.is_on else {}
        return was is not None and was != self.is_on

    def owns(self, process: Any) -> bool:
        """Return whether one of the board's instances reports this row too."""
        return any(instance.ids == ids_of(process) for instance in self.all)

    def _is_soon(self, now: float) -> bool:
        """Switching MIG on takes an idle board; instances come and go while we look on."""
        return (not self.is_on and self._looked_at is not None
                and now - self._looked_at < OFF_LOOKED_AT_EVERY_S)

    def _find_instances(self) -> dict[int, MigInstance]:
        most = self._parent.ask("nvmlDeviceGetMaxMigDeviceCount")
        self._most = self._most if type(most) is Absence else most
        by_uuid = {instance.facts.uuid: instance for instance in self.all}
        instances: dict[int, MigInstance] = {}
        for place in range(self._most):
            instance = self._at(place, by_uuid)
            if instance is not None and instance not in instances.values():
                instances[place] = instance
        for member in instances.values():
            member.is_alone = sum(
                member.ids[0] == other.ids[0] for other in instances.values()) == 1
        return instances

    def _at(self, place: int, by_uuid: dict[str, MigInstance]) -> MigInstance | None:
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self._parent.handle, place)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            if error.value in _EMPTY:
                return None
            self._parent.why(error.value)
            return self._by_place.get(place)  # no answer this time: as it was
        if uuid in by_uuid:
            by_uuid[uuid].handle = handle
            return by_uuid[uuid]
        return self._open_instance(handle, uuid)

    def _open_instance(self, handle: Any, uuid: str) -> MigInstance | None:
        """Open an instance. Without its ids it waits for the next look: its tasks could be taken
        for the board's."""
        device = NvmlDevice(handle, uuid)
        ids = [device.ask(f"nvmlDeviceGet{part}InstanceId") for part in ("Gpu", "Compute")]
        if type(ids[0]) is Absence or type(ids[1]) is Absence:
            return None
        return MigInstance(self._parent, handle, uuid, (int(ids[0]), int(ids[1])))


def _unsupported(row: MetricRow, metrics: tuple[Metric, ...]) -> MetricRow:
    for metric in metrics:
        row.put(metric.key, Absence.UNSUPPORTED)
    return row


def ids_of(process: Any) -> Ids:
    return process.gpuInstanceId, process.computeInstanceId


def _profile(name: str, size: Any) -> str | None:
    """Return the profile as NVIDIA names it: in the device's own name, else from its slices, memory
    rounded up."""
    _, mig, profile = name.rpartition(" MIG ")
    if mig and profile:
        return profile
    if type(size) is Absence or not size.gpuInstanceSliceCount:
        return None
    whole = f"{size.gpuInstanceSliceCount}g.{ceil(size.memorySizeMB / 1024)}gb"
    part = size.computeInstanceSliceCount
    return whole if part in (0, size.gpuInstanceSliceCount) else f"{part}c.{whole}"
