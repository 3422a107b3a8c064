"""A thread that is there while there is work: a simulator has 1,250 nodes that rarely act."""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("gpudeck.agent.worker")


class Worker:
    def __init__(self, name: str, most: int = 256) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, job: Callable[[], None]) -> bool:
        """In order, one at a time. False: there is too much to do already."""
        with self._lock:
            if self._closed or len(self._jobs) >= self._most:
                return False
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return True

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return self._thread is None

    def close(self, seconds: float = 0.5) -> None:
        """What waits is dropped; what runs is waited for so long."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception:  # the next job is somebody else's
                log.exception("job_failed worker=%s", self._name)
