"""Processes on a GPU, by NVML: the union of its process lists, and each one's share of the SMs.

Sources of the quirks: pitfalls.md A.3, citing nvml.h, the open kernel module, nvitop and nvtop.

And what the driver itself has counted of a process that has ended: its accounting, where somebody
has switched that on. It sees each allocation and kernel; our own look comes every two seconds.
pitfalls.md A.2: off by default and after each load of the driver, and off with MIG. Never switched
on from here.
"""

import ctypes
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import pynvml

from gpudeck.contract.message_limits import PID_MAX
from gpudeck.measures.metrics import DENIED, UNKNOWN, UNSUPPORTED, Absence, metric

from ...readings import ProcessAccounting, ProcessReading
from .. import ReaderUnavailableError
from .ask import NvmlDevice

Kind = Literal["compute", "graphics", "mps_client"]
# Later lists win: a process in the MPS list is in the compute list too.
PROCESS_LISTS: tuple[tuple[str, Kind], ...] = (
    ("nvmlDeviceGetGraphicsRunningProcesses", "graphics"),
    ("nvmlDeviceGetComputeRunningProcesses", "compute"),
    ("nvmlDeviceGetMPSComputeRunningProcesses", "mps_client"),
)
# New cards fill the first alone (pitfalls.md 10), old drivers have the second alone.
SHARES = ("nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetProcessUtilization")
# A list that fails now and then must not look as if all tasks had ended.
LIST_KEPT_S = 30.0
# No answer about shares: nobody was busy, or it was asked too soon.
SHARE_KEPT_S = 5.0
# The clock that rows are stamped with may have been set back: then begin again.
SILENT_MAX_S = 15.0
# What the driver lists at most (ctrl2080gpu.h).
LISTED_MAX = 950
NOT_MEMORY = 2**60  # 0xFFFFFFFFFFFFFFFF is NVML's "not known"; nothing near it is an amount
ROOM, TRIES = 64, 4


class NvmlProcessRow(NamedTuple):
    """A row of either layout. Unpacked as a whole: each look at an attribute of a ctypes structure
    costs 0.3 us, and there are hundreds in a reading."""

    pid: int
    usedGpuMemory: int
    gpuInstanceId: int
    computeInstanceId: int


# nvmlProcessInfo_t of _v2 and _v3; and of _v3 in the first drivers of 535, in 32 bytes: read as the
# other, every second row is garbage (pitfall 9).
ROW, WIDE_ROW = struct.Struct("=I4xQII"), struct.Struct("=I4xQII8x")


class NvmlUtilizationRow(NamedTuple):
    """A row of either call in SHARES, as far as it is used."""

    timeStamp: int
    pid: int
    smUtil: int
    memUtil: int
    encUtil: int
    decUtil: int


_NEW_SHARE = struct.Struct("=QIIIII12x")
_OLD_SHARE = struct.Struct("=I4xQIIII")
for _layout, _packed in ((pynvml.c_nvmlProcessUtilizationInfo_v1_t, _NEW_SHARE),
                         (pynvml.c_nvmlProcessUtilizationSample_t, _OLD_SHARE)):
    if ctypes.sizeof(_layout) != _packed.size:
        raise ImportError("pynvml's rows of processes are not nvml.h's")


@dataclass(slots=True)
class NvmlProcessUse:
    memory: float | None  # None: NVML does not know this process's share. Not 0.
    kind: Kind


@dataclass(slots=True)
class NvmlUtilizationState:
    """State of the shares that is remembered between two questions."""

    seen_to: int = 0  # by the driver's clock, in microseconds
    known_at: float | None = None
    asked_since: float | None = None  # first of the questions without answer
    pct: dict[int, float] = field(default_factory=dict)


