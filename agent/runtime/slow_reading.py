"""Periodic reading, in a separate thread, of what may take long: the agent goes on meanwhile."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .worker import Worker

R = TypeVar("R")


class SlowReading(Generic[R]):
    def __init__(self, name: str, read: Callable[[], R] | None, every_s: float, load_share: float,
                 wake: Callable[[], None]) -> None:
        """`read` None: there is nothing to read. What takes a second is not read again for
        `load_share` seconds."""
        self._read = read
        self._every_s = every_s
        self._load_share = load_share
        self._wake = wake
        self._worker = Worker(name, 1)
        self._next_at = 0.0
        self._news: R | None = None

    def changed(self) -> None:
        """Read again at the next step."""
        self._next_at = 0.0

    def step(self, now: float, is_live: bool) -> Sequence[R]:
        """Start a read if one is due, and return what is new. `is_live`: a hub is connected;
        without one nothing is read."""
        read = self._read
        if read is None or not is_live:
            return ()
        if now >= self._next_at and self._worker.is_idle:
            self._next_at = now + self._every_s
            self._worker.put(lambda: self._round(read))
        news, self._news = self._news, None
        return () if news is None else (news,)

    def close(self) -> None:
        self._worker.close()

    def _round(self, read: Callable[[], R]) -> None:
        began = time.monotonic()
        self._news = read()  # also if unchanged, for its time: old values are not shown as live
        took_s = time.monotonic() - began
        self._next_at = max(self._next_at, time.monotonic() + self._load_share * took_s)
        self._wake()
