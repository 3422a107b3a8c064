"""How many Xids came of each GPU, and of whose making, since this hub watches: a few counters a
slot."""

from collections.abc import Mapping

import numpy as np

from gpudeck.xid import UNKNOWN_CODE, Blame, Xid, explain

from ...fleet.events import FleetEvent, RecentEvents
from ...fleet.fleet import Fleet
from .rule_signal import Floats

BY_TASK, BY_BOARD = "xids_of_tasks", "xids_of_boards"
# Those of BY_BOARD whose cause has other alerts too, by what they blame.
BY_CAUSE: Mapping[Blame, str] = {
    "memory": "xids_of_memory", "link": "xids_of_links", "driver": "xids_of_drivers"}
COUNTERS = (BY_TASK, BY_BOARD, *BY_CAUSE.values())
RECENT_S = 600.0
TORN_DOWN = 45  # comes with every task that is ended, by us too
SUMMARY = 154  # what is to be done about the Xids before it


def is_of_task(xid: Xid) -> bool:
    """Of the program's own making."""
    return xid.blame == "task" and xid.code != TORN_DOWN


class XidCounter:
    """What was there before the first look is not counted, nor what arrives late: it was
    reported already, or it is history.
    A task that failed a short time before did so all the same."""

    def __init__(self, events: RecentEvents) -> None:
        self._events = events
        self._version = -1
        self._seen: set[str] = set()
        self._counts: dict[str, dict[tuple[str, str], int]] = {name: {} for name in COUNTERS}
        self._last_of_task: dict[tuple[str, str], float] = {}
        self._last_of_board: dict[tuple[str, str], float] = {}

    def look(self, now: float) -> None:
        if self._events.version == self._version:
            return
        is_first, self._version = self._version == -1, self._events.version
        found = {kept.id: kept for kept in self._events
                 if kept.event.kind == "xid" and kept.event.gpu_uuid is not None}
        fresh = [kept for each, kept in found.items()
                 if each not in self._seen and now - kept.at <= RECENT_S]
        # Of one moment, what is summed up comes before its summary.
        for kept in sorted(fresh, key=lambda kept: (kept.at, _code(kept) == SUMMARY)):
            self._take(kept, is_first)
        self._seen = set(found)

    def _take(self, kept: FleetEvent, is_first: bool) -> None:
        """An agent says several of one kind at once."""
        numbers, gpu = kept.event.numbers, (kept.node_id, kept.event.gpu_uuid or "")
        xid = explain(_code(kept))
        count = 0 if is_first else int(numbers.get("count", 1))
        if is_of_task(xid):
            self._last_of_task[gpu] = max(kept.at, self._last_of_task.get(gpu, 0.0))
            self._add(BY_TASK, gpu, count)
        elif xid.severity == "critical":
            was_at = self._last_of_board.get(gpu)
            if xid.code == SUMMARY and was_at is not None and kept.at - was_at <= RECENT_S:
                return
            self._last_of_board[gpu] = max(kept.at, was_at or 0.0)
            self._add(BY_BOARD, gpu, count)
            if xid.blame in BY_CAUSE:
                self._add(BY_CAUSE[xid.blame], gpu, count)

    def _add(self, name: str, gpu: tuple[str, str], count: int) -> None:
        self._counts[name][gpu] = self._counts[name].get(gpu, 0) + count

    def counts(self, fleet: Fleet, name: str) -> Floats:
        return _by_slot(fleet, self._counts[name])

    def recent(self, fleet: Fleet, now: float) -> Floats:
        """1 where a task failed by an Xid of its own making within the last ten minutes."""
        return _by_slot(fleet, {gpu: 1 for gpu, at in self._last_of_task.items()
                                if now - at <= RECENT_S})


def _code(kept: FleetEvent) -> int:
    return int(kept.event.numbers.get("xid", UNKNOWN_CODE))


def _by_slot(fleet: Fleet, by_gpu: Mapping[tuple[str, str], int]) -> Floats:
    found = np.zeros(len(fleet))
    for gpu, number in by_gpu.items():
        slot = fleet.slot_on(*gpu)
        if slot is not None:
            found[slot] = number
    return found
