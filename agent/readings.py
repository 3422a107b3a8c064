"""Data that a backend returns, and what hands it out: vendor-neutral, units in names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec import Struct, structs

from gpudeck.contract.hosts import HostSample
from gpudeck.contract.vendors import vendor_of
from gpudeck.contract.wire import GpuFacts, GpuLink, GpuState, ReaderState, Task
from gpudeck.measures.availability import GpuConditions
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, Absence
from gpudeck.mig.boards import MigProfile


class Owner(Struct, frozen=True, omit_defaults=True):
    """Owner of a process, as in wire.Task."""

    uid: int | None = None
    parent_pid: int | None = None
    manager: str | None = None
    container: str | None = None
    container_name: str | None = None
    pod: str | None = None
    namespace: str | None = None
    slurm_job: str | None = None
    unit: str | None = None
    notebook: str | None = None
    launch: str | None = None
    rank: int | None = None
    groups: tuple[str, ...] = ()


class GpuReading(Struct, frozen=True, array_like=True):
    """State and values of a GPU at one moment. `values` and `absent` follow metrics.COLUMNS; where
    `absent` is not PRESENT the value is 0 and means nothing."""

    uuid: str
    state: GpuState
    values: tuple[float, ...]
    absent: bytes
    # The same over metrics.SLOW; both empty: not asked this time (15 s cadence).
    slow: tuple[float, ...] = ()
    slow_absent: bytes = b""

    def value(self, key: str) -> float | None:
        """Return the value of the metric with this key. None: it is not there."""
        if key in COLUMN:
            at, values, absent = COLUMN[key], self.values, self.absent
        else:
            at, values, absent = SLOW_COLUMN[key], self.slow, self.slow_absent
        return values[at] if at < len(absent) and absent[at] == Absence.PRESENT else None


    def is_unread(self, key: str) -> bool:
        """Return whether the board could report this metric, and did not."""
        at = COLUMN[key]
        why = self.absent[at] if at < len(self.absent) else Absence.UNKNOWN
        return why not in (Absence.PRESENT, Absence.UNSUPPORTED)


def conditions(gpu: GpuReading, is_part: bool, is_split: bool, waits_for_remap: bool
               ) -> GpuConditions:
    """Return the conditions of a GPU as far as a reading shows them. A MIG instance has no
    utilization."""
    mem, peak = gpu.value("mem_used_bytes"), gpu.value("util_max_pct")
    util = gpu.value("util_pct") if peak is None else peak
    return GpuConditions(
        is_split=is_split, is_lost=gpu.state == "lost", is_error=gpu.state == "error",
        is_stale=gpu.state == "stale", waits_for_remap=waits_for_remap,
        mem_used_bytes=float("nan") if mem is None else mem,
        peak_pct=float("nan") if util is None else util,
        is_unread=gpu.is_unread("mem_used_bytes") or (
            not is_part and util is None and gpu.is_unread("util_pct")))


class BoardNote(Struct, frozen=True, array_like=True):
    """Fault of a single board, by its index, and what to do; the words come after its name."""

    index: int
    words: str


NOTES_MOST = 1_024


def note_words(notes: Iterable[BoardNote], first: int = 0) -> str:
    """Return notes for people. `first`: how many boards of others are counted before these."""
    return " ".join(f"GPU {note.index + first} {note.words}" for note in notes)[:NOTES_MOST]


class BackendEvent(Struct, frozen=True):
    """Event that the backend saw since its last Reading; it has no number yet."""

    kind: str  # of gpudeck.measures.events.KINDS
    at: float
    gpu_uuid: str | None = None
    text: str = ""
    numbers: dict[str, float] = {}
    part_uuid: str | None = None  # of the part of that GPU that it concerns
    echo: str = ""  # the text instead if we have just ended a task; "": not related to that


class ProcessReading(Struct, frozen=True):
    """Process on a GPU, as the driver lists it.

    The last six are filled only by backends whose processes this machine's /proc does not describe
    (simulated owners, recorded tasks); elsewhere tasks.py asks the kernel.
    """

    pid: int
    gpu_uuid: str
    mem_used_bytes: float | None
    sm_pct: float | None
    kind: Literal["compute", "graphics", "mps_server", "mps_client"] = "compute"
    user: str | None = None
    command: str | None = None
    started_at: float | None = None
    start_ticks: int | None = None
    state: Literal["running", "paused", "uninterruptible", "zombie"] | None = None
    owner: Owner = Owner()
    task: Task | None = None  # as it was recorded: nothing more is known of it here


class ProcessAccounting(Struct, frozen=True):
    """Driver's accounting of one process on one GPU, from its start to its end. None: not
    reported."""

    pid: int
    gpu_uuid: str
    mem_peak_bytes: float | None
    util_pct: float | None  # share of its life in which a kernel of it ran
    mem_util_pct: float | None
    seconds: float | None  # that it had the GPU open


class Reading(Struct, frozen=True):
    taken_at: float  # UTC seconds
    interval_s: float
    gpus: tuple[GpuReading, ...]
    facts: tuple[GpuFacts, ...]  # same order as gpus
    processes: tuple[ProcessReading, ...] | None  # None: not asked this time (2 s cadence)
    driver_version: str | None = None
    links: tuple[GpuLink, ...] = ()
    happenings: tuple[BackendEvent, ...] = ()
    took_s: float | None = None  # the reading itself, inside the driver for the most part
    detail: str = ""  # what is wrong with single GPUs and what to do, for people
    notes: tuple[BoardNote, ...] = ()  # the same by board, where other vendors' may be counted too
    accounted: tuple[ProcessAccounting,
                     ...] = ()  # of processes that have ended since the last list
    host: HostSample | None = None  # every 5 s; of real nodes the agent looks itself
    cuda_version: str | None = None  # the newest that this driver runs


def with_slow(reading: Reading, before: Reading | None) -> Reading:
    """Fill in slow values, which are read less often than the rest, from the reading before."""
    slow = {gpu.uuid: gpu for gpu in before.gpus if gpu.slow} if before is not None else {}
    return structs.replace(reading, gpus=tuple(
        structs.replace(gpu, slow=slow[gpu.uuid].slow, slow_absent=slow[gpu.uuid].slow_absent)
        if not gpu.slow and gpu.uuid in slow and gpu.state == "ok" else gpu
        for gpu in reading.gpus))


class OnDemandReading(Struct, frozen=True):
    """Reading on request, outside the cadence of Readings: what an action is judged by."""

    processes: tuple[ProcessReading, ...]
    mem_used_bytes: dict[str, float | None]  # by GPU
    energy_j: dict[str, float | None] = {}  # by GPU that has such a counter
    # Vendors whose driver does not list its processes now: nobody knows what runs on their boards.
    unread: tuple[str, ...] = ()

    def is_read(self, uuid: str) -> bool:
        return not self.unread or vendor_of(uuid) not in self.unread


class ProcessListSource(Protocol):
    """The part of a source of Readings that actions use."""

    def fresh(self, timeout_s: float) -> OnDemandReading | None:
        """Return a process list read after this call began; None: the driver does not answer.
        Blocks."""

    @property
    def pids(self) -> frozenset[int]:
        """PIDs of the processes that read for us."""

    def readers_of(self, uuid: str) -> frozenset[int]:
        """Return the PIDs of those that read a board's driver."""

    @property
    def detail(self) -> str: ...


