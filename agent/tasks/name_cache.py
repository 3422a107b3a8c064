"""Looks up names in a separate thread: what they are read from may lie on a server that does not
answer, and nothing waits for it."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from .containers import names_of
from .managers import CgroupMembership
from .owners import NO_NAMES, WorkloadNames

Key = tuple[CgroupMembership, int | None]  # and the uid of the process
# Only new tasks wait, and all of them together only while the thread keeps up.
WAIT_S = 0.25
# A runtime may write its files after it has started the process.
TRIES_AFTER_S = (0.0, 5.0, 30.0)


class WorkloadNameCache:
    def __init__(
        self, find: Callable[[CgroupMembership, int | None], WorkloadNames] = names_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._clock = clock
        self._cached: dict[Key, WorkloadNames] = {}
        self._attempts: dict[Key, tuple[int, float]] = {}  # times, and when next
        self._queue: SimpleQueue[tuple[Key, threading.Event]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_behind = False

    def names(self, place: CgroupMembership, uid: int | None) -> tuple[WorkloadNames, bool]:
        """Return what is known now, and whether that is all there will be."""
        key = (place, uid)
        names = self._cached.get(key, NO_NAMES)
        times, due_at = self._attempts.get(key, (0, self._clock()))
        if is_whole(place, names) or times >= len(TRIES_AFTER_S):
            return names, True
        if self._clock() >= due_at:
            after_s = TRIES_AFTER_S[times + 1] if times + 1 < len(TRIES_AFTER_S) else 60.0
            self._attempts[key] = times + 1, self._clock() + after_s
            self._ask(key)
            names = self._cached.get(key, NO_NAMES)
        return names, is_whole(place, names)

    def keep(self, keys: set[Key]) -> None:
        """Forget all other keys: nobody asks for them any more."""
        self._cached = {key: names for key, names in self._cached.items() if key in keys}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if key in keys}

    def _ask(self, key: Key) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="names", daemon=True)
            self._thread.start()
        finished = threading.Event()
        self._queue.put((key, finished))
        if not self._is_behind:
            self._is_behind = not finished.wait(WAIT_S)

    def _run(self) -> None:
        while True:
            key, finished = self._queue.get()
            self._cached[key] = self._find(*key)
            self._is_behind = False
            finished.set()


def is_whole(place: CgroupMembership, names: WorkloadNames) -> bool:
    return ((place.container is None or names.container is not None)
            and (place.pod_uid is None or names.pod is not None))
