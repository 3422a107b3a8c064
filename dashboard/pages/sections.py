"""Sections of metrics in the GPU drawer, and their groups in the metric switch."""

from dataclasses import dataclass

from gpudeck.measures.metrics import Metric, metric

from ..fleet.colour_scales import has_scale


@dataclass(frozen=True, slots=True)
class MetricSection:
    key: str
    label: str
    metrics: tuple[str, ...]


SECTIONS = (
    MetricSection("load", "Load", (
        "util_pct", "util_max_pct", "sm_active_pct", "gr_active_pct", "sm_occupancy_pct",
        "tensor_active_pct", "mem_util_pct", "dram_active_pct", "enc_util_pct", "dec_util_pct",
        "jpg_util_pct", "ofa_util_pct")),
    MetricSection("memory", "Memory", (
        "mem_used_bytes", "mem_unseen_bytes", "mem_reserved_bytes", "bar1_used_bytes")),
    MetricSection("heat", "Heat and power", (
        "temp_c", "temp_margin_c", "mem_temp_c", "fan_pct", "fan_rpm", "power_w", "power_max_w",
        "power_limit_w", "power_limit_set_w", "energy_j", "sm_clock_mhz", "mem_clock_mhz",
        "graphics_clock_mhz", "video_clock_mhz", "pstate", "throttle_bits", "slowed_power_pct",
        "slowed_soft_thermal_pct", "slowed_hard_thermal_pct", "slowed_brake_pct",
        "slowed_sync_pct")),
    MetricSection("health", "Health", (
        "recovery_action", "ecc_on", "ecc_corrected", "ecc_uncorrected", "ecc_corrected_ever",
        "ecc_uncorrected_ever", "rows_corrected", "rows_uncorrected", "rows_pending",
        "rows_failed", "pages_corrected", "pages_uncorrected", "pages_pending")),
    MetricSection("links", "Links", (
        "pcie_gen", "pcie_width", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "pcie_replays",
        "nvlinks_up", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_errors")),
    MetricSection("modes", "Modes", ("compute_mode", "persistence", "mig_on")),
)

# Nobody colours a fleet by these; the drawer, filters and the API have them.
NOT_IN_SWITCH = frozenset((
    "jpg_util_pct", "ofa_util_pct", "mem_reserved_bytes", "graphics_clock_mhz", "slowed_sync_pct",
    "ecc_corrected_ever", "ecc_uncorrected_ever", "rows_corrected", "pages_corrected"))

SECTION_OF = {key: section.key for section in SECTIONS for key in section.metrics}
ALL: tuple[Metric, ...] = tuple(metric(key) for section in SECTIONS for key in section.metrics)


def switch() -> list[tuple[str, list[Metric]]]:
    """Return the metrics that the heatmap can show as colours, by group."""
    groups = [(section.label, [metric(key) for key in section.metrics
                               if has_scale(metric(key)) and key not in NOT_IN_SWITCH])
              for section in SECTIONS]
    return [(label, metrics) for label, metrics in groups if metrics]
