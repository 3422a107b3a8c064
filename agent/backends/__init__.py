"""The table of backends: what each can do and which modules do it. What they return is in
agent/readings.py, loaded only when a backend is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from gpudeck.contract import vendors
from gpudeck.contract.vendors import NO_SUSPENSION, vendor_of

from ..tasks.driver_files import DriverFiles

if TYPE_CHECKING:
    from gpudeck.contract.wire import ReaderState

    from ..readings import (
        BackendEvent,
        GpuLimits,
        GroupMemory,
        MigBoard,
        OnDemandReading,
        Reading,
    )
    from ..tasks.people import NodePeople
    from .repair import RepairModule
    from .suspend import SuspendModule
    from .time_slice import TimeSliceModule


class Reader(Protocol):
    """`read` blocks until the driver answers. It raises ReaderUnavailableError when there is
    nothing to read at all; one bad GPU or one bad field is a state or an Absence, never an
    exception."""

    def read(self) -> Reading: ...

    def fresh(self) -> OnDemandReading:
        """Read at once. Raises ReaderUnavailableError as well where a GPU cannot list its processes
        now."""

    def watch(self, tell: Callable[[BackendEvent], None]) -> None:
        """Call `tell`, from any thread, for events that happen between the readings. A backend
        that sees events only while it reads puts them into its Readings."""

    def close(self) -> None: ...


class GpuLimitControl(Protocol):
    """Sets limits of GPUs; raises one of its module's ERRORS."""

    def read(self, uuid: str) -> GpuLimits: ...
    def set_power(self, uuid: str, watts: float) -> None: ...
    def lock_clocks(self, uuid: str, low_mhz: float, high_mhz: float) -> None: ...
    def unlock_clocks(self, uuid: str) -> None: ...
    def set_mode(self, uuid: str, mode: int) -> None: ...
    def mig(self, uuid: str) -> MigBoard: ...
    def set_mig_mode(self, uuid: str, is_on: bool) -> None: ...
    def create_instance(self, uuid: str, profile: int, start: int) -> None: ...
    def destroy_instance(self, uuid: str, instance: int) -> None: ...
    def memory(self, uuid: str, group: str) -> GroupMemory:
        """Return the memory that a control group may have, by the full path of its folder."""

    def set_memory(self, uuid: str, group: str, limit_bytes: int | None) -> None:
        """Limit it; None: not any more. Less than is in use is refused."""

    def close(self) -> None: ...


class LimitsModule(Protocol):
    ERRORS: tuple[type[Exception], ...]

    def open_limits(self, options: str) -> GpuLimitControl: ...
    def in_words(self, error: Exception) -> str: ...


class DriverModule(DriverFiles, Protocol):
    """Facts that a machine shows of a driver that nobody has to open."""

    def driver_version(self) -> str | None:
        """Return the driver's version; None: not loaded, or not visible from here."""


class PeopleModule(Protocol):
    """People behind the tasks of a machine without users."""

    def open_people(self, options: str) -> NodePeople: ...


class ReaderUnavailableError(Exception):
    """A backend that can read nothing now. `state` names the reason, `detail` says what to do."""

    def __init__(self, state: ReaderState, detail: str) -> None:
        super().__init__(detail)
        self.state = state
        self.detail = detail


class StaleReaderError(Exception):
    """The readings go on, but a fresh process may see more than this one does."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts that the agent may assume of a backend. Without defaults: a new backend answers all."""

    # "host": of the machine's own namespace, as a driver lists them. "own": of the agent's
    # namespace. "recorded": of another time, so that nothing may be done to them.
    pids: Literal["host", "own", "recorded"]
    limits: Literal["child process", "in process", "none"]  # in a child where a setter can hang
    limits_option: str  # must stand in the options, or no limit can be set
    simulates_mps: bool
    plays_file: bool

    def can_set_limits(self, options: str) -> bool:
        return self.limits != "none" and self.limits_option in options


