"""The metrics of a board: those of every second, and those of every 15 s, which are health, modes,
links, codecs and limits."""

from operator import itemgetter
from typing import Any

import pynvml

from gpudeck.measures.metrics import COLUMN, UNSUPPORTED, Absence, metric

from ..metric_row import MetricRow, MonotonicCounter
from .ask import NvmlCall, map_answer
from .fields import Field, NvmlFieldValues, NvmlSampleBuffers
from .gpm import GpmSampler
from .gpu import NvmlGpu
from .links import NvLinkCounters

# A MIG-enabled board does not report these; a driver's 0 means "not reported" then (pitfall 7).
NOT_WITH_MIG = ("util_pct", "util_max_pct", "mem_util_pct")
SLOW_NOT_WITH_MIG = ("enc_util_pct", "dec_util_pct", "jpg_util_pct", "ofa_util_pct")
MEMORY_TEMP: Field = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)
ENERGY: Field = (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0)
POWER_INSTANT: Field = (pynvml.NVML_FI_DEV_POWER_INSTANT, 0)
# Never nvmlDeviceGetPcieThroughput: it blocks for 20 ms a call.
PCIE_TX: Field = (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0)
PCIE_RX: Field = (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0)
FAST_FIELDS = (MEMORY_TEMP, ENERGY, POWER_INSTANT, PCIE_TX, PCIE_RX)
FAST_GPM = {"sm_active_pct": pynvml.NVML_GPM_METRIC_SM_UTIL}
PCIE_GPM = (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC)


_head = itemgetter(0)


def _row_of(at: int) -> NvmlCall:
    return NvmlCall("nvmlDeviceGetRemappedRows", (), itemgetter(at))


