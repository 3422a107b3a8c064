"""Metrics of one GPU that are read every 15 s: health, modes, links, codecs, limits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

from gpudeck.metrics import UNKNOWN, UNSUPPORTED, Absence, metric

from ..metric_row import MetricRow, MonotonicCounter
from .ask import NvmlDevice, taken
from .fields import Field, NvmlFieldValues
from .gpm import GpmSampler
from .links import NvLinkCounters

MIB = 2**20
# The driver's own bookkeeping per process is nobody's; what is less than this is not worth a word.
UNSEEN_MIN_BYTES = 32 * MIB


def _whole(answer: Any) -> Any:
    return answer


def _head(answer: Any) -> Any:
    return answer[0]


class NvmlCall(NamedTuple):
    name: str
    arguments: tuple[Any, ...] = ()
    take: Callable[[Any], Any] = _whole


def _row_of(at: int) -> NvmlCall:
    return NvmlCall("nvmlDeviceGetRemappedRows", (), lambda rows: rows[at])


CALLS: dict[str, NvmlCall] = {
    "pstate": NvmlCall("nvmlDeviceGetPerformanceState"),
    "graphics_clock_mhz": NvmlCall("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_GRAPHICS,)),
    "video_clock_mhz": NvmlCall("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_VIDEO,)),
    "enc_util_pct": NvmlCall("nvmlDeviceGetEncoderUtilization", (), _head),
    "dec_util_pct": NvmlCall("nvmlDeviceGetDecoderUtilization", (), _head),
    "jpg_util_pct": NvmlCall("nvmlDeviceGetJpgUtilization", (), _head),
    "ofa_util_pct": NvmlCall("nvmlDeviceGetOfaUtilization", (), _head),
    "bar1_used_bytes": NvmlCall("nvmlDeviceGetBAR1MemoryInfo", (),
                                lambda bar1: float(bar1.bar1Used)),
    "pcie_gen": NvmlCall("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie_width": NvmlCall("nvmlDeviceGetCurrPcieLinkWidth"),
    "fan_rpm": NvmlCall("nvmlDeviceGetFanSpeedRPM"),
    "compute_mode": NvmlCall("nvmlDeviceGetComputeMode"),
    "persistence": NvmlCall("nvmlDeviceGetPersistenceMode"),
    "mig_on": NvmlCall("nvmlDeviceGetMigMode", (), _head),
}
LIMITS: dict[str, str] = {
    "power_limit_w": "nvmlDeviceGetEnforcedPowerLimit",
    "power_limit_set_w": "nvmlDeviceGetPowerManagementLimit",
}
# metric: its field, and the call of drivers and boards that do not have it
FIELDS: dict[str, tuple[int, NvmlCall | None]] = {
    "ecc_on": (pynvml.NVML_FI_DEV_ECC_CURRENT, NvmlCall("nvmlDeviceGetEccMode", (), _head)),
    "ecc_corrected": (pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
                      NvmlCall("nvmlDeviceGetTotalEccErrors", (0, 0))),
    "ecc_uncorrected": (pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
                        NvmlCall("nvmlDeviceGetTotalEccErrors", (1, 0))),
    "ecc_corrected_ever": (pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
                           NvmlCall("nvmlDeviceGetTotalEccErrors", (0, 1))),
    "ecc_uncorrected_ever": (pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
                             NvmlCall("nvmlDeviceGetTotalEccErrors", (1, 1))),
    "rows_corrected": (pynvml.NVML_FI_DEV_REMAPPED_COR, _row_of(0)),
    "rows_uncorrected": (pynvml.NVML_FI_DEV_REMAPPED_UNC, _row_of(1)),
    "rows_pending": (pynvml.NVML_FI_DEV_REMAPPED_PENDING, _row_of(2)),
    "rows_failed": (pynvml.NVML_FI_DEV_REMAPPED_FAILURE, _row_of(3)),
    "pages_corrected": (pynvml.NVML_FI_DEV_RETIRED_SBE,
                        NvmlCall("nvmlDeviceGetRetiredPages_v2", (0,), len)),
    "pages_uncorrected": (pynvml.NVML_FI_DEV_RETIRED_DBE,
                          NvmlCall("nvmlDeviceGetRetiredPages_v2", (1,), len)),
    "pages_pending": (pynvml.NVML_FI_DEV_RETIRED_PENDING,
                      NvmlCall("nvmlDeviceGetRetiredPagesPendingStatus")),
    "pcie_replays": (pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER,
                     NvmlCall("nvmlDeviceGetPcieReplayCounter")),
    "recovery_action": (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, None),
}
# Nanoseconds since the driver was loaded.
SLOWED: dict[str, int] = {
    "slowed_power_pct": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
    "slowed_sync_pct": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
    "slowed_soft_thermal_pct": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    "slowed_hard_thermal_pct": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
    "slowed_brake_pct": pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
}
GPM: dict[str, int] = {
    "gr_active_pct": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_occupancy_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class FastReadingContext(NamedTuple):
    """What the fast reading knows already."""

    memory: Any  # of nvmlDeviceGetMemoryInfo, or an Absence
    temp_c: "float | Absence"
    temp_slowdown_c: float | None
    unseen_bytes: "float | Absence"
    ran: bool  # a kernel, since the last slow reading


class NvmlSlowMetrics:
    """The counters behind the slow metrics of one Gpu."""

    def __init__(self, asker: NvmlDevice) -> None:
        self._asker = asker
        self._slowed = {key: MonotonicCounter() for key in SLOWED}
        # Its own pair of samples: a mean over these 15 s.
        self._gpm = GpmSampler(tuple(GPM.values()))
        self.nvlinks = NvLinkCounters(asker)

    def fields(self) -> list[Field]:
        """For the one call that asks for the fast ones too."""
        numbers = [number for number, _ in FIELDS.values()] + list(SLOWED.values())
        return [(number, 0) for number in numbers] + self.nvlinks.fields()

    def read(self, handle: Any, now: float, answers: NvmlFieldValues,
             around: FastReadingContext) -> MetricRow:
        row = MetricRow.slow()
        for key, call in CALLS.items():
            row.put(key, self._ask(call))
        for key, name in LIMITS.items():
            row.put(key, self._asker.ask(name), 1e-3)
        for key, (number, otherwise) in FIELDS.items():
            row.put(key, self._field(answers, (number, 0), otherwise))
        for key, number in SLOWED.items():
            counted = answers.counted((number, 0))
            row.put(key, counted if type(counted) is Absence
                    else self._slowed[key].share_pct(*counted, now))
        measured = self._gpm.read(handle, now, self._asker.why, around.ran)
        for key, number in GPM.items():
            row.put(key, measured.get(number, self._gpm.absence))
        self.nvlinks.put(row, answers, now)
        self._put_memory(row, around)
        row.put("temp_margin_c", self._margin(around))
        return row

    def _ask(self, call: NvmlCall) -> Any:
        return taken(self._asker.ask(call.name, *call.arguments), call.take)

    def _field(self, answers: NvmlFieldValues, field: Field, otherwise: NvmlCall | None) -> Any:
        said = answers.number(field)
        if type(said) is not Absence or otherwise is None:
            return said
        called = self._ask(otherwise)
        if type(called) is Absence and said is not UNSUPPORTED:
            return said
        return called

    def _put_memory(self, row: MetricRow, around: FastReadingContext) -> None:
        memory = around.memory
        if type(memory) is not Absence:  # before 510 there is no second version
            memory = float(memory.reserved) if hasattr(memory, "reserved") else UNSUPPORTED
        row.put("mem_reserved_bytes", memory)
        row.put("mem_unseen_bytes", around.unseen_bytes)

    def _margin(self, around: FastReadingContext) -> Any:
        said = self._asker.ask("nvmlDeviceGetMarginTemperature")
        if said is not UNSUPPORTED or type(around.temp_c) is Absence:
            return said
        if around.temp_slowdown_c is None:
            return said
        return around.temp_slowdown_c - around.temp_c


def allocated_bytes(memory: Any) -> "float | Absence":
    """What processes hold. Whether `used` counts the driver's reserve in differs by version of
    the call and of the driver; what is neither free nor reserved does not."""
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
    """Held by no process of the list. `before` and `after` it was read: one that ended or began
    in between must not look like memory that nobody holds."""
    if type(before) is Absence or type(after) is Absence:
        return before if type(before) is Absence else after
    if listed is None or any(each is None for each in listed):
        return UNKNOWN
    unseen = min(before, after) - sum(each for each in listed if each is not None)
    return unseen if unseen >= UNSEEN_MIN_BYTES else 0.0
