"""The table `gpu_metrics` of AMD's driver: the numbers that have no file of their own. Pure.

Layouts and sizes are those of the kernel's drivers/gpu/drm/amd/include/kgd_pp_interface.h. The size
in the header counts, not the file's: the one of an RX 6900 XT has 4,096 bytes, of which 120 are
valid. What a board does not report is all ones.
"""

import struct
from dataclasses import dataclass

from ..metric_row import HARD_THERMAL, POWER_CAP, SOFT_THERMAL

# The firmware's unit, 2^-16 J.
ENERGY_UNIT_J = 15.259e-6
# The driver's independent throttling bits (amdgpu_smu.h), as ours.
_BITS = ((range(24), POWER_CAP), (range(32, 44), SOFT_THERMAL), (range(44, 48), HARD_THERMAL))
_HEADER = struct.Struct("<HBB")


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """None: this board or version does not report it."""

    version: tuple[int, int]
    energy_j: float | None = None
    throttle_bits: int | None = None

    @property
    def is_apu(self) -> bool:
        """Return whether the processor is part of the same chip, with whose memory it works."""
        return self.version[0] in (2, 3)


@dataclass(frozen=True, slots=True)
class _Layout:
    size: int
    energy: int | None = None  # where a u64 stands
    throttle: int | None = None


LAYOUTS = {
    (1, 0): _Layout(80), (1, 1): _Layout(96, 24), (1, 2): _Layout(104, 24),
    (1, 3): _Layout(120, 24, 112), (1, 4): _Layout(288, 24), (1, 5): _Layout(360, 88),
    (1, 6): _Layout(1_664, 16), (1, 7): _Layout(2_208, 24), (1, 8): _Layout(3_872, 24),
    (2, 0): _Layout(120), (2, 1): _Layout(120), (2, 2): _Layout(128, None, 120),
    (2, 3): _Layout(152, None, 120), (2, 4): _Layout(168, None, 120), (3, 0): _Layout(264),
}


def read_gpu_metrics(table: bytes) -> GpuMetrics | None:
    """Return its numbers; None: not a table, or of a version that is not known here."""
    if len(table) < _HEADER.size:
        return None
    size, major, minor = _HEADER.unpack_from(table)
    layout = LAYOUTS.get((major, minor))
    if layout is None or size != layout.size or len(table) < size:
        return None
    # RDNA 3 and 4 say 0 for a counter that they do not have.
    energy = _u64(table, layout.energy) or None
    throttle = _u64(table, layout.throttle)
    return GpuMetrics((major, minor), None if energy is None else energy * ENERGY_UNIT_J,
                      None if throttle is None else throttle_reasons(throttle))


def throttle_reasons(bits: int) -> int:
    """Return the reasons why the clocks are low, in our bits."""
    return sum({reason for places, reason in _BITS if any(bits >> place & 1 for place in places)})


def _u64(table: bytes, at: int | None) -> int | None:
    if at is None:
        return None
    value: int = struct.unpack_from("<Q", table, at)[0]
    return None if value == 2**64 - 1 else value