@dataclass(frozen=True, slots=True)
class Backend:
    """A row of the table. Modules are named, not imported: a node loads only its own."""

    name: str
    capabilities: Capabilities
    reader: str  # has open_reader(options)
    limits: str = ""  # a LimitsModule
    driver: str = ""  # a DriverModule
    doctor: str = ""  # a check.DoctorModule
    repair: str = ""  # a repair.RepairModule
    suspend: str = ""  # a suspend.SuspendModule
    time_slice: str = ""  # a time_slice.TimeSliceModule
    people: str = ""  # a PeopleModule; none: the users of this machine
    vendor: str = ""  # of its boards; "": they are not those of this machine
    parts: tuple[Backend, ...] = ()  # of a node with boards of several vendors

    @property
    def readers(self) -> tuple[Backend, ...]:
        """Backends to read, each by a separate process."""
        return self.parts or (self,)

    def part_of(self, uuid: str) -> Backend | None:
        """Return the backend of a board. None: it is of no vendor that is read here."""
        if not self.parts:
            return self
        vendor = vendor_of(uuid)
        return next((part for part in self.parts if part.vendor == vendor), None)

    def open_reader(self, options: str) -> Reader:
        """Raises ReaderUnavailableError if it has nothing to read now."""
        return cast(Reader, module_of(self.reader).open_reader(options))

    def limits_module(self) -> LimitsModule:
        return cast(LimitsModule, module_of(self.limits))

    def driver_module(self) -> DriverModule | None:
        return cast(DriverModule, module_of(self.driver)) if self.driver else None

    def repair_module(self) -> RepairModule | None:
        return cast("RepairModule", module_of(self.repair)) if self.repair else None

    def suspend_module(self) -> SuspendModule | None:
        return cast("SuspendModule", module_of(self.suspend)) if self.suspend else None

    def suspend_trouble(self, driver: str | None) -> str:
        """Return why it can suspend no task at all; "": nothing is in the way. `driver`: its
        version."""
        module = self.suspend_module()
        return NO_SUSPENSION if module is None else module.trouble(driver)

    def time_slice_module(self) -> TimeSliceModule | None:
        return cast("TimeSliceModule", module_of(self.time_slice)) if self.time_slice else None

    def people_module(self) -> PeopleModule | None:
        return cast(PeopleModule, module_of(self.people)) if self.people else None

    def driver_version(self) -> str | None:
        """Return the version of the loaded driver, without opening it."""
        module = self.driver_module()
        return None if module is None else module.driver_version()

    def needs_driver(self) -> bool:
        """Return whether its driver is not loaded."""
        return self.driver != "" and self.driver_version() is None


NVML = Backend(
    "nvml", Capabilities("host", "child process", "", simulates_mps=False, plays_file=False),
    ".nvml.reader", ".nvml.limits", ".nvml.driver", ".nvml.doctor", ".nvml.repair",
    ".nvml.suspend", ".nvml.time_slice", vendor=vendors.NVIDIA)
# Neither is chosen by itself before it was tried on hardware (docs/hardware.md).
AMD = Backend(
    "amd", Capabilities("host", "none", "", simulates_mps=False, plays_file=False),
    ".amd.reader", doctor=".amd.doctor", vendor=vendors.AMD)
INTEL = Backend(
    "intel", Capabilities("host", "none", "", simulates_mps=False, plays_file=False),
    ".intel.reader", doctor=".intel.doctor", vendor=vendors.INTEL)
SIMULATED = Backend(
    "simulated", Capabilities("own", "in process", "world=", simulates_mps=True, plays_file=False),
    ".simulation.reader", ".simulation.limits", repair=".simulation.repair",
    people=".simulation.people")
RECORDED = Backend(
    "recorded", Capabilities("recorded", "none", "", simulates_mps=False, plays_file=True),
    ".recorded")
_ROWS = (NVML, AMD, INTEL, SIMULATED, RECORDED)


def mixed(parts: tuple[Backend, ...]) -> Backend:
    """Return the backend of a node with boards of several vendors. It does for a board what the
    board's own part does; its modules are those of the first part that has them."""
    def first(kind: str) -> str:
        return next(filter(None, (getattr(part, kind) for part in parts)), "")

    return Backend(
        ",".join(part.name for part in parts),
        Capabilities("host", "child process" if first("limits") else "none", "",
                     simulates_mps=False, plays_file=False),
        "", limits=first("limits"), driver=first("driver"), repair=first("repair"),
        suspend=first("suspend"), time_slice=first("time_slice"), parts=parts)


_OF_VENDORS = tuple(backend for backend in _ROWS if backend.vendor)
MIXED = tuple(mixed(parts) for count in range(2, len(_OF_VENDORS) + 1)
              for parts in combinations(_OF_VENDORS, count))
BACKENDS = {backend.name: backend for backend in (*_ROWS, *MIXED)}


def backend_named(name: str) -> Backend:
    """Return the backend; "auto" is the only one of real boards."""
    return NVML if name == "auto" else BACKENDS[name]


def driver_modules(backends: Iterable[Backend]) -> list[DriverModule]:
    """Return the modules of these backends' drivers, each once."""
    modules = {backend.driver: module for backend in backends
               if (module := backend.driver_module()) is not None}
    return [*modules.values()]


def module_of(name: str) -> Any:
    return import_module(name, __name__)
