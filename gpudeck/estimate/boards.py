"""Boards by model: dense 16-bit peak and bandwidth, from NVIDIA's data sheets. Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Board:
    """A board's peak and bandwidth. `mfu`: the share of the peak that published trainings
    reached."""

    tflops: float
    gb_per_s: float
    mfu: tuple[float, float] = (0.3, 0.5)


A100_MFU = (0.51, 0.61)  # torchtitan
H100_MFU = (0.33, 0.55)  # torchtitan at 500 W, MegaScale

# The first pattern found in the driver's name counts, so variants of one name come first.
BOARDS: tuple[tuple[str, Board], ...] = (
    (r"B200", Board(2_250, 7_700)),
    (r"GH200.*144", Board(989, 4_900, H100_MFU)),
    (r"GH200", Board(989, 4_000, H100_MFU)),
    (r"H200", Board(989, 4_800, H100_MFU)),
    (r"H100 NVL", Board(835, 3_938, H100_MFU)),
    (r"H100 PCIe", Board(756, 2_039, H100_MFU)),
    (r"H100|H800", Board(989, 3_350, H100_MFU)),
    (r"H20\b", Board(148, 4_000)),
    (r"A[18]00.*40GB", Board(312, 1_555, A100_MFU)),
    (r"A[18]00.*PCI", Board(312, 1_935, A100_MFU)),
    (r"A[18]00", Board(312, 2_039, A100_MFU)),
    (r"A30\b", Board(165, 933)),
    (r"A40\b", Board(150, 696)),
    (r"A10G?\b", Board(125, 600)),
    (r"L40S", Board(362, 864)),
    (r"L40\b", Board(181, 864)),
    (r"L4\b", Board(121, 300)),
    (r"RTX 6000 Ada", Board(364, 960)),
    (r"RTX A6000", Board(155, 768)),
    (r"RTX 5090", Board(209, 1_792)),
    (r"RTX 4090", Board(165, 1_008)),
    (r"RTX 3090", Board(71, 936)),
    (r"V100", Board(125, 900)),
    (r"\bT4\b", Board(65, 320)),
)


def board_of(name: str) -> Board | None:
    """Return the board with this name; None: not in the table, and its speed is not guessed."""
    return next((board for pattern, board in BOARDS if re.search(pattern, name)), None)