class NvmlProcessLists:
    """Process lists of one GPU. `device` is asked, and may raise for a lost board; then nothing
    here has changed. With MIG the list of a board is that of its instances too: `is_ours` says
    which rows count."""

    def __init__(
        self, device: NvmlDevice, uuid: str, is_ours: Callable[[Any], bool] = lambda row: True
    ) -> None:
        self._device, self._uuid, self._is_ours = device, uuid, is_ours
        self.is_refused = False  # the driver gave none of the lists, the last time
        self._shares = NvmlUtilizationState()
        self._listed: tuple[ProcessReading, ...] = ()
        self._listed_at: float | None = None
        self._has_told = False
        self._v3: struct.Struct | None = None

    def read(self, now: float) -> tuple[ProcessReading, ...]:
        uses = self._list_all()
        if uses is not None:
            shares = self._read_shares(set(uses), now)
            self._listed_at = now
            self._listed = tuple(
                ProcessReading(pid, self._uuid, use.memory, shares.get(pid), use.kind)
                for pid, use in uses.items())
        return self.last_listed(now)

    def last_listed(self, now: float) -> tuple[ProcessReading, ...]:
        if self._listed_at is None or now - self._listed_at > LIST_KEPT_S:
            self._listed = ()
        return self._listed

    def amounts(self, now: float) -> list[float | None] | None:
        """Return what each process holds; None: they were not listed now."""
        if self._listed_at != now:
            return None
        return [process.mem_used_bytes for process in self._listed]

    def fresh(self) -> tuple[ProcessReading, ...]:
        """List the processes now, without shares of time, which are differences."""
        uses = self._list_all()
        if uses is None:
            raise ReaderUnavailableError("failed", "a GPU does not list its processes just now")
        return tuple(ProcessReading(pid, self._uuid, use.memory, None, use.kind)
                     for pid, use in uses.items())

    def _list_all(self) -> dict[int, NvmlProcessUse] | None:
        """Return the union by pid of what the driver lists; None: it would not say this time."""
        uses: dict[int, NvmlProcessUse] = {}
        refusals = 0
        for name, kind in PROCESS_LISTS:
            rows = self._list(name)
            if rows is UNKNOWN:
                return None
            if type(rows) is Absence:
                refusals += 1
                continue
            for row in filter(self._is_ours, rows):
                if 0 < row.pid <= PID_MAX:
                    _add(uses, row, kind)
        self.is_refused = refusals == len(PROCESS_LISTS)
        return uses

    def _list(self, name: str) -> Any:
        """List by the newest call that this driver has."""
        self._v3 = self._v3 or (WIDE_ROW if has_wide_rows() else ROW)
        rows: Any = UNSUPPORTED
        for version, layout in (("_v3", self._v3), ("_v2", ROW)):
            call = name + version
            rows = self._device.ask(partial(rows_of, call, layout), question=call)
            if rows is not UNSUPPORTED:
                break
        if type(rows) is not Absence and len(rows) >= LISTED_MAX and not self._has_told:
            self._has_told = True
            print(f"a GPU lists {len(rows)} processes, the most that a driver tells: there may be "
                  "more", file=sys.stderr)
        return rows

    def _read_shares(self, listed: set[int], now: float) -> dict[int, float]:
        """Return the SM share by pid. An idle process has no row; rows may hold garbage: foreign
        pids, shares over 100, old times (nvtop's checks)."""
        shares = self._shares
        if not listed:
            return {}
        rows = self._device.first(*SHARES, arguments=(shares.seen_to,), varies=True)
        if rows in (UNSUPPORTED, DENIED):
            return {}
        fresh = [] if type(rows) is Absence else [
            row for row in map(_share, rows) if row.timeStamp > shares.seen_to and _is_sane(row)]
        if not fresh:
            return self._without_answer(listed, now)
        is_first, shares.seen_to = shares.seen_to == 0, max(row.timeStamp for row in fresh)
        shares.asked_since = None
        if is_first:  # an average over the whole buffer: dead processes and all
            return {}
        shares.known_at, shares.pct = now, dict.fromkeys(listed, 0.0)
        for row in sorted(fresh, key=lambda row: row.timeStamp):
            if row.pid in listed:
                shares.pct[row.pid] = float(row.smUtil)
        return shares.pct

    def _without_answer(self, listed: set[int], now: float) -> dict[int, float]:
        """Return what was known, for a while. Then it is 0 if the whole GPU was idle, and unknown
        if not: on some cards the call never answers."""
        shares = self._shares
        if shares.asked_since is None:
            shares.asked_since = now
        if shares.known_at is not None and now - shares.known_at <= SHARE_KEPT_S:
            return {pid: shares.pct[pid] for pid in listed if pid in shares.pct}
        rates = self._device.ask("nvmlDeviceGetUtilizationRates")
        if type(rates) is not Absence and rates.gpu == 0:
            return dict.fromkeys(listed, 0.0)
        if now - shares.asked_since >= SILENT_MAX_S:
            shares.seen_to, shares.asked_since = 0, now
        return {}


def _share(row: Any) -> NvmlUtilizationRow:
    if type(row) is pynvml.c_nvmlProcessUtilizationInfo_v1_t:
        return NvmlUtilizationRow._make(_NEW_SHARE.unpack(row))
    pid, at, *pct = _OLD_SHARE.unpack(row)
    return NvmlUtilizationRow(at, pid, *pct)


