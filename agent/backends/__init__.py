"""What a backend must offer, and which there are. What it returns: agent/readings.py."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from gpudeck.wire import ReaderState

from ..readings import BackendEvent, OnDemandReading, Reading


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
