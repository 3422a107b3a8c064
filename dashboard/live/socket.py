"""The socket edge to browsers and programs: docs/internals/live.md.

A viewer has no queue. It holds what it was last sent, and when the kernel has taken that, it asks
for the newest of what it lacks; so one that reads slowly costs what one that reads costs.
"""

import time
from collections.abc import Callable
from typing import Any

import gevent
import msgspec
from gevent.event import Event

from ..fleet.effects import MessageApplied
from ..fleet.recent_seconds import TimelineBuffer
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.bounded_socket import BoundedServer, event_frame
from .frames import LiveFrames
from .requests import LiveRequests
from .viewers import NAMESPACE, SIGNED_OUT, LiveViewers

PERIOD_S = 1.0
COALESCE_S = 0.04
# Nodes report at their own moments spread over a second, so once a second would show most of them
# half a second late. Cells go more often than the rest, as long as that costs no more than this
# share of a core: with many different views they come down to once a second.
CELLS_EVERY_S = 0.08
CELLS_SHARE = 0.05
SEND_S = 1e-4  # per viewer, about


class LiveEndpoint:
    def __init__(self, server: BoundedServer, room: FleetStateMachine, lenses: VisibleFleetCache,
                 is_valid: Callable[[str], bool],
                 is_csrf_right: Callable[[dict[str, Any], str], bool],
                 hold_shown: Callable[[VisibleFleet], Any]) -> None:
        self._lenses = lenses
        self._is_valid = is_valid
        self._lines = TimelineBuffer(room.fleet)
        self._frames = LiveFrames(room, lenses, self._lines, hold_shown)
        self.viewers = LiveViewers()
        self._requests = LiveRequests(server, self.viewers, self._frames, self._lines, room.fleet,
                                      is_valid, is_csrf_right)
        self._second_mono = 0.0
        self._period_s = CELLS_EVERY_S
        self._fresh = Event()
        self._fresh_mono = 0.0

    def hold_changed(self) -> None:
        """To everyone at once, however they watch; the state itself is sent, so none is missed."""
        for viewer in self.viewers:
            viewer.is_hold_due = True
            viewer.peer.wake()

    def applied(self, effect: MessageApplied) -> None:
        self._lines.note(effect.node_id)
        if not self._fresh.is_set():
            self._fresh_mono = time.monotonic()
            self._fresh.set()
        for viewer in self.viewers:
            if viewer.is_tapping and self._lenses.of(viewer.scope).sees_node(effect.node_id):
                viewer.tap(effect)

    def announce(self, event: str, node_id: str | None, thing: str,
                 shape: Callable[[VisibleFleet], Any]) -> None:
        """To all who see this node (None: to all; "": to who see every node), at once; of one
        thing, the newest is enough."""
        made: dict[VisibilityScope, bytes] = {}
        for viewer in self.viewers:
            lens = self._lenses.of(viewer.scope)
            if node_id is not None and not (
                    lens.sees_node(node_id) if node_id else lens.is_whole):
                continue
            if viewer.scope not in made:
                made[viewer.scope] = event_frame(event, msgspec.to_builtins(shape(lens)),
                                                 NAMESPACE)
            viewer.announce(f"{event} {thing}", made[viewer.scope])

    def run(self) -> None:
        """Soon after a sample, and not too often."""
        last_mono = time.monotonic()
        while True:
            gevent.sleep(max(0.0, last_mono + self._period_s - time.monotonic()))
            self._fresh.wait(timeout=PERIOD_S / 2)
            if self._fresh.is_set():
                gevent.sleep(max(0.0, self._fresh_mono + COALESCE_S - time.monotonic()))
            self._fresh.clear()
            last_mono = time.monotonic()
            self._push(last_mono)

    def _push(self, mono: float) -> None:
        viewers = list(self.viewers)
        spent_s = self._frames.take_spent_s() + SEND_S * sum(
            viewer.metric is not None for viewer in viewers)
        self._period_s = min(PERIOD_S, max(CELLS_EVERY_S, spent_s / CELLS_SHARE))
        self._frames.begin_version()
        if mono - self._second_mono >= PERIOD_S - CELLS_EVERY_S / 2:
            self._second_mono = mono
            self._frames.begin_second()
            for viewer in viewers:
                if not self._is_valid(viewer.actor.credential):
                    viewer.end(SIGNED_OUT)
                viewer.is_tap_due = True
        for viewer in viewers:
            viewer.peer.wake()