SLOW_CALLS: dict[str, NvmlCall] = {
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
    "power_limit_w": NvmlCall("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
    "power_limit_set_w": NvmlCall("nvmlDeviceGetPowerManagementLimit", scale=1e-3),
}
# metric: its field, and the call of drivers and boards that do not have it
SLOW_FIELDS: dict[str, tuple[int, NvmlCall | None]] = {
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
SLOW_GPM: dict[str, int] = {
    "gr_active_pct": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_occupancy_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class NvmlBoardMetrics:
    """The counters and sample buffers behind the metrics of one board."""

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self._counters = {PCIE_TX: MonotonicCounter(hides_32=True),
                          PCIE_RX: MonotonicCounter(hides_32=True)}
        self._slowed = {key: MonotonicCounter() for key in SLOWED}
        self._samples = NvmlSampleBuffers(gpu)
        self._gpm = GpmSampler((*FAST_GPM.values(), *PCIE_GPM))
        # Its own pair of samples: a mean over these 15 s.
        self._slow_gpm = GpmSampler(tuple(SLOW_GPM.values()))
        self._ran = False  # a kernel, since the last slow reading
        self.nvlinks = NvLinkCounters(gpu)

    @property
    def is_gpm_dead(self) -> bool:
        """GPM says 0 while kernels run."""
        return self._gpm.is_dead

    def fields(self, slow: bool) -> list[Field]:
        """Return all that the one call for fields is to ask for."""
        if not slow:
            return [*FAST_FIELDS]
        numbers = [number for number, _ in SLOW_FIELDS.values()] + list(SLOWED.values())
        return [*FAST_FIELDS, *((number, 0) for number in numbers), *self.nvlinks.fields()]

    def fast(self, now: float, answers: NvmlFieldValues, memory: Any, temp_c: Any,
             has_mig: bool) -> MetricRow:
        row, ask = MetricRow(), self._gpu.ask
        self._put_utilization(row)
        withhold(row, NOT_WITH_MIG, has_mig)
        self._put_power(row, answers)
        self._put_traffic(row, answers, now)
        row.put("mem_used_bytes", map_answer(memory, lambda info: float(info.used)))
        row.put("temp_c", temp_c)
        row.put("mem_temp_c", answers.number(MEMORY_TEMP))
        row.put("sm_clock_mhz", ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM))
        row.put("mem_clock_mhz", ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM))
        row.put("fan_pct", ask("nvmlDeviceGetFanSpeed"))
        row.put("throttle_bits", self._gpu.first(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        ))
        return row

    def slow(self, now: float, answers: NvmlFieldValues, memory: Any, temp_c: Any,
             unseen: "float | Absence", has_mig: bool) -> MetricRow:
        row = MetricRow.slow()
        for key, call in SLOW_CALLS.items():
            row.put(key, self._gpu.call(call), call.scale)
        for key, (number, otherwise) in SLOW_FIELDS.items():
            row.put(key, self._field(answers, (number, 0), otherwise))
        for key, number in SLOWED.items():
            counter = answers.counter((number, 0))
            row.put(key, counter if type(counter) is Absence
                    else self._slowed[key].share_pct(*counter, now))
        ran, self._ran = self._ran, False
        self._slow_gpm.put(row, SLOW_GPM, self._gpu.handle, now, self._gpu.why, ran)
        self.nvlinks.put(row, answers, now)
        if type(memory) is not Absence:  # before 510 there is no second version
            memory = float(memory.reserved) if hasattr(memory, "reserved") else UNSUPPORTED
        row.put("mem_reserved_bytes", memory)
        row.put("mem_unseen_bytes", unseen)
        row.put("temp_margin_c", self._margin(temp_c))
        withhold(row, SLOW_NOT_WITH_MIG, has_mig)
        return row

    def _put_utilization(self, row: MetricRow) -> None:
        gpu = self._samples.mean_and_peak(
            pynvml.NVML_GPU_UTILIZATION_SAMPLES, metric("util_pct").high)
        memory = self._samples.mean_and_peak(
            pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, metric("mem_util_pct").high)
        rates = None
        if gpu is None or memory is None:
            rates = self._gpu.ask("nvmlDeviceGetUtilizationRates")
        mean, peak = gpu or (map_answer(rates, lambda info: float(info.gpu)),) * 2
        row.put("util_pct", mean)
        row.put("util_max_pct", peak)
        row.put("mem_util_pct", map_answer(rates, lambda info: float(info.memory))
                if memory is None else memory[0])

    def _put_power(self, row: MetricRow, answers: NvmlFieldValues) -> None:
        sampled = self._samples.mean_and_peak(
            pynvml.NVML_TOTAL_POWER_SAMPLES, metric("power_w").high * 1_000)
        if sampled is not None:
            mean, peak = sampled
        else:
            mean = peak = self._gpu.ask("nvmlDeviceGetPowerUsage")
            instant = answers.number(POWER_INSTANT)
            if type(mean) is not Absence and type(instant) is not Absence:
                peak = max(mean, instant)
        row.put("power_w", mean, 1e-3)
        row.put("power_max_w", peak, 1e-3)
        energy = answers.number(ENERGY)
        if type(energy) is Absence:
            energy = self._gpu.ask("nvmlDeviceGetTotalEnergyConsumption")
        row.put("energy_j", energy, 1e-3)

    def _put_traffic(self, row: MetricRow, answers: NvmlFieldValues, now: float) -> None:
        at = COLUMN["util_max_pct"]
        ran = row.absent[at] == Absence.PRESENT and row.values[at] > 0
        self._ran |= ran
        gpm = self._gpm.put(row, FAST_GPM, self._gpu.handle, now, self._gpu.why, ran)
        for key, field, number in (("pcie_tx_bytes_per_s", PCIE_TX, PCIE_GPM[0]),
                                   ("pcie_rx_bytes_per_s", PCIE_RX, PCIE_GPM[1])):
            counter = answers.counter(field)
            if type(counter) is not Absence:
                row.put(key, self._counters[field].rate(*counter, now))
            elif isinstance(sampled := gpm.get(number), float):
                row.put(key, sampled, 2**20)
            else:
                row.put(key, counter)

    def _field(self, answers: NvmlFieldValues, field: Field, otherwise: NvmlCall | None) -> Any:
        answer = answers.number(field)
        if type(answer) is not Absence or otherwise is None:
            return answer
        fallback = self._gpu.call(otherwise)
        if type(fallback) is Absence and answer is not UNSUPPORTED:
            return answer
        return fallback

    def _margin(self, temp_c: Any) -> Any:
        margin = self._gpu.ask("nvmlDeviceGetMarginTemperature")
        slowdown_c = self._gpu.facts.temp_slowdown_c
        if margin is not UNSUPPORTED or type(temp_c) is Absence or slowdown_c is None:
            return margin
        return slowdown_c - temp_c


def withhold(row: MetricRow, keys: tuple[str, ...], is_on: bool) -> None:
    """Withhold what MIG takes away, whatever the driver says."""
    if is_on:
        for key in keys:
            row.put(key, UNSUPPORTED)