def _add(uses: dict[int, NvmlProcessUse], row: NvmlProcessRow, kind: Kind) -> None:
    """Add a row. Of the same process in two lists the amounts are the same memory: never their
    sum."""
    use = uses.setdefault(row.pid, NvmlProcessUse(None, kind))
    use.kind = kind
    if row.usedGpuMemory < NOT_MEMORY:
        use.memory = max(use.memory or 0.0, float(row.usedGpuMemory))


def _is_sane(row: NvmlUtilizationRow) -> bool:
    return bool(max(row.smUtil, row.memUtil, row.encUtil, row.decUtil) <= 100)


def rows_of(name: str, layout: struct.Struct, handle: Any) -> list[NvmlProcessRow]:
    """Return all rows of one list. Processes may come while we ask: then once more with more room.
    One call, where pynvml makes two: each takes the lock that the workloads' own calls want."""
    call = pynvml._nvmlGetFunctionPointer(name)
    room, code = ROOM, pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    for _ in range(TRIES):
        count, rows = ctypes.c_uint(room), (ctypes.c_char * (layout.size * room))()
        code = call(handle, ctypes.byref(count), rows)
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            break
        room = max(2 * room, count.value + ROOM)
    pynvml._nvmlCheckReturn(code)
    raw = rows.raw[: min(count.value, room) * layout.size]
    return list(map(NvmlProcessRow._make, layout.iter_unpack(raw)))


def has_wide_rows() -> bool:
    """Return whether rows are wide, told apart as in nvitop: no other trace of the layout is
    left."""
    return (_has("nvmlDeviceGetConfComputeMemSizeInfo")
            and not _has("nvmlDeviceGetRunningProcessDetailList"))


def _has(name: str) -> bool:
    try:
        pynvml._nvmlGetFunctionPointer(name)
    except pynvml.NVMLError:
        return False
    return True


CALL = "nvmlDeviceGetAccountingStats"
# The driver's clock is the machine's, ours was read a little later.
CLOCK_SLACK_S = 2.0
LASTS_MOST_MS = 10 * 366 * 86_400_000


class NvmlAccounting:
    """Accounting of one board."""

    def __init__(self, device: NvmlDevice) -> None:
        self._device = device
        self._first_at: dict[int, float] = {}  # pid -> UTC seconds
        self._listed_at = 0.0

    def read_ended(
        self, is_on: bool, listed: Iterable[int], at: float
    ) -> tuple[ProcessAccounting, ...]:
        """Read the accounting of processes that were listed before and are not now. What does not
        arrive in time is dropped: it might belong to a later process with that pid."""
        was, last_at, self._listed_at = self._first_at, self._listed_at, at
        self._first_at = {pid: was.get(pid, at) for pid in listed}
        ended_pids = was.keys() - self._first_at.keys() if is_on else ()
        rows = (self._of(pid, was[pid], last_at) for pid in sorted(ended_pids))
        return tuple(row for row in rows if row is not None)

    def _of(self, pid: int, first_at: float, last_at: float) -> ProcessAccounting | None:
        stats = self._device.ask(_stats, pid, question=CALL)
        if isinstance(stats, Absence) or stats.isRunning:
            return None
        seconds, began_at = _seconds(stats.time), stats.startTime / 1e6
        # It was there all the while that we saw it; or this is another process of that number,
        # later or from the driver's ring of thousands.
        is_it = seconds is not None and began_at <= first_at + CLOCK_SLACK_S and (
            began_at + seconds >= last_at - CLOCK_SLACK_S)
        if not is_it:
            return None
        return ProcessAccounting(
            pid, self._device.uuid, _within(stats.maxMemoryUsage, NOT_MEMORY),
            _within(stats.gpuUtilization, metric("util_pct").high),
            _within(stats.memoryUtilization, metric("mem_util_pct").high),
            seconds)


def _stats(handle: Any, pid: int) -> Any:
    """Read the accounting by our own call: where the memory is not known, pynvml's puts a None into
    a number and breaks."""
    stats = pynvml.c_nvmlAccountingStats_t()
    pynvml._nvmlCheckReturn(pynvml._nvmlGetFunctionPointer(CALL)(
        handle, ctypes.c_uint(pid), ctypes.byref(stats)))
    return stats


def _within(value: Any, most: float) -> float | None:
    """Return a number in range. Beyond it is a sentinel: NVML_VALUE_NOT_AVAILABLE is all ones."""
    return float(value) if value is not None and 0 <= value <= most else None


def _seconds(said_ms: int) -> float | None:
    """Return seconds; 0 while it runs, so of one that has ended it means nothing."""
    return said_ms / 1_000 if 0 < said_ms <= LASTS_MOST_MS else None
