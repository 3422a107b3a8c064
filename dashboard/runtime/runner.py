"""The hub's loops: one shape for all services that do something periodically."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import gevent
from gevent.event import Event

from gpudeck.rate import RateLimiter

from ..errors import ArchiveAwayError
from .state_store import StateUnavailableError

log = logging.getLogger("gpudeck.runtime")

TICK_S = 1.0  # of loops whose work is due every second
Step = Callable[[float, float], None]  # UTC seconds, monotonic seconds


@dataclass(frozen=True, slots=True)
class Loop:
    """`step` is called every `every_s`, and at once when `wake` is set. A vital loop that fails
    ends the hub, which must not look alive without it; another one is logged and goes on."""

    name: str
    step: Step
    every_s: float
    wake: Event | None = None
    is_vital: bool = False


class Runner:
    def __init__(self, loops: Iterable[Loop], confirm: Callable[[], None]) -> None:
        """`confirm`: called before each step; ends the process if the hub may not act any more."""
        self._loops = tuple(loops)
        self._confirm = confirm
        self.failures: dict[str, int] = {}
        self._away = RateLimiter()

    def start(self) -> "list[gevent.Greenlet[..., None]]":
        return [gevent.spawn(self._run, loop) for loop in self._loops]

    def _run(self, loop: Loop) -> None:
        while True:
            if loop.wake is None:
                gevent.sleep(loop.every_s)
            elif loop.wake.wait(loop.every_s):
                loop.wake.clear()
            self.once(loop)

    def once(self, loop: Loop) -> None:
        self._confirm()
        try:
            loop.step(time.time(), time.monotonic())
        except (StateUnavailableError, ArchiveAwayError) as error:
            # What it needs is away, which is no fault of this loop: the live picture goes on.
            if self._away.due(loop.name, time.monotonic()) is not None:
                log.warning("loop_waits name=%s why=%r", loop.name, str(error))
        except Exception:
            if loop.is_vital:
                raise
            self.failures[loop.name] = self.failures.get(loop.name, 0) + 1
            log.exception("loop_failed name=%s", loop.name)
