"""Readings and events that came from a reading process and were not fetched yet."""

import logging
import time
from collections import deque
from collections.abc import Sequence

from gpudeck.contract.wire import ReaderState

from ..readings import BackendEvent, Reading

log = logging.getLogger("gpudeck.agent.reader")

MAX_EVENTS = 1_024


class ReaderInbox:
    """State, newest Reading and events of a source, for a node to fetch; and what sets them."""

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
        """Return the newest Reading not handed out yet, or None."""
        reading, self._unread = self._unread, None
        return reading

    def take_events(self) -> tuple[BackendEvent, ...]:
        """Return all events not fetched yet, also those of Readings that were never fetched."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def put(self, reading: Reading, now: float) -> None:
        self._events.extend(reading.happenings)
        self._unread, self._read_at = reading, now
        self.read_s = reading.took_s

    def put_events(self, events: Sequence[BackendEvent]) -> None:
        self._events.extend(events)
        self.has_news = True

    def drop_reading(self) -> None:
        self._unread = None

    def set_state(self, state: ReaderState, detail: str) -> None:
        if state != self.state:
            log.info("reader_state state=%s detail=%r", state, detail)
        self.state, self.detail = state, detail
        self.has_news = True

    def set_state_once(self, state: ReaderState, detail: str) -> None:
        if (state, detail) != (self.state, self.detail):
            self.set_state(state, detail)
