"""Counts of the Xids of each GPU, by cause, since this hub watches: a few counters per slot."""

from collections.abc import Mapping

import numpy as np

from gpudeck.measures.xid import UNKNOWN_CODE, Blame, Xid, explain

from ...fleet.events import FleetEvent, RecentEvents
from ...fleet.fleet import Fleet
from .rule_signal import Floats

BY_TASK, BY_BOARD = "xids_of_tasks", "xids_of_boards"
# Those of BY_BOARD whose cause has other alerts too, by the blamed part.
BY_CAUSE: Mapping[Blame, str] = {
    "memory": "xids_of_memory", "link": "xids_of_links", "driver": "xids_of_drivers"}
COUNTERS = (BY_TASK, BY_BOARD, *BY_CAUSE.values())
RECENT_S = 600.0
TORN_DOWN = 45  # comes with every task that is ended, also by gpudeck
SUMMARY = 154  # says what to do about the Xids before it


def is_of_task(xid: Xid) -> bool:
    """Return whether an Xid is the program's own fault."""
    return xid.blame == "task" and xid.code != TORN_DOWN


class XidCounter:
    """Counts Xids. Those before the first look and those that arrive late are not counted: they
    were reported already, or are history. That a task failed shortly before is noted all the
    same."""

    def __init__(self, events: RecentEvents) -> None:
        self._events = events
        self._version = -1
        self._counted_ids: set[str] = set()
        self._counts: dict[str, dict[tuple[str, str], int]] = {name: {} for name in COUNTERS}
        self._last_of_task: dict[tuple[str, str], float] = {}
        self._last_of_board: dict[tuple[str, str], float] = {}

    def look(self, now: float) -> None:
        if self._events.version == self._version:
            return
        is_first, self._version = self._version == -1, self._events.version
        events = {entry.id: entry for entry in self._events
                  if entry.event.kind == "xid" and entry.event.gpu_uuid is not None}
        fresh = [entry for event_id, entry in events.items()
                 if event_id not in self._counted_ids and now - entry.at <= RECENT_S]
        # At one moment, Xids come before their summary.
        for entry in sorted(fresh, key=lambda entry: (entry.at, _code(entry) == SUMMARY)):
            self._take(entry, is_first)
        self._counted_ids = set(events)

    def _take(self, entry: FleetEvent, is_first: bool) -> None:
        """Count an event; an agent may report several Xids of one kind at once."""
        numbers, gpu = entry.event.numbers, (entry.node_id, entry.event.gpu_uuid or "")
        xid = explain(_code(entry))
        count = 0 if is_first else int(numbers.get("count", 1))
        if is_of_task(xid):
            self._last_of_task[gpu] = max(entry.at, self._last_of_task.get(gpu, 0.0))
            self._add(BY_TASK, gpu, count)
        elif xid.severity == "critical":
            was_at = self._last_of_board.get(gpu)
            if xid.code == SUMMARY and was_at is not None and entry.at - was_at <= RECENT_S:
                return
            self._last_of_board[gpu] = max(entry.at, was_at or 0.0)
            self._add(BY_BOARD, gpu, count)
            if xid.blame in BY_CAUSE:
                self._add(BY_CAUSE[xid.blame], gpu, count)

    def _add(self, name: str, gpu: tuple[str, str], count: int) -> None:
        self._counts[name][gpu] = self._counts[name].get(gpu, 0) + count

    def counts(self, fleet: Fleet, name: str) -> Floats:
        return _by_slot(fleet, self._counts[name])

    def recent(self, fleet: Fleet, now: float) -> Floats:
        """Return 1 where a task failed by an Xid that it caused within the last ten minutes."""
        return _by_slot(fleet, {gpu: 1 for gpu, at in self._last_of_task.items()
                                if now - at <= RECENT_S})


def _code(entry: FleetEvent) -> int:
    return int(entry.event.numbers.get("xid", UNKNOWN_CODE))


def _by_slot(fleet: Fleet, by_gpu: Mapping[tuple[str, str], int]) -> Floats:
    counts = np.zeros(len(fleet))
    for gpu, number in by_gpu.items():
        slot = fleet.slot_on(*gpu)
        if slot is not None:
            counts[slot] = number
    return counts
