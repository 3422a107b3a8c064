"""What a backend must offer, and what it returns: vendor-neutral, units in names."""

from collections.abc import Callable
from importlib import import_module
from typing import Literal, Protocol, cast

from msgspec import Struct

from gpudeck.wire import GpuFacts, GpuLink, GpuState, ReaderState, Task

from ..tasks.owners import Owner


class GpuReading(Struct, frozen=True, array_like=True):
    """One Gpu at one moment. `values` and `absent` follow metrics.COLUMNS; where `absent` is not
    PRESENT the value is 0 and means nothing."""

    uuid: str
    state: GpuState
    values: tuple[float, ...]
    absent: bytes
    # The same over metrics.SLOW; both empty: not asked this time (15 s cadence).
    slow: tuple[float, ...] = ()
    slow_absent: bytes = b""


class BackendEvent(Struct, frozen=True):
    """What the backend saw happen since its last Reading: an Event before it has a number."""

    kind: str  # of gpudeck.events.KINDS
    at: float
    gpu_uuid: str | None = None
    text: str = ""
    numbers: dict[str, float] = {}


class ProcessReading(Struct, frozen=True):
    """One process on one Gpu, as the driver lists it.

    The last six are filled only by backends whose processes this machine's /proc does not
    describe (simulated owners, recorded tasks); elsewhere tasks.py asks the kernel.
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
    task: Task | None = None  # as it was recorded: nothing here knows more of it


class ProcessAccounting(Struct, frozen=True):
    """What the driver counted of one process on one Gpu, from its beginning to its end. None: it
    does not say."""

    pid: int
    gpu_uuid: str
    mem_peak_bytes: float | None
    util_pct: float | None  # share of its life in which a kernel of it ran
    mem_util_pct: float | None
    seconds: float | None  # that it had the Gpu open


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
    detail: str = ""  # what is wrong with single Gpus and what to do, for people
    accounted: tuple[ProcessAccounting,
                     ...] = ()  # of processes that have ended since the last list


class OnDemandReading(Struct, frozen=True):
    """What an act is judged by: read when asked, beside the cadence of Readings."""

    processes: tuple[ProcessReading, ...]
    mem_used_bytes: dict[str, float | None]  # by Gpu
    energy_j: dict[str, float | None] = {}  # by Gpu that has such a counter


class Reader(Protocol):
    """`read` blocks until the driver answers. It raises Unavailable when there is nothing to read
    at all; one bad Gpu or one bad field is a state or an Absence, never an exception."""

    def read(self) -> Reading: ...

    def fresh(self) -> OnDemandReading:
        """Raises Unavailable as well where one Gpu does not list its processes just now."""

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """From now on `tell`, from any thread, what happens beside the readings. A backend that
        sees things happen only when it reads puts them into its Readings."""

    def close(self) -> None: ...


class ReaderUnavailableError(Exception):
    """No reading is to be had now. `state` says which way, `detail` tells people what to do."""

    def __init__(self, state: ReaderState, detail: str) -> None:
        super().__init__(detail)
        self.state = state
        self.detail = detail


class StaleReaderError(Exception):
    """The readings go on, and a fresh process may see more than this one does."""


MODULES = {"nvml": ".nvml.reader", "simulated": ".simulation.reader", "recorded": ".recorded"}


def resolve(name: str) -> str:
    """What "auto" means on this machine. There is one kind of board so far."""
    return "nvml" if name == "auto" else name


def choose_reader(name: str, options: str = "") -> Reader:
    """Each backend is a module with `open_reader(options)`, and only the chosen one is imported.
    Raises Unavailable if it has nothing to read now."""
    return cast(Reader, import_module(MODULES[resolve(name)], __name__).open_reader(options))
