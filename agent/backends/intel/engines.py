"""Engines and memory of a board in the words of an open file (`/proc/PID/fdinfo`): xe counts cycles
beside those that passed, i915 nanoseconds. Pure.

Kernel: drivers/gpu/drm/xe/xe_drm_client.c, drivers/gpu/drm/i915/i915_drm_client.c.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpudeck.measures.metrics import Absence

from ..metric_row import MonotonicCounter

# What runs kernels; copies and video are none.
COMPUTE = ("ccs", "compute")
ENGINES = ("rcs", "render", *COMPUTE)
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_OWN_MEMORY = re.compile(r"(?:vram|local)\d+")  # of xe and of i915, for each tile


@dataclass(frozen=True, slots=True)
class EngineCount:
    """Counter of one engine class of one client. `total` None: it counts nanoseconds."""

    busy: int
    total: int | None
    capacity: int  # engines of this class, which the busy ones are a share of


class EngineShare:
    """Share of the time in which an engine class worked for a client, between two readings."""

    def __init__(self) -> None:
        self._before: EngineCount | None = None
        self._time = MonotonicCounter()

    def share_pct(self, count: EngineCount, now: float) -> float | None:
        """Return the share; None: this is the first reading, or a counter began again."""
        before, self._before = self._before, count
        if count.total is None:
            share = self._time.share_pct(count.busy // count.capacity, 64, now)
            return None if isinstance(share, Absence) else share
        if before is None or before.total is None or count.busy < before.busy or (
                cycles := count.total - before.total) <= 0:
            return None
        return min((count.busy - before.busy) / (cycles * count.capacity) * 100.0, 100.0)


def counts(values: Mapping[str, str]) -> dict[str, EngineCount]:
    """Return the counters by engine class. Empty: this kernel has none for its clients, or none
    now."""
    read = {engine: _count(values, engine) for engine in ENGINES}
    return {engine: count for engine, count in read.items() if count is not None}


def _count(values: Mapping[str, str], engine: str) -> EngineCount | None:
    capacity = max(_whole(values.get(f"drm-engine-capacity-{engine}")) or 1, 1)
    cycles, total = (_whole(values.get(f"drm-{name}-{engine}"))
                     for name in ("cycles", "total-cycles"))
    if cycles is not None and total is not None:
        return EngineCount(cycles, total, capacity)
    nanoseconds = _whole(values.get(f"drm-engine-{engine}"))
    return None if nanoseconds is None else EngineCount(nanoseconds, None, capacity)


def own_memory(values: Mapping[str, str]) -> float | None:
    """Return the bytes of the board's own memory that a client holds; None: this kernel does not
    say."""
    for kind in ("drm-resident-", "drm-total-"):
        sizes = [_size(value) for name, value in values.items()
                 if name.startswith(kind) and _OWN_MEMORY.fullmatch(name.removeprefix(kind))]
        if sizes:
            return None if None in sizes else float(sum(filter(None, sizes)))
    return None


def _whole(value: str | None) -> int | None:
    amount = (value or "").partition(" ")[0]
    return int(amount) if amount.isdigit() else None


def _size(value: str) -> int | None:
    amount, _, unit = value.partition(" ")
    return int(amount) * UNITS[unit] if amount.isdigit() and unit in UNITS else None
