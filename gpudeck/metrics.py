"""The one table of metrics: key, unit, label, meaning, range, Prometheus name, aggregate.

Flags, pages, the API, the docs and the exporter are made from it. A value outside `low..high`
is a driver sentinel or a lie and is never shown: it becomes `unknown`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


class Absence(IntEnum):
    """Why a number is not there. PRESENT is 0 so that a fresh array claims nothing is missing
    only after someone has written it."""

    PRESENT = 0
    UNSUPPORTED = 1
    DENIED = 2
    STALE = 3
    LOST = 4
    UNKNOWN = 5

    @property
    def word(self) -> str:
        return self.name.lower()


ABSENCE_MEANING: dict[Absence, str] = {
    Absence.UNSUPPORTED: "this board or driver does not report it",
    Absence.DENIED: "the driver refuses it to the agent's user",
    Absence.STALE: "the last reading is too old to be called live",
    Absence.LOST: "the driver has lost this Gpu",
    Absence.UNKNOWN: "the driver gave no usable answer this time",
}

Aggregate = Literal["mean", "max", "last", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    unit: str
    label: str
    meaning: str
    low: float
    high: float
    aggregate: Aggregate
    prometheus: str | None = None
    # What a colour scale divides by: a fixed full value, or the static fact of each Gpu.
    full: float | None = None
    full_fact: str | None = None
    filter_name: str | None = None


# The 14 live metrics: every Frame carries them at 1 Hz, in this order.
LIVE: tuple[Metric, ...] = (
    Metric(
        "util_pct", "%", "GPU utilization",
        "Share of the time in which any kernel ran, not share of the chip: one tiny kernel can "
        "make it 100. SM activity and power are the better witnesses.",
        0, 100, "mean", "DCGM_FI_DEV_GPU_UTIL", full=100, filter_name="util",
    ),
    Metric(
        "mem_util_pct", "%", "Memory bandwidth time",
        "Share of the time in which memory was being read or written. Not memory used.",
        0, 100, "mean", "DCGM_FI_DEV_MEM_COPY_UTIL", full=100, filter_name="memutil",
    ),
    Metric(
        "sm_active_pct", "%", "SM activity",
        "Share of the streaming multiprocessors that had work, averaged over the interval. "
        "Measured by GPM on Hopper and newer boards.",
        0, 100, "mean", "DCGM_FI_PROF_SM_ACTIVE", full=100, filter_name="sm",
    ),
    Metric(
        "mem_used_bytes", "B", "Memory used",
        "Memory in use on the board, the driver's own reserve included.",
        0, 2**42, "last", "DCGM_FI_DEV_FB_USED", full_fact="mem_total_bytes", filter_name="mem",
    ),
    Metric(
        "temp_c", "°C", "Temperature",
        "Temperature of the GPU core. The board slows itself down at its own threshold.",
        -40, 150, "last", "DCGM_FI_DEV_GPU_TEMP", full=100, filter_name="temp",
    ),
    Metric(
        "mem_temp_c", "°C", "Memory temperature",
        "Temperature of the HBM stacks; boards with other memory do not report it.",
        -40, 150, "last", "DCGM_FI_DEV_MEMORY_TEMP", full=100, filter_name="memtemp",
    ),
    Metric(
        "power_w", "W", "Power",
        "Power drawn by the board, averaged over the interval.",
        0, 5_000, "mean", "DCGM_FI_DEV_POWER_USAGE", full_fact="power_limit_w",
        filter_name="power",
    ),
    Metric(
        "energy_j", "J", "Energy",
        "Energy drawn since the driver was loaded, from the board's own counter.",
        0, 1e15, "counter", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", filter_name="energy",
    ),
    Metric(
        "sm_clock_mhz", "MHz", "SM clock",
        "Present clock of the streaming multiprocessors.",
        0, 10_000, "last", "DCGM_FI_DEV_SM_CLOCK", full_fact="sm_clock_max_mhz",
        filter_name="clock",
    ),
    Metric(
        "mem_clock_mhz", "MHz", "Memory clock",
        "Present clock of the board's memory.",
        0, 50_000, "last", "DCGM_FI_DEV_MEM_CLOCK", full_fact="mem_clock_max_mhz",
        filter_name="memclock",
    ),
    Metric(
        "fan_pct", "%", "Fan",
        "Fan speed the board intends; it may exceed 100. Passively cooled boards have none.",
        0, 250, "last", "DCGM_FI_DEV_FAN_SPEED", full=100, filter_name="fan",
    ),
    Metric(
        "throttle_bits", "", "Throttle reasons",
        "Why the clocks are below their maximum, as the driver's bit mask. Idle is not a fault.",
        0, 2**40, "last", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", filter_name="throttle",
    ),
    Metric(
        "pcie_tx_bytes_per_s", "B/s", "PCIe sent",
        "Bytes the Gpu sent over PCIe per second, from its byte counter.",
        0, 1e12, "mean", "DCGM_FI_PROF_PCIE_TX_BYTES", full=64e9, filter_name="pcietx",
    ),
    Metric(
        "pcie_rx_bytes_per_s", "B/s", "PCIe received",
        "Bytes the Gpu received over PCIe per second, from its byte counter.",
        0, 1e12, "mean", "DCGM_FI_PROF_PCIE_RX_BYTES", full=64e9, filter_name="pcierx",
    ),
)

# The maxima that travel beside the means, so that a burst between two ticks is seen.
MAXIMA: tuple[Metric, ...] = (
    Metric(
        "util_max_pct", "%", "GPU utilization, peak",
        "Highest utilization the driver sampled within the interval.",
        0, 100, "max", full=100, filter_name="utilmax",
    ),
    Metric(
        "power_max_w", "W", "Power, peak",
        "Highest power the driver sampled within the interval.",
        0, 5_000, "max", full_fact="power_limit_w", filter_name="powermax",
    ),
)

# A row of a Frame, in order.
COLUMNS: tuple[Metric, ...] = LIVE + MAXIMA
COLUMN: dict[str, int] = {metric.key: at for at, metric in enumerate(COLUMNS)}
WIDTH = len(COLUMNS)

THROTTLE_REASONS: dict[int, str] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


def metric(key: str) -> Metric:
    return COLUMNS[COLUMN[key]]


def throttle_words(bits: int) -> list[str]:
    """Every reason in the mask, an unknown bit by its number."""
    known = [word for bit, word in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return known + ([f"unknown ({rest:#x})"] if rest else [])
