"""The last looks at the Gpus' Tasks, for whoever must see with their own eyes what is so now."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from .sampler import Seen

KEPT = 8


@dataclass(frozen=True, slots=True)
class Sighting:
    taken_at: float  # UTC, when the driver was asked
    came_mono: float
    seen: tuple[Seen, ...]


class Sightings:
    def __init__(self) -> None:
        self._kept: deque[Sighting] = deque(maxlen=KEPT)
        self._news = threading.Condition()

    def saw(self, seen: tuple[Seen, ...], taken_at: float) -> None:
        with self._news:
            self._kept.append(Sighting(taken_at, time.monotonic(), seen))
            self._news.notify_all()

    def after(self, taken_at: float, mono: float) -> list[Sighting]:
        """Asked and come after that: by both clocks, since one of them can be set."""
        with self._news:
            return self._after(taken_at, mono)

    def wait(self, taken_at: float, mono: float, count: int, within_s: float) -> list[Sighting]:
        """So many of them; fewer where they do not come in time."""
        until = time.monotonic() + within_s
        with self._news:
            while len(found := self._after(taken_at, mono)) < count and (
                    left_s := until - time.monotonic()) > 0:
                self._news.wait(left_s)
            return found

    def _after(self, taken_at: float, mono: float) -> list[Sighting]:
        return [each for each in self._kept if each.taken_at > taken_at and each.came_mono > mono]
