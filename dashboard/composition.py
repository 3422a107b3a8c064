"""Composition of the hub: each capability makes its parts, in the order of capabilities.py, finds
those of the capabilities before it by their type, and says what the hub does with it."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import gevent

from .public_url import PublicOrigins
from .runtime.dispatcher import Dispatcher
from .runtime.runner import Loop, Runner
from .runtime.state_guard import StateGuard
from .settings import HubSettings
from .state import HubState

log = logging.getLogger("gpudeck.hub")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _nothing() -> None:
    """Do nothing: most capabilities need no starting and no end."""


def _no_metrics(_visible: object) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Capability:
    """What the hub does with a capability.

    `metrics`: families for Prometheus, as the viewer of a VisibleFleet may see them; `hub_metrics`:
    those on the hub itself. `apis`: makes the objects that serve its `ROUTES`, once all
    capabilities are built. `tasks`: each runs in a separate greenlet and never ends. `writer`
    runs until `stop`, then writes what it still has, and ends. `close` is called when everything
    has ended. The last capability is stopped and closed first.
    """

    loops: tuple[Loop, ...] = ()
    metrics: Callable[[Any], Iterable[str]] = _no_metrics
    hub_metrics: Callable[[], Iterable[str]] = tuple
    apis: Callable[[], Iterable[object]] = tuple
    tasks: tuple[Callable[[], None], ...] = ()
    writer: Callable[[], None] | None = None
    start: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class HubGreenlets:
    """Greenlets of a hub: none of them ends before it is stopped."""

    writers: "list[gevent.Greenlet[..., Any]]"
    others: "list[gevent.Greenlet[..., Any]]"


@dataclass(frozen=True, eq=False, slots=True)
class Seam(Generic[P, R]):
    """A function that a capability needs of one above it. The one that needs it declares the seam;
    the one that has it joins it (`Core.join`)."""

    about: str  # "why an owner cannot be reached"


class Core:
    """What all capabilities share, and the parts that they have made so far."""

    def __init__(self, settings: HubSettings, state: HubState, site: PublicOrigins, epoch: int
                 ) -> None:
        self.settings = settings
        self.state = state
        self.site = site
        self.epoch = epoch
        self.events = Dispatcher()
        self.guard = StateGuard()
        self.built: list[Capability] = []
        self._parts: dict[Any, Any] = {}
        self._needed: set[Any] = set()

    # -- parts, by their type

    def add(self, part: T, *kinds: Any) -> T:
        """Make a part known by its type, and by these protocols that it meets."""
        for kind in (type(part), *kinds):
            self._put(kind, part)
        return part

    def get(self, kind: type[T]) -> T:
        """Return the part of this type, which a capability before this one has made."""
        if kind not in self._parts:
            raise RuntimeError(f"no capability before this one makes a {_name(kind)}; see the "
                               "order in dashboard/capabilities.py")
        part: T = self._parts[kind]
        return part

    def later(self, kind: type[T]) -> Callable[[], T]:
        """Return a function that returns the part, which a capability after this one makes. Without
        one that does the hub does not start."""
        self._needed.add(kind)
        return lambda: self.get(kind)

    # -- functions of the capabilities above

    def join(self, seam: Seam[P, R], function: Callable[P, R]) -> None:
        self._put(seam, function)

    def call(self, seam: Seam[P, R]) -> Callable[P, R]:
        """Return a function that calls the one of a capability after this one."""
        self._needed.add(seam)

        def called(*arguments: P.args, **named: P.kwargs) -> R:
            function: Callable[P, R] = self._parts[seam]
            return function(*arguments, **named)
        return called

    # -- all of them

    def build(self, builders: Iterable[Callable[["Core"], Capability]]) -> None:
        for build in builders:
            self.built.append(build(self))
        missing = sorted(_name(key) for key in self._needed if key not in self._parts)
        if missing:
            raise RuntimeError(f"no capability of this hub has: {', '.join(missing)}")

    def start(self) -> HubGreenlets:
        for capability in self.built:
            capability.start()
        loops = [loop for capability in self.built for loop in capability.loops]
        return HubGreenlets(
            [gevent.spawn(capability.writer) for capability in self.built
             if capability.writer is not None],
            [*Runner(loops, self.state.confirm).start(),
             *(gevent.spawn(task) for capability in self.built for task in capability.tasks)])

    def stop(self) -> None:
        _call_each(capability.stop for capability in reversed(self.built))

    def close(self) -> None:
        _call_each(capability.close for capability in reversed(self.built))

    def _put(self, key: Any, part: Any) -> None:
        if key in self._parts:
            raise RuntimeError(f"two capabilities have a {_name(key)}")
        self._parts[key] = part


def _call_each(ends: Iterable[Callable[[], None]]) -> None:
    """Call them all: one that fails does not keep the others from writing what they have."""
    for end in ends:
        try:
            end()
        except Exception:
            log.exception("part_not_ended")


def _name(key: Any) -> str:
    return key.about if isinstance(key, Seam) else str(key.__name__)
