"""Backfills: what agents bring from an outage, taken in at our own pace. However many
return at once with however much, what is live does not wait for it."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gevent
from gevent.event import Event

from gpudeck.contract.wire import Backfill

SLICE = 32
MESSAGES_PER_S = 6_000.0
# An agent waits for the ack of one before it brings the next.
PER_LINK = 2
MAX_BYTES = 64_000_000


@dataclass(slots=True)
class _PendingBackfill:
    link: str
    messages: tuple[bytes, ...]
    size: int
    processed: int = 0


class BackfillQueue:
    def __init__(self, take: Callable[[str, Backfill], None], is_open: Callable[[], bool]) -> None:
        """`is_open`: whether the disk takes what it is given."""
        self._take = take
        self._is_open = is_open
        self._steps: deque[_PendingBackfill] = deque()
        self._of_link: dict[str, int] = {}
        self._bytes = 0
        self.wake = Event()

    def put(self, link: str, backfill: Backfill, size: int) -> bool:
        """Queue a backfill; False: it is more than an agent brings that waits for acks."""
        if self._of_link.get(link, 0) >= PER_LINK:
            return False
        self._of_link[link] = self._of_link.get(link, 0) + 1
        self._steps.append(_PendingBackfill(link, backfill.messages, size))
        self._bytes += size
        self.wake.set()
        return True

    @property
    def is_full(self) -> bool:
        return self._bytes > MAX_BYTES

    def drop_link(self, link: str) -> None:
        if self._of_link.pop(link, None) is None:
            return
        self._steps = deque(step for step in self._steps if step.link != link)
        self._bytes = sum(step.size for step in self._steps)

    def step(self, _now: float, _mono: float) -> None:
        while self._is_open() and (count := self.take_slice()):
            gevent.sleep(count / MESSAGES_PER_S)

    def take_slice(self) -> int:
        """Process a slice for the link that waits longest; the rest of its step queues up again."""
        if not self._steps:
            return 0
        step = self._steps.popleft()
        part = step.messages[step.processed : step.processed + SLICE]
        step.processed += len(part)
        if step.processed < len(step.messages):
            self._steps.append(step)
        else:
            self._bytes -= step.size
            self._of_link[step.link] -= 1
        self._take(step.link, Backfill(part))
        return len(part)
