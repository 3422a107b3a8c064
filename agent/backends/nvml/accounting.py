"""What the driver itself has counted of a process that has ended: its accounting, where somebody
has switched that on. It sees each allocation and kernel; our own look comes every two seconds.

nvml-mps.md A.2: off by default and after each load of the driver, and off with MIG. Never switched
on from here.
"""

import ctypes
from collections.abc import Iterable
from typing import Any

import pynvml

from gpudeck.metrics import Absence, metric

from ...readings import ProcessAccounting
from .processes import NOT_MEMORY, NvmlQuery

CALL = "nvmlDeviceGetAccountingStats"
# The driver's clock is the machine's, ours was read a little later.
CLOCK_SLACK_S = 2.0
LASTS_MOST_MS = 10 * 366 * 86_400_000


class NvmlAccounting:
    """Of one board."""

    def __init__(self, ask: NvmlQuery, uuid: str) -> None:
        self._ask = ask
        self._uuid = uuid
        self._first_at: dict[int, float] = {}  # pid -> UTC seconds
        self._listed_at = 0.0

    def ended(
        self, is_on: bool, listed: Iterable[int], at: float
    ) -> tuple[ProcessAccounting, ...]:
        """Of those that were listed before and are not now. What is not told in time is not told
        at all: a number of a later process of that pid would be a lie."""
        was, last_at, self._listed_at = self._first_at, self._listed_at, at
        self._first_at = {pid: was.get(pid, at) for pid in listed}
        gone = was.keys() - self._first_at.keys() if is_on else ()
        found = (self._of(pid, was[pid], last_at) for pid in sorted(gone))
        return tuple(each for each in found if each is not None)

    def _of(self, pid: int, first_at: float, last_at: float) -> ProcessAccounting | None:
        said = self._ask(_stats, pid, question=CALL)
        if isinstance(said, Absence) or said.isRunning:
            return None
        seconds, began_at = _seconds(said.time), said.startTime / 1e6
        # It was there all the while that we saw it; or this is another process of that number,
        # later or from the driver's ring of thousands.
        is_it = seconds is not None and began_at <= first_at + CLOCK_SLACK_S and (
            began_at + seconds >= last_at - CLOCK_SLACK_S)
        if not is_it:
            return None
        return ProcessAccounting(
            pid, self._uuid, _within(said.maxMemoryUsage, NOT_MEMORY),
            _within(said.gpuUtilization, metric("util_pct").high),
            _within(said.memoryUtilization, metric("mem_util_pct").high),
            seconds)


def _stats(handle: Any, pid: int) -> Any:
    """Not pynvml's own: where the memory is not known it puts a None into a number and breaks."""
    said = pynvml.c_nvmlAccountingStats_t()
    pynvml._nvmlCheckReturn(pynvml._nvmlGetFunctionPointer(CALL)(
        handle, ctypes.c_uint(pid), ctypes.byref(said)))
    return said


def _within(said: Any, most: float) -> float | None:
    """Beyond it is a sentinel: NVML_VALUE_NOT_AVAILABLE is all ones."""
    return float(said) if said is not None and 0 <= said <= most else None


def _seconds(said_ms: int) -> float | None:
    """0 while it runs, so of one that has ended it means nothing."""
    return said_ms / 1_000 if 0 < said_ms <= LASTS_MOST_MS else None
