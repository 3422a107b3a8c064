"""Real boards: what the driver prints for them, their limits, and what they never report.

Sources: names, clocks, power limits and the H100's and L40S's thresholds from NVIDIA's own mock
(github.com/NVIDIA/k8s-test-infra, pkg/gpu/mocknvml/configs); memory totals as `nvidia-smi` prints
them on the boards. Unsupported fields follow nvml.h and the driver: passively cooled boards answer
NOT_SUPPORTED to GetFanSpeed; NVML_FI_DEV_MEMORY_TEMP exists where there is an HBM sensor; GPM, and
with it SM activity, begins with Hopper; pages are retired before Ampere, rows replaced from Ampere
on where ECC is; NVLinks are 18 and 12 on SXM boards, and on none of the PCIe ones.

Doubtful: the Ada boards' thresholds (their driver prints margins, not degrees; 90 °C is the
published limit of the RTX 4090), idle power (it depends on the host), the driver's own reserve.
"""

from dataclasses import dataclass, replace

MIB = 2**20


@dataclass(frozen=True, slots=True)
class BoardProfile:
    key: str
    name: str
    mem_total_bytes: int
    mem_reserved_bytes: int  # what the driver itself holds, not counted as used
    power_limit_w: float
    power_idle_w: float
    sm_clock_max_mhz: int
    sm_clock_idle_mhz: int
    mem_clock_max_mhz: int
    mem_clock_idle_mhz: int
    temp_slowdown_c: float
    temp_shutdown_c: float
    # Degrees per watt over the air that reaches it, at steady state.
    temp_per_watt: float
    temp_settles_s: float
    pcie_bytes_per_s: float  # what one direction of its link carries in practice
    unsupported: tuple[str, ...]
    capability: str
    vbios: str
    power_limit_min_w: float
    power_limit_max_w: float
    pcie_gen: int
    nvlinks: int = 0
    has_ecc: bool = True
    keeps_link: bool = True  # its PCIe link does not slow down when the board is idle
    is_split: bool = False  # some of its boards, by MIG: mig.py says which

    @property
    def room_bytes(self) -> int:
        """Bytes that processes may have of its memory."""
        return self.mem_total_bytes - self.mem_reserved_bytes


PAGES = ("pages_corrected", "pages_uncorrected", "pages_pending")
GPM = ("sm_active_pct", "gr_active_pct", "sm_occupancy_pct", "tensor_active_pct",
       "dram_active_pct")
NVLINK = ("nvlinks_up", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_errors")
ECC = ("ecc_corrected", "ecc_uncorrected", "ecc_corrected_ever", "ecc_uncorrected_ever",
       "rows_corrected", "rows_uncorrected", "rows_pending", "rows_failed")
FAN = ("fan_pct", "fan_rpm")

PROFILES: dict[str, BoardProfile] = {
    profile.key: profile
    for profile in (
        BoardProfile(
            "h100", "NVIDIA H100 80GB HBM3", 81_559 * MIB, 551 * MIB, 700, 72, 1980, 345, 2619,
            2619, 87, 92, 0.052, 24, 55e9, (*FAN, *PAGES), "9.0", "96.00.74.00.01", 200,
            700, 5, nvlinks=18,
        ),
        BoardProfile(
            "a100", "NVIDIA A100-SXM4-80GB", 81_920 * MIB, 631 * MIB, 400, 58, 1410, 210, 1593,
            1593, 89, 92, 0.084, 28, 26e9, (*FAN, *PAGES, *GPM), "8.0", "92.00.45.00.03", 100,
            400, 4, nvlinks=12,
        ),
        BoardProfile(
            "l40s", "NVIDIA L40S", 46_068 * MIB, 506 * MIB, 350, 34, 2520, 210, 9001, 405, 93, 96,
            0.115, 36, 26e9, (*FAN, *PAGES, *GPM, *NVLINK, "mem_temp_c", "mig_on"), "8.9",
            "95.02.66.00.02", 100, 350, 4, keeps_link=False,
        ),
        BoardProfile(
            "4090", "NVIDIA GeForce RTX 4090", 24_564 * MIB, 361 * MIB, 450, 21, 3105, 210, 10_501,
            405, 90, 100, 0.094, 30, 26e9, (*PAGES, *GPM, *NVLINK, *ECC, "mem_temp_c", "mig_on"),
            "8.9", "95.02.3c.00.8b", 150, 600, 4, has_ecc=False, keeps_link=False,
        ),
    )
}
PROFILES["h100-mig"] = replace(PROFILES["h100"], key="h100-mig", is_split=True)
MIXED = ("h100", "a100", "l40s", "h100", "4090", "a100")


def profile_of(key: str, number: int) -> BoardProfile:
    """`mixed` deals the boards out by the node's number: a node has one kind, as real ones do."""
    return PROFILES[MIXED[number % len(MIXED)] if key == "mixed" else key]
