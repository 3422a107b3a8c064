"""The metrics of a board that are read every second."""

from typing import Any

import pynvml

from gpudeck.metrics import COLUMN, UNSUPPORTED, Absence, metric

from ..metric_row import MetricRow, MonotonicCounter
from .ask import NvmlDevice, taken
from .fields import Field, NvmlFieldValues
from .gpm import GpmSampler
from .mig import NOT_WITH_MIG, withhold
from .samples import NvmlSampleBuffers

MEMORY_TEMP: Field = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)
ENERGY: Field = (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0)
POWER_INSTANT: Field = (pynvml.NVML_FI_DEV_POWER_INSTANT, 0)
# Never nvmlDeviceGetPcieThroughput: it blocks for 20 ms a call.
PCIE_TX: Field = (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0)
PCIE_RX: Field = (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0)
FIELDS = (MEMORY_TEMP, ENERGY, POWER_INSTANT, PCIE_TX, PCIE_RX)
GPM = (pynvml.NVML_GPM_METRIC_SM_UTIL, pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
       pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC)


class NvmlFastMetrics:
    """The counters and sample buffers behind the fast metrics of one GPU."""

    def __init__(self, asker: NvmlDevice) -> None:
        self._asker = asker
        self._counters = {PCIE_TX: MonotonicCounter(hides_32=True),
                          PCIE_RX: MonotonicCounter(hides_32=True)}
        self._samples = NvmlSampleBuffers(asker)
        self._gpm = GpmSampler(GPM)
        self._ran = False

    @property
    def is_gpm_dead(self) -> bool:
        """GPM says 0 while kernels run."""
        return self._gpm.is_dead

    def take_ran(self) -> bool:
        """Whether a kernel ran since the last call."""
        ran, self._ran = self._ran, False
        return ran

    def read(self, now: float, answers: NvmlFieldValues, memory: Any, temp_c: Any,
             has_mig: bool) -> MetricRow:
        row = MetricRow()
        self._put_utilization(row)
        withhold(row, NOT_WITH_MIG, has_mig)
        self._put_power(row, answers)
        self._put_traffic(row, answers, now)
        row.put("mem_used_bytes", taken(memory, lambda said: float(said.used)))
        row.put("temp_c", temp_c)
        row.put("mem_temp_c", answers.number(MEMORY_TEMP))
        row.put("sm_clock_mhz", self._asker.ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM))
        row.put("mem_clock_mhz", self._asker.ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM))
        row.put("fan_pct", self._asker.ask("nvmlDeviceGetFanSpeed"))
        row.put("throttle_bits", self._asker.first(
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
            rates = self._asker.ask("nvmlDeviceGetUtilizationRates")
        mean, peak = gpu or (taken(rates, lambda said: float(said.gpu)),) * 2
        row.put("util_pct", mean)
        row.put("util_max_pct", peak)
        row.put("mem_util_pct", taken(rates, lambda said: float(said.memory))
                if memory is None else memory[0])

    def _put_power(self, row: MetricRow, answers: NvmlFieldValues) -> None:
        sampled = self._samples.mean_and_peak(
            pynvml.NVML_TOTAL_POWER_SAMPLES, metric("power_w").high * 1_000)
        if sampled is not None:
            mean, peak = sampled
        else:
            mean = peak = self._asker.ask("nvmlDeviceGetPowerUsage")
            instant = answers.number(POWER_INSTANT)
            if type(mean) is not Absence and type(instant) is not Absence:
                peak = max(mean, instant)
        row.put("power_w", mean, 1e-3)
        row.put("power_max_w", peak, 1e-3)
        energy = answers.number(ENERGY)
        if type(energy) is Absence:
            energy = self._asker.ask("nvmlDeviceGetTotalEnergyConsumption")
        row.put("energy_j", energy, 1e-3)

    def _put_traffic(self, row: MetricRow, answers: NvmlFieldValues, now: float) -> None:
        at = COLUMN["util_max_pct"]
        ran = row.absent[at] == Absence.PRESENT and row.values[at] > 0
        self._ran |= ran
        gpm = self._gpm.read(self._asker.handle, now, self._asker.why, ran)
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


def read_memory(asker: NvmlDevice) -> Any:
    answer = asker.ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    if answer is UNSUPPORTED:  # before 510 there is no second version
        answer = asker.ask("nvmlDeviceGetMemoryInfo")
    return answer


def read_temperature(asker: NvmlDevice) -> "float | Absence":
    answer: float | Absence = asker.first(
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature",
        arguments=(pynvml.NVML_TEMPERATURE_GPU,),
    )
    return answer
