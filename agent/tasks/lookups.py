"""Look-ups that nobody waits for: behind the system's table of users may be a directory service,
which takes its time."""

import math
import threading
import time
from collections.abc import Callable, Collection, Hashable
from functools import partial
from typing import Generic, TypeVar

from ..runtime.worker import Worker

MOST = 4_096
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lookups(Generic[K, V]):
    """Answers as they were found last. `look` raises OSError where it could not find one: then the
    one before stays. After `fresh_s` an answer is looked up again; after `valid_s` it counts for
    nothing, though no newer one has come. `is_kept`: whether an answer counts for longer than one
    question."""

    def __init__(self, name: str, look: Callable[[K], V], fresh_s: float,
                 now: Callable[[], float] = time.monotonic,
                 is_kept: Callable[[V], bool] = lambda answer: True,
                 valid_s: float = math.inf) -> None:
        self._look = look
        self._fresh_s = fresh_s
        self._valid_s = valid_s
        self._now = now
        self._is_kept = is_kept
        self._lock = threading.Lock()
        self._answers: dict[K, tuple[float, V]] = {}
        self._queued: dict[K, threading.Event] = {}
        self._worker = Worker(name)

    def last(self, key: K) -> V | None:
        """Return the last answer, and look an old one up on a thread. None: there is none that
        counts."""
        if not self._is_fresh(key):
            self._queue(key)
        with self._lock:
            answer = self._answers.get(key)
        return None if answer is None or self._now() - answer[0] >= self._valid_s else answer[1]

    def look_up(self, key: K) -> None:
        """Look up an answer that is not fresh. Waits as long as that takes."""
        if self._is_fresh(key):
            return
        try:
            answer = self._look(key)
        except OSError:
            return  # looked up again the next time
        with self._lock:
            self._answers.pop(key, None)
            self._answers[key] = self._now(), answer
            for oldest in list(self._answers)[:-MOST]:
                del self._answers[oldest]

    def all_soon(self, keys: Collection[K], within_s: float) -> dict[K, V]:
        """Return fresh answers. Where there is none, wait that long for it, the first time; what is
        still missing is left out."""
        events = [self._queue(key) for key in keys if not self._is_fresh(key)]
        until = time.monotonic() + within_s
        for event in events:
            if event is not None:
                event.wait(max(0.0, until - time.monotonic()))
        with self._lock:
            answers = {key: self._answers[key][1] for key in keys if self._is_fresh(key)}
            for key, answer in answers.items():
                if not self._is_kept(answer):
                    del self._answers[key]
        return answers

    def _is_fresh(self, key: K) -> bool:
        answer = self._answers.get(key)
        return answer is not None and self._now() - answer[0] < self._fresh_s

    def _queue(self, key: K) -> threading.Event | None:
        """Look it up on the thread; return what is set at the end. None: it is queued already, or
        too many are."""
        with self._lock:
            if key in self._queued:
                return None
            event = self._queued[key] = threading.Event()
        if self._worker.put(partial(self._look_up_queued, key)):
            return event
        self._forget_queued(key)
        return None

    def _look_up_queued(self, key: K) -> None:
        try:
            self.look_up(key)
        finally:
            self._forget_queued(key)

    def _forget_queued(self, key: K) -> None:
        with self._lock:
            event = self._queued.pop(key)
        event.set()
