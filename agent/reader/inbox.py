"""Readings and events that came from a reading process and were not fetched yet."""

import logging
import time
from collections import deque
from collections.abc import Sequence

from gpudeck.wire import ReaderState

from ..readings import BackendEvent, Reading

log = logging.getLogger("gpudeck.agent.reader")

MAX_EVENTS = 1_024


class ReaderInbox:
    """What a node asks of a source of Readings, and what fills it."""

    def __init__(self) -> None:
        self.state: ReaderState = "starting"
        self.detail = ""
        self.read_s: float | None = None  # that the last Reading took
        self.has_news = False
        self._unread: Reading | None = None
        self._events: deque[BackendEvent] = deque(maxlen=MAX_EVENTS)
        self._read_at: float | None = None

    @property
    def age_s(self) -> float | None:
        """Seconds since the last Reading arrived; None: never."""
        return None if self._read_at is None else time.monotonic() - self._read_at

    def latest(self) -> Reading | None:
        """The newest Reading not handed out yet."""
        reading, self._unread = self._unread, None
        return reading

    def happenings(self) -> tuple[BackendEvent, ...]:
        """All events not fetched yet, also those of Readings that were never fetched."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def put(self, reading: Reading, now: float) -> None:
        self._events.extend(reading.happenings)
        self._unread, self._read_at = reading, now
        self.read_s = reading.took_s

    def tell(self, events: Sequence[BackendEvent]) -> None:
        self._events.extend(events)
        self.has_news = True

    def drop_reading(self) -> None:
        self._unread = None

    def say(self, state: ReaderState, detail: str) -> None:
        if state != self.state:
            log.info("reader_state state=%s detail=%r", state, detail)
        self.state, self.detail = state, detail
        self.has_news = True

    def say_once(self, state: ReaderState, detail: str) -> None:
        if (state, detail) != (self.state, self.detail):
            self.say(state, detail)
