"""Profiles of MIG by board: ids, sizes and where each may start. Pure.

Placements count memory slices: eight on most boards, four on an A30 (NVIDIA's MIG User Guide).
Names are labels and differ between drivers; slices and memory identify a profile.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A profile of instances. `id`: as nvidia-smi and NVML number it. `slices`: of compute. `size`:
    of memory."""

    id: int
    name: str
    slices: int
    size: int
    starts: tuple[int, ...]
    most: int
    has_media: bool = False


def _eight(one: str, double: str, two: str, three: str, four: str, seven: str
           ) -> tuple[MigProfile, ...]:
    """Build the profiles of a board of eight slices: the same ids and starts on A100, H100, H200,
    B200 and GB200; `double` "": it has none."""
    rows = (
        (0, f"7g.{seven}", 7, 8, (0,), 1), (5, f"4g.{four}", 4, 4, (0,), 1),
        (9, f"3g.{three}", 3, 4, (0, 4), 2), (14, f"2g.{two}", 2, 2, (0, 2, 4), 3),
        (15, f"1g.{double}", 1, 2, (0, 2, 4, 6), 4), (19, f"1g.{one}", 1, 1, tuple(range(7)), 7))
    plain = tuple(MigProfile(*row) for row in rows if row[0] != 15 or double)
    return (*plain, MigProfile(20, f"1g.{one}+me", 1, 1, tuple(range(7)), 1, has_media=True))


BOARDS: Mapping[str, tuple[MigProfile, ...]] = {
    "a100-40": _eight("5gb", "", "10gb", "20gb", "20gb", "40gb"),
    "a100-80": _eight("10gb", "20gb", "20gb", "40gb", "40gb", "80gb"),
    "h100-80": _eight("10gb", "20gb", "20gb", "40gb", "40gb", "80gb"),
    "h200": _eight("18gb", "35gb", "35gb", "71gb", "71gb", "141gb"),
    "b200": _eight("23gb", "45gb", "45gb", "90gb", "90gb", "180gb"),
    "b300": _eight("34gb", "67gb", "67gb", "135gb", "135gb", "269gb"),
    "a30": (MigProfile(0, "4g.24gb", 4, 4, (0,), 1), MigProfile(5, "2g.12gb", 2, 2, (0, 2), 2),
            MigProfile(14, "1g.6gb", 1, 1, (0, 1, 2, 3), 4)),
}

_NAMES = re.compile(r"\b(A100|A30|H100|H200|B200|B300)\b")
GIB = 2**30
NEAR = 0.1  # of the memory in its name


def board_of(model: str, mem_bytes: float) -> str | None:
    """Return the row of BOARDS for the driver's name of a board and its memory; None: there is
    none."""
    name = _NAMES.search(model)
    if name is None:
        return None
    rows = (row for row in BOARDS if row.partition("-")[0] == name[1].lower())
    return next((row for row in rows if abs(_whole_gib(BOARDS[row]) - mem_bytes / GIB)
                 <= NEAR * _whole_gib(BOARDS[row])), None)


def _whole_gib(profiles: Sequence[MigProfile]) -> int:
    whole = max(profiles, key=lambda profile: profile.slices)
    return int(whole.name.partition(".")[2].removesuffix("gb"))
