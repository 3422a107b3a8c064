"""Time slices of a computation on the hub's one thread, and how much time all of it took."""

from collections.abc import Generator
from time import thread_time
from typing import TypeVar

from gevent import sleep

T = TypeVar("T")
HOLDS_S = 0.006  # then the rest of the hub runs; some steps are longer than others


class Stretch:
    """CPU time of this thread: what others use of the machine is not counted."""

    def __init__(self) -> None:
        self._began = thread_time()
        self._before = 0.0

    def rest(self) -> None:
        """Pause if it is time."""
        if thread_time() - self._began >= HOLDS_S:
            self.pause()

    def pause(self) -> None:
        self._before += thread_time() - self._began
        sleep(0)
        self._began = thread_time()

    def all(self, steps: Generator[None, None, T]) -> T:
        try:
            while True:
                next(steps)
                self.rest()
        except StopIteration as end:
            self.pause()
            return end.value  # type: ignore[no-any-return]

    @property
    def spent_s(self) -> float:
        return self._before + thread_time() - self._began
