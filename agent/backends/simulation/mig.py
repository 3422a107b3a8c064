"""MIG on simulated boards: which are split into what. Pure.

GPU instance ids and sizes as `nvidia-smi mig -lgi` and `nvidia-smi -L` print them on an H100 80GB;
what NVML reports of an instance is in nvml/mig.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from gpudeck.measures.metrics import COLUMNS, SLOW

from .chance import seed_of
from .load import SimulatedLoad, shares
from .profiles import MIB

SEVENTHS = 7  # of a board's multiprocessors
SHARES = ("sm_active_pct", "gr_active_pct", "sm_occupancy_pct", "tensor_active_pct",
          "dram_active_pct")
TOLD = ("mem_used_bytes", "mem_reserved_bytes", "mem_unseen_bytes", *SHARES)
MISSING = {metric.key: "unsupported" for metric in COLUMNS + SLOW if metric.key not in TOLD}
# Of the split board itself; as seen in simulation only its instances tell activity.
NOT_OF_BOARD = ("util_pct", "util_max_pct", "mem_util_pct", "mem_unseen_bytes", "enc_util_pct",
                "dec_util_pct", "jpg_util_pct", "ofa_util_pct", *SHARES)


@dataclass(frozen=True, slots=True)
class MigSlice:
    profile: str
    gpu_instance: int
    sevenths: int
    mem_total_bytes: int
    mem_reserved_bytes: int = 13 * MIB

    @property
    def room_bytes(self) -> int:
        return self.mem_total_bytes - self.mem_reserved_bytes

    def step(self, load: SimulatedLoad, has_context: bool, at: float, seconds: float
             ) -> tuple[float, ...]:
        """Return the values in the order of metrics.COLUMNS. Heat and energy are its board's."""
        values = {"mem_used_bytes": float(int(load.mem_share * self.room_bytes)),
                  "sm_active_pct": round(load.sm * 100, 1)}
        return tuple(values.get(column.key, 0.0) for column in COLUMNS)

    def slow_values(
        self, load: SimulatedLoad, has_context: bool, fast: Mapping[str, float], leaked_share: float
    ) -> tuple[float, ...]:
        """Return the values in the order of metrics.SLOW."""
        values = {**shares(load), "mem_reserved_bytes": float(self.mem_reserved_bytes),
                  "mem_unseen_bytes": float(int(leaked_share * self.room_bytes))}
        return tuple(values.get(metric.key, 0.0) for metric in SLOW)


# Counted from the last board of eight.
LAYOUTS: tuple[tuple[MigSlice, ...], ...] = (
    (MigSlice("4g.40gb", 1, 4, 40_448 * MIB), MigSlice("3g.40gb", 2, 3, 40_448 * MIB)),
    tuple(MigSlice("1g.10gb", number, 1, 9_984 * MIB) for number in range(7, 14)),
)


def slices_of(index: int, gpus: int) -> tuple[MigSlice, ...]:
    """Return the slices of this board of a node of so many; none: it is whole."""
    from_end = (gpus - 1 - index) % 8
    return LAYOUTS[from_end] if from_end < len(LAYOUTS) else ()


def uuid_of_slice(seed: int, node: str, index: int, slice_: MigSlice) -> str:
    words = (seed, node, index, slice_.gpu_instance)
    return f"MIG-{UUID(int=seed_of(*words, 'mig-a') << 64 | seed_of(*words, 'mig-b'))}"


def together(loads: list[tuple[MigSlice, SimulatedLoad]], room_bytes: int) -> SimulatedLoad:
    """Return the load of a board, from those of its instances."""
    whole = SimulatedLoad()
    draw = 0.0
    for slice_, load in loads:
        share = slice_.sevenths / SEVENTHS
        whole.busy += load.busy * share
        whole.peak += load.peak * share
        whole.bandwidth += load.bandwidth * share
        whole.sm += load.sm * share
        draw += load.busy * share * load.intensity
        whole.mem_share += load.mem_share * slice_.room_bytes / room_bytes
        whole.sent += load.sent * share
        whole.received += load.received * share
    whole.intensity = draw / whole.busy if whole.busy > 0 else 0.0
    whole.mem_share = min(1.0, whole.mem_share)
    return whole
