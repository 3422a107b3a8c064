"""Parts that a board and a MIG instance have in common: facts, memory, and the shape of a
reading."""

from collections.abc import Mapping
from typing import Any

import pynvml
from msgspec import structs

from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import LOST, UNKNOWN, UNSUPPORTED, WIDTH, Absence, metric

from ...readings import GpuReading
from ..metric_row import MetricRow
from .ask import GpuLostError, NvmlDevice

MIB = 2**20
# The driver's own bookkeeping per process is nobody's; what is less than this is not worth a word.
UNSEEN_MIN_BYTES = 32 * MIB


class NvmlGpu(NvmlDevice):
    def __init__(self, handle: Any, facts: GpuFacts) -> None:
        super().__init__(handle, facts.uuid)
        self.facts = facts
        self._allocated: float | Absence = UNKNOWN  # before its processes were listed
        self._has_slow = False  # it was asked for its slow metrics
        self._missing_fast: Mapping[str, str] = {}
        self._missing_slow: Mapping[str, str] = {}

    def memory(self) -> Any:
        answer = self.ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        if answer is UNSUPPORTED:  # before 510 there is no second version
            answer = self.ask("nvmlDeviceGetMemoryInfo")
        return answer

    def mem_used_now(self) -> float | None:
        if self.asleep:
            return None
        try:
            memory = self.memory()
        except GpuLostError:
            return None
        return None if type(memory) is Absence else float(memory.used)

    def lost_reading(self) -> GpuReading:
        return GpuReading(self.facts.uuid, "lost", (0.0,) * WIDTH, bytes([LOST]) * WIDTH)

    def _make_reading(self, row: MetricRow, slow_row: MetricRow | None) -> GpuReading:
        """Make a reading; note what it does not report among its facts."""
        fast = row.missing()
        if slow_row is not None:
            self._has_slow, self._missing_slow = True, slow_row.missing()
        if slow_row is not None or fast is not self._missing_fast:
            self._missing_fast, missing = fast, {**fast, **self._missing_slow}
            if missing != self.facts.missing:
                self.facts = structs.replace(self.facts, missing=missing)
        return GpuReading(
            self.facts.uuid, "ok", tuple(row.values), bytes(row.absent),
            slow=() if slow_row is None else tuple(slow_row.values),
            slow_absent=b"" if slow_row is None else bytes(slow_row.absent),
        )


def allocated_bytes(memory: Any) -> "float | Absence":
    """Return what processes hold. Whether `used` counts the driver's reserve in differs by version
    of the call and of the driver; what is neither free nor reserved does not."""
    if type(memory) is Absence:
        return memory
    if not hasattr(memory, "reserved"):
        return UNSUPPORTED
    allocated = float(memory.total) - float(memory.free) - float(memory.reserved)
    sane = 0 <= allocated <= metric("mem_unseen_bytes").high
    return allocated if sane else UNKNOWN


def unseen_bytes(
    before: "float | Absence", after: "float | Absence", listed: "list[float | None] | None"
) -> "float | Absence":
    """Return what no process of the list holds. `before` and `after` it was read: one that ended or
    began in between must not look like memory that nobody holds."""
    if type(before) is Absence or type(after) is Absence:
        return before if type(before) is Absence else after
    if listed is None or any(amount is None for amount in listed):
        return UNKNOWN
    unseen = min(before, after) - sum(amount for amount in listed if amount is not None)
    return unseen if unseen >= UNSEEN_MIN_BYTES else 0.0
