"""The next frame for a viewer, encoded once for all who watch the same."""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ..fleet import events_views, numbers_views, views
from ..fleet.recent_seconds import TimelineBuffer
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..pool.lease_map import LeaseMap
from ..web.envelopes import event_frame
from .owner_changes import OwnerChanges, next_owners
from .viewers import NAMESPACE, LiveViewer

TAP_FRAMES = 2_000
# The version that a viewer has of what it was never sent. That there are no events or leases need
# not be sent.
NOTHING_YET = {"owners": -1, "leases": None, "totals": -1, "cells": -1, "events": 0,
               "facts": None, "numbers": -1}
FACTS_EVERY_S = 60  # they may change while no GPU comes
FACTS_AT_ONCE_S = 5  # and no sooner than that while many come


class LiveFrames:
    def __init__(self, machine: FleetStateMachine, visible_fleets: VisibleFleetCache,
                 lines: TimelineBuffer, hold_shown: Callable[[VisibleFleet], Any],
                 leases: LeaseMap) -> None:
        self._machine = machine
        self._visible_fleets = visible_fleets
        self._lines = lines
        self._hold_shown = hold_shown
        self._leases = leases
        self._leases_version = leases.version
        self._version = 0  # of the cells
        self._second = 0  # of everything else
        self._now = self._mono = 0.0
        self._frames: dict[Hashable, bytes] = {}
        self._owner_changes = OwnerChanges()
        self._spent_s = 0.0

    # -- moments

    def begin_version(self) -> None:
        self._version += 1
        self._frames.clear()
        self.fix_moment()

    def begin_second(self) -> None:
        self._second += 1
        self._leases_version = self._leases.version

    def fix_moment(self) -> None:
        """Fix the moment that all frames of one version show."""
        if not self._frames:
            self._now, self._mono = time.time(), time.monotonic()

    def take_spent_s(self) -> float:
        """Return the CPU time spent on encoding since the last call."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    # -- frames

    def next(self, viewer: LiveViewer) -> bytes | None:
        if viewer.replies:
            return viewer.replies.popleft()
        if viewer.announcements:
            return viewer.announcements.pop(next(iter(viewer.announcements)))
        if viewer.is_tap_due and viewer.tapped:
            return self._taps(viewer)
        if viewer.is_hold_due:
            viewer.is_hold_due = False
            return event_frame("hold", self._hold_shown(self._visible_fleets.of(viewer.scope)),
                               NAMESPACE)
        if viewer.lines and viewer.lines_second != self._second:
            viewer.lines_second = self._second
            return self._timelines(viewer)
        if viewer.wants_numbers and (frame := self._numbers(viewer)) is not None:
            return frame
        if viewer.metric is None:
            return None
        return self._fleet(viewer, viewer.metric)

    def _numbers(self, viewer: LiveViewer) -> bytes | None:
        """Return the next frame for a hub that views this one."""
        fleet, visible = self._machine.fleet, self._visible_fleets.of(viewer.scope)
        counts = len(visible), len(visible.node_ids)
        for topic, version, shape in (
            ("facts", (visible.epoch, *counts, self._second // FACTS_EVERY_S),
             lambda: numbers_views.facts(fleet, visible)),
            ("owners", fleet.owners_version, lambda: views.owners(fleet, visible)),
            ("totals", self._second, lambda: views.totals(fleet, visible, self._now, self._mono)),
            ("numbers", self._second,
             lambda: numbers_views.numbers(fleet, visible, self._now, self._mono)),
        ):
            if topic == "facts" and self._second - viewer.facts_second < FACTS_AT_ONCE_S:
                continue
            if viewer.versions.get(f"numbers {topic}", NOTHING_YET[topic]) != version:
                viewer.versions[f"numbers {topic}"] = version
                if topic == "facts":
                    viewer.facts_second = self._second
                return self._frame(visible, (version, counts), topic, shape)
        return None

    def _fleet(self, viewer: LiveViewer, metric: str) -> bytes | None:
        fleet, visible = self._machine.fleet, self._visible_fleets.of(viewer.scope)
        if viewer.epoch != visible.epoch:
            viewer.epoch = visible.epoch
            viewer.forget()
        if viewer.slots < len(visible) or viewer.nodes < len(visible.node_ids):
            return self._layout(viewer, visible)
        picked = viewer.filter
        # Whose commands one may read decides what a filter matches, and nothing else of the cells.
        filter_key = None if picked is None else (picked.text, visible.reads)
        for topic, version, of, shape in (
            ("owners", fleet.owners_version, viewer.versions.get("owners"),
             lambda: self._owners(visible, viewer.versions.get("owners"))),
            ("leases", self._leases_version, None, lambda: self._leases.view(visible)),
            ("totals", self._second, None,
             lambda: views.totals(fleet, visible, self._now, self._mono)),
            ("cells", self._version, (metric, filter_key, len(visible)),
             lambda: views.cells(fleet, visible, metric, picked, self._now, self._mono)),
            ("events", self._machine.events.version, visible.reads,
             lambda: events_views.live(self._machine, visible)),
        ):
            if viewer.versions.get(topic, NOTHING_YET[topic]) != version:
                frame = self._frame(visible, (version, of), topic, shape)
                viewer.versions[topic] = version
                return frame
        return None

    def _owners(self, visible: VisibleFleet, has: Hashable) -> Mapping[str, Any]:
        """Return owners whole, or as changes. `has`: the version that the viewer has."""
        fleet, of = self._machine.fleet, (visible.sight.groups, visible.epoch)
        last = self._owner_changes.last(of)
        if last is None or last.version != fleet.owners_version:
            last = self._owner_changes.keep(
                of, next_owners(fleet.owners_version, views.owners(fleet, visible), last))
        return last.whole if last.changes is None or has != last.before else last.changes

    def slots_of(self, uuids: tuple[str, ...], scope: VisibilityScope) -> list[int]:
        """Return the slots of those that this viewer may see, in the order asked for."""
        visible = self._visible_fleets.of(scope)
        slots = (self._machine.fleet.find(uuid, visible.place_of) for uuid in uuids)
        return [slot for slot in slots if slot is not None]

    def _timelines(self, viewer: LiveViewer) -> bytes:
        visible = self._visible_fleets.of(viewer.scope)
        uuids, since = viewer.lines, viewer.lines_sent
        viewer.lines_sent = self._lines.number
        return self._frame(visible, (uuids, since, viewer.lines_sent), "lines", lambda: {
            "at": self._now,
            "gpus": self._lines.since(self.slots_of(uuids, viewer.scope), since)})

    def _layout(self, viewer: LiveViewer, visible: VisibleFleet) -> bytes:
        fleet, slot, node = self._machine.fleet, max(viewer.slots, 0), viewer.nodes
        viewer.slots, viewer.nodes = len(visible), len(visible.node_ids)
        return self._frame(visible, (slot, node, viewer.slots, viewer.nodes), "layout",
                           lambda: views.layout(fleet, visible, slot, node))

    def _frame(self, visible: VisibleFleet, of: Hashable, event: str,
               shape: Callable[[], Mapping[str, Any]]) -> bytes:
        """Return a frame, encoded once for all who watch the same with the same rights."""
        key = (visible.sight.groups, visible.epoch, event, of)
        frame = self._frames.get(key)
        if frame is None:
            began = time.thread_time()  # others on this machine do not count
            frame = self._frames[key] = event_frame(event, shape(), NAMESPACE)
            self._spent_s += time.thread_time() - began
        return frame

    def _taps(self, viewer: LiveViewer) -> bytes:
        count = min(TAP_FRAMES, len(viewer.tapped))
        frames = [viewer.tapped.popleft() for _ in range(count)]
        viewer.is_tap_due = bool(viewer.tapped)
        return event_frame("applied", {"frames": frames}, NAMESPACE)