class ReadingSource(ProcessListSource, Protocol):
    """Source of Readings: ReaderProcess, or the simulator's in-process one."""

    @property
    def state(self) -> ReaderState: ...
    @property
    def age_s(self) -> float | None: ...
    @property
    def read_s(self) -> float | None:
        """Seconds that the last read of the driver took."""

    def latest(self) -> Reading | None:
        """Return the newest Reading not handed out yet, or None; never blocks."""

    def take_events(self) -> tuple[BackendEvent, ...]:
        """Return events not handed out yet, also of Readings never fetched; never blocks."""

    def close(self) -> None: ...


class GroupMemory(Struct, frozen=True):
    """Memory of a GPU that a control group may have, as the driver reports it now. `hard_bytes`
    None: no limit. `is_inherited`: the limit is that of a group around it."""

    gpu_uuid: str
    group: str
    hard_bytes: int | None = None
    is_inherited: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """Limits and settings of a GPU as the driver reports them now. None: not reported."""

    uuid: str
    power_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    power_default_w: float | None = None
    clock_max_mhz: float | None = None
    sm_clock_mhz: float | None = None
    util_pct: float | None = None
    locked_mhz: tuple[float, float] | None = None
    tells_lock: bool = False  # NVML has no way to read a lock back; a simulator has
    compute_mode: int | None = None  # 0 default, 3 exclusive process
    recovery_action: int | None = None  # as the driver advises; 0: none
    trouble: str = ""


class MigInstanceSeen(Struct, frozen=True):
    """GPU instance of MIG. `uuids`: of its MIG devices, one for each of its compute instances; if
    there are none, nothing can run on it."""

    id: int
    profile: int
    start: int
    uuids: tuple[str, ...]
    is_complete: bool


class MigBoard(Struct, frozen=True):
    """MIG state of a board: how it is split now, and how it could be. None: the driver does not
    say."""

    uuid: str
    is_on: bool | None = None
    is_pending: bool = False  # the mode was set and waits for a reset
    is_resetless: bool = False  # the driver says that the mode changes without a reset
    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[MigInstanceSeen, ...] = ()
    trouble: str = ""
