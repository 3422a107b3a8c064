"""The one table of metrics: key, unit, label, meaning, range, Prometheus name, aggregate.

Flags, pages, the API, the docs and the exporter are made from it. A value outside `low..high`
is a driver sentinel or a lie and is never shown: it becomes `unknown`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, final


@final
class Absence(IntEnum):
    """Reason why a number is missing; PRESENT (0): it is not."""

    PRESENT = 0
    UNSUPPORTED = 1
    DENIED = 2
    STALE = 3
    LOST = 4
    UNKNOWN = 5

    @property
    def word(self) -> str:
        return self.name.lower()


# Python 3.11 takes 0.2 us to find a member of an enum, as much for isinstance() of a non-member
# (EnumType does the lookup): code that runs a thousand times a second in a reading tests
# `type(...) is Absence` and uses these names.
UNSUPPORTED, DENIED, LOST, UNKNOWN = (
    Absence.UNSUPPORTED, Absence.DENIED, Absence.LOST, Absence.UNKNOWN)

ABSENCE_MEANING: dict[Absence, str] = {
    Absence.UNSUPPORTED: "this board or driver does not report it",
    Absence.DENIED: "the driver denies it to the agent's user",
    Absence.STALE: "the last reading is too old to be live",
    Absence.LOST: "the driver has lost this GPU",
    Absence.UNKNOWN: "the driver gave no usable answer this time",
}

Aggregate = Literal["mean", "max", "last", "counter"]

# A GPU that is held at a utilization of at most this is held idle.
IDLE_AT_MOST_PCT = 5.0
HELD_AT_LEAST_BYTES = 2**30  # a context without data is no waste
# A healthy board at full load shows a software power cap; idle and chosen clocks are no fault.
HARMFUL_THROTTLE = 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    unit: str
    label: str
    meaning: str
    low: float
    high: float
    aggregate: Aggregate
    prometheus: str = ""  # the name that dcgm-exporter uses, and its help text, where it has any
    help: str = ""
    # What a colour scale divides by: a fixed full value, or the static fact of each GPU.
    full: float | None = None
    full_fact: str | None = None
    filter_name: str | None = None
    words: dict[int, str] | None = None  # what a coded number means
    most_per_s: float | None = None  # of a counter: one that rises faster, or fell, was reset


# The 14 live metrics: every Frame carries them at 1 Hz, in this order.
LIVE: tuple[Metric, ...] = (
    Metric("util_pct", "%", "GPU utilization",
           "Share of the time in which any kernel ran, not share of the chip: one tiny kernel can "
           "make it 100. SM activity and power are better indicators.",
           0, 100, "mean", "DCGM_FI_DEV_GPU_UTIL", help="GPU utilization (in %).", full=100,
           filter_name="util"),
    Metric("mem_util_pct", "%", "Memory bandwidth time",
           "Share of the time in which memory was being read or written. Not memory used.",
           0, 100, "mean", "DCGM_FI_DEV_MEM_COPY_UTIL", help="Memory utilization (in %).", full=100,
           filter_name="memutil"),
    Metric("sm_active_pct", "%", "SM activity",
           "Share of the streaming multiprocessors that had work, averaged over the interval. "
           "Measured by GPM on Hopper and newer boards.",
           0, 100, "mean", "DCGM_FI_PROF_SM_ACTIVE",
           help="The ratio of cycles an SM has at least 1 warp assigned.", full=100,
           filter_name="sm"),
    Metric(
        "mem_used_bytes", "B", "Memory used",
        "Memory in use on the board, as nvidia-smi counts it: without the driver's own reserve, "
        "where the driver reports the two separately.",
        0, 2**42, "last", "DCGM_FI_DEV_FB_USED", help="Framebuffer memory used (in MiB).",
        full_fact="mem_total_bytes", filter_name="mem"),
    Metric("temp_c", "°C", "Temperature",
           "Temperature of the GPU core. The board throttles at its own threshold.",
           -40, 150, "last", "DCGM_FI_DEV_GPU_TEMP", help="GPU temperature (in C).", full=100,
           filter_name="temp"),
    Metric("mem_temp_c", "°C", "Memory temperature",
           "Temperature of the HBM stacks; boards with other memory do not report it.",
           -40, 150, "last", "DCGM_FI_DEV_MEMORY_TEMP", help="Memory temperature (in C).", full=100,
           filter_name="memtemp"),
    Metric("power_w", "W", "Power",
           "Power drawn by the board, averaged over the interval.",
           0, 5_000, "mean", "DCGM_FI_DEV_POWER_USAGE", help="Power draw (in W).",
           full_fact="power_limit_w", filter_name="power"),
    Metric("energy_j", "J", "Energy",
           "Energy drawn since the driver was loaded, from the board's counter.",
           0, 1e15, "counter", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
           help="Total energy consumption since boot (in mJ).", filter_name="energy",
           most_per_s=5_000),
    Metric("sm_clock_mhz", "MHz", "SM clock",
           "Present clock of the streaming multiprocessors.",
           0, 10_000, "last", "DCGM_FI_DEV_SM_CLOCK", help="SM clock frequency (in MHz).",
           full_fact="sm_clock_max_mhz", filter_name="clock"),
    Metric("mem_clock_mhz", "MHz", "Memory clock",
           "Present clock of the board's memory.",
           0, 50_000, "last", "DCGM_FI_DEV_MEM_CLOCK", help="Memory clock frequency (in MHz).",
           full_fact="mem_clock_max_mhz", filter_name="memclock"),
    Metric("fan_pct", "%", "Fan",
           "Fan speed set by the board; it may exceed 100. Passively cooled boards have none.",
           0, 250, "last", "DCGM_FI_DEV_FAN_SPEED", help="Fan speed (in %).", full=100,
           filter_name="fan"),
    Metric("throttle_bits", "", "Throttle reasons",
           "Why the clocks are below their maximum, as the driver's bit mask. Idle is not a fault.",
           0, 2**40, "last", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
           help="Reasons why the clocks are below their maximum (bit mask).",
           filter_name="throttle"),
    Metric("pcie_tx_bytes_per_s", "B/s", "PCIe sent",
           "Bytes the GPU sent over PCIe per second, from its byte counter.",
           0, 1e12, "mean", "DCGM_FI_PROF_PCIE_TX_BYTES",
           help="The rate of data transmitted over the PCIe bus (in bytes per second).", full=64e9,
           filter_name="pcietx"),
    Metric("pcie_rx_bytes_per_s", "B/s", "PCIe received",
           "Bytes the GPU received over PCIe per second, from its byte counter.",
           0, 1e12, "mean", "DCGM_FI_PROF_PCIE_RX_BYTES",
           help="The rate of data received over the PCIe bus (in bytes per second).", full=64e9,
           filter_name="pcierx"),
)

# The maxima that travel beside the means, so that a burst between two ticks is seen.
MAXIMA: tuple[Metric, ...] = (
    Metric("util_max_pct", "%", "GPU utilization, peak",
           "Highest utilization the driver sampled within the interval.",
           0, 100, "max", full=100, filter_name="utilmax"),
    Metric("power_max_w", "W", "Power, peak",
           "Highest power the driver sampled within the interval.",
           0, 5_000, "max", full_fact="power_limit_w", filter_name="powermax"),
)

# A row of a Frame, in order.
COLUMNS: tuple[Metric, ...] = LIVE + MAXIMA
COLUMN: dict[str, int] = {metric.key: at for at, metric in enumerate(COLUMNS)}
WIDTH = len(COLUMNS)

_MODES = {0: "off", 1: "on"}

# Read every 15 s, sent when one has changed and every 60 s.
SLOW: tuple[Metric, ...] = (
    Metric("pstate", "", "Performance state",
           "P0 is the fastest, P15 the slowest.",
           0, 15, "last", filter_name="pstate"),
    Metric("graphics_clock_mhz", "MHz", "Graphics clock", "Present clock of the graphics engine.",
           0, 10_000, "last", full_fact="sm_clock_max_mhz"),
    Metric("video_clock_mhz", "MHz", "Video clock", "Present clock of the video engines.",
           0, 10_000, "last", "DCGM_FI_DEV_VIDEO_CLOCK",
           help="Video encoder/decoder clock frequency (in MHz)."),
    Metric("enc_util_pct", "%", "Encoder", "Share of the time in which a video encoder worked.",
           0, 100, "mean", "DCGM_FI_DEV_ENC_UTIL", help="Encoder utilization (in %).", full=100,
           filter_name="enc"),
    Metric("dec_util_pct", "%", "Decoder", "Share of the time in which a video decoder worked.",
           0, 100, "mean", "DCGM_FI_DEV_DEC_UTIL", help="Decoder utilization (in %).", full=100,
           filter_name="dec"),
    Metric("jpg_util_pct", "%", "JPEG engine", "Share of the time in which the JPEG engine worked.",
           0, 100, "mean", full=100),
    Metric("ofa_util_pct", "%", "Optical flow engine",
           "Share of the time in which the optical flow engine worked.",
           0, 100, "mean", full=100),
    Metric(
        "gr_active_pct", "%", "Graphics engine activity",
        "Share of the time in which the graphics or compute engine worked. Measured by GPM; under "
        "MIG it replaces utilization.",
        0, 100, "mean", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        help="Ratio of time the graphics engine is active.", full=100, filter_name="gr"),
    Metric(
        "sm_occupancy_pct", "%", "SM occupancy",
        "Resident warps as a share of the most that the multiprocessors can hold. Measured by GPM.",
        0, 100, "mean", "DCGM_FI_PROF_SM_OCCUPANCY",
        help="The ratio of number of warps resident on an SM.", full=100, filter_name="occupancy"),
    Metric("tensor_active_pct", "%", "Tensor activity",
           "Share of the time in which tensor cores worked. Measured by GPM.",
           0, 100, "mean", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
           help="Ratio of cycles the tensor (HMMA) pipe is active.", full=100,
           filter_name="tensor"),
    Metric("dram_active_pct", "%", "Memory bandwidth",
           "Share of the memory's bandwidth in use. Measured by GPM.",
           0, 100, "mean", "DCGM_FI_PROF_DRAM_ACTIVE",
           help="Ratio of cycles the device memory interface is active sending or receiving data.",
           full=100, filter_name="dram"),
    Metric("mem_reserved_bytes", "B", "Memory reserved",
           "Memory reserved by the driver.",
           0, 2**42, "last", "DCGM_FI_DEV_FB_RESERVED",
           help="Framebuffer memory reserved (in MiB).", full_fact="mem_total_bytes"),
    Metric("mem_unseen_bytes", "B", "Unattributed memory",
           "Memory in use that neither the driver's reserve nor any listed process accounts for: a "
           "process that the agent cannot see, or memory that did not come back.",
           0, 2**42, "last", full_fact="mem_total_bytes", filter_name="unseen"),
    Metric("bar1_used_bytes", "B", "BAR1 used", "Memory mapped for direct access over PCIe.",
           0, 2**42, "last", "DCGM_FI_DEV_BAR1_USED", help="BAR1 memory used (in MiB)."),
    Metric("temp_margin_c", "°C", "Temperature margin",
           "How much warmer the GPU may get before it throttles.",
           -150, 150, "last", filter_name="margin"),
    Metric("power_limit_w", "W", "Power limit in force",
           "The limit that the board enforces; it can be lower than the limit that was set.",
           0, 5_000, "last", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
           help="Power limit that is enforced (in W).", full_fact="power_limit_max_w",
           filter_name="limit"),
    Metric("power_limit_set_w", "W", "Power limit set", "The limit requested from the driver.",
           0, 5_000, "last", "DCGM_FI_DEV_POWER_MGMT_LIMIT",
           help="Power limit that was set (in W)."),
    Metric("slowed_power_pct", "%", "Power-limited",
           "Share of the time in which the software power cap limited the clocks.",
           0, 100, "mean", "gpudeck_gpu_power_limited_ratio",
           help="Share of the time in which the power cap limited the clocks.", full=100,
           filter_name="slowedpower"),
    Metric("slowed_sync_pct", "%", "Throttled by sync boost",
           "Share of the time in which the clocks were limited to a slower GPU of the same group.",
           0, 100, "mean", full=100),
    Metric("slowed_soft_thermal_pct", "%", "Thermal throttling (software)",
           "Share of the time in which the driver lowered the clocks because of temperature.",
           0, 100, "mean", "gpudeck_gpu_thermal_throttling_software_ratio",
           help="Share of the time in which the driver lowered the clocks because of "
                "temperature.", full=100,
           filter_name="slowedheat"),
    Metric("slowed_hard_thermal_pct", "%", "Thermal throttling (hardware)",
           "Share of the time in which the board throttled itself because of temperature.",
           0, 100, "mean", "gpudeck_gpu_thermal_throttling_hardware_ratio",
           help="Share of the time in which the board throttled itself because of "
                "temperature.", full=100,
           filter_name="slowedhardheat"),
    Metric("slowed_brake_pct", "%", "Throttled by power brake",
           "Share of the time in which the power supply's brake signal limited the clocks.",
           0, 100, "mean", "gpudeck_gpu_power_brake_ratio",
           help="Share of the time in which the power brake limited the clocks.", full=100,
           filter_name="brake"),
    Metric("ecc_corrected", "", "ECC errors corrected",
           "Memory errors corrected since the driver was loaded.",
           0, 2**53, "counter", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
           help="Total number of single-bit volatile ECC errors.", filter_name="ecc"),
    Metric("ecc_uncorrected", "", "ECC errors not corrected",
           "Memory errors that could not be corrected since the driver was loaded.",
           0, 2**53, "counter", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
           help="Total number of double-bit volatile ECC errors.", filter_name="eccbad"),
    Metric("ecc_corrected_ever", "", "ECC errors corrected, ever",
           "Memory errors corrected over the board's life.",
           0, 2**53, "counter", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
           help="Total number of single-bit persistent ECC errors."),
    Metric("ecc_uncorrected_ever", "", "ECC errors not corrected, ever",
           "Memory errors that could not be corrected over the board's life.",
           0, 2**53, "counter", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
           help="Total number of double-bit persistent ECC errors."),
    Metric("rows_corrected", "", "Rows remapped (corrected)",
           "Memory rows replaced after errors that were corrected.",
           0, 2**32, "counter", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
           help="Number of remapped rows for correctable errors"),
    Metric("rows_uncorrected", "", "Rows remapped (not corrected)",
           "Memory rows replaced after errors that could not be corrected.",
           0, 2**32, "counter", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
           help="Number of remapped rows for uncorrectable errors", filter_name="rows"),
    Metric("rows_pending", "", "Row remap pending",
           "A row remap is pending; it needs a GPU reset.",
           0, 1, "last", "DCGM_FI_DEV_ROW_REMAP_PENDING",
           help="Whether a remapping of rows waits for a reset", filter_name="rowspending",
           words={0: "no", 1: "yes: reset the GPU"}),
    Metric("rows_failed", "", "Row remap failed",
           "A row could not be remapped: replace the board.",
           0, 1, "last", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
           help="Whether remapping of rows has failed", filter_name="rowsfailed",
           words={0: "no", 1: "yes: replace the board"}),
    Metric("pages_corrected", "", "Pages retired (corrected)",
           "Memory pages taken out of use after many corrected errors; boards before Ampere.",
           0, 2**32, "counter", "DCGM_FI_DEV_RETIRED_SBE",
           help="Total number of retired pages due to single-bit errors."),
    Metric("pages_uncorrected", "", "Pages retired (not corrected)",
           "Memory pages taken out of use after errors that could not be corrected; boards before "
           "Ampere.",
           0, 2**32, "counter", "DCGM_FI_DEV_RETIRED_DBE",
           help="Total number of retired pages due to double-bit errors."),
    Metric("pages_pending", "", "Page retirement pending",
           "A page retirement is pending; it needs a GPU reset.",
           0, 1, "last", "DCGM_FI_DEV_RETIRED_PENDING",
           help="Whether a page waits for its retirement.",
           words={0: "no", 1: "yes: reset the GPU"}),
    Metric("recovery_action", "", "Recovery advised",
           "What the driver advises to bring this GPU back to health.",
           0, 5, "last", filter_name="recovery",
           words={0: "none", 1: "reset the GPU", 2: "reboot the node", 3: "drain peer-to-peer",
                  4: "drain, then reset the GPU", 5: "recover the IMEX domain"}),
    Metric("pcie_gen", "", "PCIe generation", "Current value; it drops when the GPU is idle.",
           0, 16, "last", "DCGM_FI_DEV_PCIE_LINK_GEN", help="PCIe generation of the link now.",
           full_fact="pcie_gen_max"),
    Metric("pcie_width", "lanes", "PCIe lanes", "Current value of the link.",
           0, 64, "last", "DCGM_FI_DEV_PCIE_LINK_WIDTH", help="PCIe lanes of the link now.",
           full_fact="pcie_width_max", filter_name="lanes"),
    Metric("pcie_replays", "", "PCIe replays", "Packets sent again over PCIe since the driver was "
           "loaded; a rising number means a bad slot, riser or cable.",
           0, 2**53, "counter", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
           help="Total number of PCIe retries.", filter_name="replays"),
    Metric("nvlinks_up", "", "NVLinks up", "Links active now.",
           0, 64, "last", filter_name="nvlinks"),
    Metric("nvlink_tx_bytes_per_s", "B/s", "NVLink sent", "Bytes sent over all links per second.",
           0, 1e13, "mean", "DCGM_FI_PROF_NVLINK_TX_BYTES",
           help="The rate of data sent over NVLink (in bytes per second).", full=450e9,
           filter_name="nvtx"),
    Metric("nvlink_rx_bytes_per_s", "B/s", "NVLink received",
           "Bytes received over all links per second.",
           0, 1e13, "mean", "DCGM_FI_PROF_NVLINK_RX_BYTES",
           help="The rate of data received over NVLink (in bytes per second).", full=450e9,
           filter_name="nvrx"),
    Metric("nvlink_errors", "", "NVLink errors", "CRC, replay and recovery errors of all links.",
           0, 2**53, "counter", "gpudeck_gpu_nvlink_errors_total",
           help="CRC, replay and recovery errors of all NVLinks.", filter_name="nverrors"),
    Metric("fan_rpm", "rpm", "Fan speed", "As measured, of the first fan.", 0, 100_000, "last"),
    Metric("compute_mode", "", "Compute mode",
           "Whether several processes may use the GPU at the same time.",
           0, 3, "last", words={0: "default", 2: "prohibited", 3: "exclusive process"}),
    Metric(
        "persistence", "", "Persistence mode",
        "Off: the driver unloads its state when no process uses the GPU, and the next start is "
        "slow.",
        0, 1, "last", words=_MODES),
    Metric("ecc_on", "", "ECC", "Whether memory errors are detected and corrected.", 0, 1, "last",
           words=_MODES),
    Metric("mig_on", "", "MIG", "Whether the board is split into instances.", 0, 1, "last",
           words=_MODES),
)
SLOW_COLUMN: dict[str, int] = {metric.key: at for at, metric in enumerate(SLOW)}
SLOW_WIDTH = len(SLOW)
_BY_KEY = {metric.key: metric for metric in COLUMNS + SLOW}

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
    return _BY_KEY[key]


def throttle_words(bits: int) -> list[str]:
    """Return every reason in the mask, an unknown bit by its number."""
    reasons = [word for bit, word in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return reasons + ([f"unknown ({rest:#x})"] if rest else [])
