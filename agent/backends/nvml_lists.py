"""Who is on a board: the union of the lists that NVML has (nvml-mps.md A.3)."""

from collections.abc import Callable
from typing import Any, Literal

from gpudeck.metrics import Absence

from . import ProcessReading

# A list that fails now and then must not look as if all tasks had ended.
KEPT_S = 30.0

Kind = Literal["compute", "graphics", "mps_client"]
Held = dict[int, tuple[float | None, Kind]]  # by pid: memory, kind
# Later lists win: a process in the MPS list is in the compute list too.
PROCESS_LISTS: tuple[tuple[str, Kind], ...] = (
    ("nvmlDeviceGetGraphicsRunningProcesses", "graphics"),
    ("nvmlDeviceGetComputeRunningProcesses", "compute"),
    ("nvmlDeviceGetMPSComputeRunningProcesses", "mps_client"),
)


def held(
    first: Callable[..., Any], is_ours: Callable[[Any], bool] = lambda _: True
) -> Held | Absence:
    """`first` is asked for a list by its newer and older name. UNKNOWN: the driver would not say
    this time; another Absence: it never tells."""
    found: Held = {}
    refusals = []
    for name, kind in PROCESS_LISTS:
        listed = first(f"{name}_v3", f"{name}_v2")
        if listed is Absence.UNKNOWN:
            return Absence.UNKNOWN
        if isinstance(listed, Absence):
            refusals.append(listed)
            continue
        for each in filter(is_ours, listed):
            known = found.get(each.pid, (None, kind))[0]
            # None: NVML does not know this process's share. Not 0.
            amounts = [amount for amount in (known, each.usedGpuMemory) if amount is not None]
            found[each.pid] = (float(max(amounts)) if amounts else None, kind)
    return refusals[0] if len(refusals) == len(PROCESS_LISTS) else found


class Kept:
    """The last list that was told, for as long as it may stand in for one that was not."""

    def __init__(self) -> None:
        self.rows: tuple[ProcessReading, ...] = ()
        self.at: float | None = None

    def take(
        self, rows: tuple[ProcessReading, ...] | None, now: float
    ) -> tuple[ProcessReading, ...]:
        if rows is not None:
            self.rows, self.at = rows, now
        if self.at is None or now - self.at > KEPT_S:
            self.rows = ()
        return self.rows
