"""Throttled time of a GPU, summed from the shares of time that slow readings give: DCGM calls them
violations. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

# A slow reading covers the time just before it; for the rest of a gap the previous one holds.
COVERS_S = 15.0
MOST_S = 300.0  # a longer gap is not counted: nothing is known of it


@dataclass(frozen=True, slots=True)
class Violation:
    prometheus: str
    help: str
    shares: tuple[str, ...]  # metrics, in percent; several exclude each other


VIOLATIONS = (
    Violation("DCGM_FI_DEV_POWER_VIOLATION",
              "Throttling duration due to power constraints (in ns).", ("slowed_power_pct",)),
    Violation("DCGM_FI_DEV_THERMAL_VIOLATION",
              "Throttling duration due to thermal constraints (in ns).",
              ("slowed_soft_thermal_pct", "slowed_hard_thermal_pct")),
)


def share_pct(violation: Violation, value: Callable[[str], float | None]) -> float | None:
    there = [share for key in violation.shares if (share := value(key)) is not None]
    return min(100.0, sum(there)) if there else None


def throttled_ns(before_pct: float | None, now_pct: float | None, passed_s: float) -> float:
    """Return the throttled time between two slow readings, in ns."""
    if not 0 < passed_s <= MOST_S:
        return 0.0
    covered_s = min(passed_s, COVERS_S)
    return ((before_pct or 0.0) * (passed_s - covered_s) + (now_pct or 0.0) * covered_s) * 1e7
