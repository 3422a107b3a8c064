"""The timed limits of this node, on disk before they are in force."""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from gpudeck.limits import TimedLimit

from ..journal.store import ActionJournal
from ..journal.stored_list import StoredList
from . import timed_limits
from .timed_limits import NodeTime


class TimedLimitStore:
    """Raises JournalError. `is_shared`: another process may write it as well; else what was read
    once holds."""

    def __init__(self, journal: ActionJournal, is_shared: bool = True) -> None:
        self._kept = StoredList(journal, "leases", TimedLimit, is_shared)

    def all(self) -> tuple[TimedLimit, ...]:
        return self._kept.all()

    @property
    def is_surely_empty(self) -> bool:
        """Without a look at the disk."""
        return self._kept.is_surely_empty

    def begin(self, limit: TimedLimit) -> None:
        """It takes the place of another on the same limit."""
        self._change(lambda all: timed_limits.with_new(all, limit),
                     {"kind": "lease", "lease": msgspec.to_builtins(limit)})

    def note(self, limit: TimedLimit, is_again: bool = False) -> None:
        """What is known of it now; in the Audit where it is another state than before, and where it
        was set again."""
        was = next((each for each in self.all() if each.lease_id == limit.lease_id), None)
        if was is None or (was == limit and not is_again):
            return
        kind = "lease_again" if is_again else "lease_state" if was.state != limit.state else None
        self._change(lambda all: timed_limits.with_news(all, limit), None if kind is None else {
            "kind": kind, "lease_id": limit.lease_id, "gpu_uuid": limit.gpu_uuid,
            "state": limit.state, "words": limit.words})

    def end(self, limit: TimedLimit, why: str) -> None:
        self._change(lambda all: timed_limits.without(all, limit.lease_id), {
            "kind": "lease_over", "lease_id": limit.lease_id, "gpu_uuid": limit.gpu_uuid,
            "why": why})

    def put_back(self, limit: TimedLimit, former: tuple[TimedLimit, ...]) -> None:
        """It never came to be: what it took the place of is there again."""
        self._change(lambda _: former, {"kind": "lease_over", "lease_id": limit.lease_id,
                                        "gpu_uuid": limit.gpu_uuid, "why": "it was refused"})

    def _change(self, turn: Callable[[tuple[TimedLimit, ...]], tuple[TimedLimit, ...]],
                record: dict[str, Any] | None) -> None:
        self._kept.change(turn, record)


def clock_now(boot_id: str) -> NodeTime:
    return NodeTime(time.time(), boot_id, time.clock_gettime(time.CLOCK_BOOTTIME))
