"""Thread that exists only while there is work: a simulator has 1,250 nodes that rarely act."""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("gpudeck.agent.runtime")


class Worker:
    def __init__(self, name: str, most: int = 256) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, job: Callable[[], None]) -> bool:
        """Queue a job; jobs run in order, one at a time. False: the queue is full, or closed."""
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
        """Drop queued jobs, and wait up to `seconds` for the running one."""
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
            except Exception:  # the next job is another's
                log.exception("job_failed worker=%s", self._name)
