"""What a simulated board says of itself every 15 s, and what does not change about it."""

from collections.abc import Container
from itertools import combinations

from gpudeck.metrics import SLOW, Absence
from gpudeck.wire import MAX_LINKS, GpuLink

from .board import HW_THERMAL, IDLE, POWER_CAP, SW_THERMAL, SimulatedBoard
from .chance import roll
from .load import SimulatedLoad
from .profiles import BoardProfile

MIB = 2**20
HALF = 4  # Gpus that share a socket
NVLINK_BYTES_PER_S = 22e9  # of one link, one way, in practice
RPM_PER_PCT = 32


def absences(missing: Container[str]) -> bytes:
    return bytes(Absence.UNSUPPORTED if metric.key in missing else Absence.PRESENT
                 for metric in SLOW)


def links(profile: BoardProfile, gpus: int) -> tuple[GpuLink, ...]:
    pairs = (GpuLink(a, b, "numa node" if a // HALF == b // HALF else "system", profile.nvlinks)
             for a, b in combinations(range(gpus), 2))
    return tuple(pairs)[:MAX_LINKS]


def slow_values(
    board: SimulatedBoard, load: SimulatedLoad, held: bool, fast: dict[str, float],
    leaked_share: float,
    is_split: bool = False,
) -> tuple[float, ...]:
    """In the order of metrics.SLOW; `fast` by the keys of metrics.COLUMNS, as just read."""
    said = {
        **_now(board, held, fast), **shares(load), **_memory(board.profile, load, leaked_share),
        **_slowed(board), **_health(board), **_traffic(board.profile, load),
        "mig_on": float(is_split),
    }
    return tuple(said.get(metric.key, 0.0) for metric in SLOW)


def _now(board: SimulatedBoard, held: bool, fast: dict[str, float]) -> dict[str, float]:
    profile = board.profile
    rests = bool(int(fast["throttle_bits"]) & IDLE) and not held
    return {
        "pstate": 8.0 if rests and not profile.keeps_link else 0.0,
        "graphics_clock_mhz": fast["sm_clock_mhz"],
        "video_clock_mhz": fast["sm_clock_mhz"] * 0.78 // 15 * 15,
        "temp_margin_c": profile.temp_slowdown_c - fast["temp_c"],
        "power_limit_w": board.power_limit_w, "power_limit_set_w": board.power_limit_w,
        "pcie_gen": float(1 if rests and not profile.keeps_link else profile.pcie_gen),
        "pcie_width": 16.0, "fan_rpm": fast["fan_pct"] * RPM_PER_PCT,
        "persistence": float(profile.keeps_link), "ecc_on": float(profile.has_ecc),
        "compute_mode": float(board.compute_mode),
    }


def shares(load: SimulatedLoad) -> dict[str, float]:
    return {
        "gr_active_pct": round(load.busy * 98.5, 1), "sm_occupancy_pct": round(load.sm * 52, 1),
        "tensor_active_pct": round(load.sm * load.intensity * 61, 1),
        "dram_active_pct": round(load.bandwidth * 83, 1),
    }


def _memory(profile: BoardProfile, load: SimulatedLoad, leaked_share: float) -> dict[str, float]:
    room = profile.mem_total_bytes - profile.mem_reserved_bytes
    return {
        "mem_reserved_bytes": float(profile.mem_reserved_bytes),
        "mem_unseen_bytes": float(int(leaked_share * room)),
        "bar1_used_bytes": float((1 + 4 * (load.mem_share > 0)) * MIB),
    }


def _slowed(board: SimulatedBoard) -> dict[str, float]:
    slowed_s, board.slowed_s = board.slowed_s, {}
    whole_s = slowed_s.get(0, 0.0)

    def share_pct(bit: int) -> float:
        return round(100 * slowed_s.get(bit, 0.0) / whole_s, 1) if whole_s else 0.0

    return {
        "slowed_power_pct": share_pct(POWER_CAP), "slowed_soft_thermal_pct": share_pct(SW_THERMAL),
        "slowed_hard_thermal_pct": share_pct(HW_THERMAL),
    }


def _health(board: SimulatedBoard) -> dict[str, float]:
    """Most boards have had a few errors in their lives; one in thirty a row replaced."""
    ever = int(60 * roll(board.place.seed, 21) ** 3)
    return {
        "ecc_corrected": float(int(ever * roll(board.place.seed, 22))),
        "ecc_corrected_ever": float(ever),
        "rows_corrected": float(roll(board.place.seed, 23) < 1 / 30),
        "pcie_replays": float(int(20 * roll(board.place.seed, 24) ** 4)),
    }


def _traffic(profile: BoardProfile, load: SimulatedLoad) -> dict[str, float]:
    moved = float(int(load.sm * load.intensity * 0.4 * profile.nvlinks * NVLINK_BYTES_PER_S))
    return {"nvlinks_up": float(profile.nvlinks), "nvlink_tx_bytes_per_s": moved,
            "nvlink_rx_bytes_per_s": moved}
