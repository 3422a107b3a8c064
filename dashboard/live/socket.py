"""The socket edge to browsers and programs: docs/internals/live.md.

A viewer has no queue. It holds what it was last sent, and when the kernel has taken that, it asks
for the newest of what it lacks; so one that reads slowly costs what one that reads costs.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import gevent
import msgspec
from gevent.event import Event

from gpudeck.metrics import COLUMN, SLOW_COLUMN
from gpudeck.websocket import CloseCode, WebSocketViolationError

from ..access.policy import Actor, may
from ..fleet import events_views, views
from ..fleet.effects import MessageApplied
from ..fleet.filters import Filter, FilterError, parse
from ..fleet.recent_seconds import MOST_GPUS, TimelineBuffer
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..web.bounded_socket import BoundedServer, BoundedSocket, event_frame

log = logging.getLogger("gpudeck.live")

NAMESPACE = "/live"
PERIOD_S = 1.0
COALESCE_S = 0.04
# Nodes tell at moments of their own all over a second, so once a second would show most of them
# half a second late. Cells go more often than the rest, as long as that costs no more than this
# share of a core: with many different views they come down to once a second.
CELLS_EVERY_S = 0.08
CELLS_SHARE = 0.05
SEND_S = 1e-4  # per viewer, about
WATCHABLE = COLUMN.keys() | SLOW_COLUMN.keys()
MAX_FILTERS = 64
MAX_VIEWERS = 1_000
MAX_WATCH_BYTES = 2_048
MAX_UUID = 128
MAX_NEWS = 256
MAX_TAPPED = 50_000
TAP_FRAMES = 2_000
CLOSED_WITHIN_S = 0.7
SIGNED_OUT = "signed out"


@dataclass(slots=True)
class LiveViewer:
    peer: BoundedSocket
    actor: Actor
    sight: VisibilityScope
    metric: str | None = None  # None: watches nothing now
    picked: Filter | None = None
    lines: tuple[str, ...] = ()  # the Gpus whose every Sample it wants
    lined: int = -1  # the number of the last Moment it was sent
    lined_push: int = -1
    is_tapping: bool = False
    news: dict[str, bytes] = field(default_factory=dict)  # the newest of each thing that changed
    replies: deque[bytes] = field(default_factory=lambda: deque(maxlen=8))
    epoch: int = -1  # of the layout it has
    slots: int = -1  # of the layout, how many it has; -1: none of it
    nodes: int = 0
    owners: int = -1
    totals: int = -1
    cells: int = -1
    events: int = 0  # of the Events, the version it has; 0: none
    is_hold_due: bool = False
    tapped: deque[MessageApplied] = field(default_factory=deque)
    is_tap_due: bool = False

    def forget(self) -> None:
        """Everything is sent anew."""
        self.slots = self.owners = self.totals = self.cells = -1
        self.nodes = self.events = 0


class LiveEndpoint:
    def __init__(self, server: BoundedServer, room: FleetStateMachine, lenses: VisibleFleetCache,
                 holds: Callable[[str], bool],
                 is_csrf_right: Callable[[dict[str, Any], str], bool],
                 hold_shown: Callable[[VisibleFleet], Any]) -> None:
        self._hold_shown = hold_shown
        self._room = room
        self._lenses = lenses
        self._holds = holds
        self._is_csrf_right = is_csrf_right
        self._viewers: dict[str, LiveViewer] = {}
        self._lines = TimelineBuffer(room.fleet)
        self._version = 0  # of the cells
        self._second = 0  # of all else
        self._second_mono = 0.0
        self._period_s = CELLS_EVERY_S
        self._spent_s = 0.0
        self._now = self._mono = 0.0
        self._frames: dict[Hashable, bytes] = {}
        self._fresh = Event()
        self._fresh_mono = 0.0
        handlers = {"connect": self._connect, "watch": self._watch, "hide": self._hide,
                    "lines": self._line, "tap": self._tap, "disconnect": self._disconnect,
                    "*": _stranger}
        for event, handler in handlers.items():
            server.on(event, handler, namespace=NAMESPACE)

    # -- what clients say

    def _connect(self, sid: str, environ: dict[str, Any], auth: Any = None) -> bool:
        actor: Actor | None = environ.get("gpudeck.actor")
        if may(actor, f"{NAMESPACE} connect") is not None or len(self._viewers) >= MAX_VIEWERS:
            return False
        # The cookie alone is also sent for a page of another site; what our own page reads is not.
        if actor is not None and actor.kind == "person" and not self._is_csrf_right(
                environ, _csrf_in(auth)):
            return False
        peer: BoundedSocket = environ["gpudeck.socket"]
        viewer = LiveViewer(peer, environ["gpudeck.actor"],
                            VisibilityScope.of(environ["gpudeck.actor"]))
        self._viewers[sid] = viewer
        peer.pull = lambda: self._pull(viewer)
        peer.admit()
        return True

    def _disconnect(self, sid: str, _reason: str = "") -> None:
        viewer = self._viewers.pop(sid, None)
        if viewer is not None:
            viewer.peer.pull = None
            self._watch_lines()

    def _allowed(self, sid: str, event: str) -> LiveViewer:
        """Each event anew, against sessions and tokens as they are now."""
        viewer = self._viewers[sid]
        actor = viewer.actor
        if may(actor, f"{NAMESPACE} {event}") is not None or not self._holds(actor.credential):
            raise WebSocketViolationError(CloseCode.POLICY, f"{event} is not for this viewer")
        return viewer

    def _watch(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "watch")
        metric, text = _watched(arguments)
        try:
            picked = self._filter(viewer, text)
        except FilterError as error:
            viewer.replies.append(_reply(text, error))
            viewer.metric = viewer.metric or metric
        else:
            viewer.picked, viewer.metric = picked, metric
            viewer.replies.append(_reply(text, None))
        viewer.forget()
        self._look()
        viewer.peer.wake()

    def _filter(self, viewer: LiveViewer, text: str) -> Filter | None:
        picked = parse(text)
        others = {(other.picked.text, other.sight) for other in self._viewers.values()
                  if other is not viewer and other.picked is not None}
        if picked is not None and (picked.text, viewer.sight) not in others and (
                len(others) >= MAX_FILTERS):
            raise FilterError(f"{MAX_FILTERS} different filters are in use on this hub; use one "
                              "of them or wait", 0)
        return picked

    def _hide(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "hide")
        viewer.metric = None
        viewer.lines = ()
        self._watch_lines()

    def _line(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "lines")
        viewer.lines, viewer.lined, viewer.lined_push = _uuids(arguments), -1, -1
        self._watch_lines()
        viewer.peer.wake()

    def _watch_lines(self) -> None:
        fleet = self._room.fleet
        asked = {(uuid, viewer.sight) for viewer in self._viewers.values()
                 for uuid in viewer.lines}
        slots = {slot for uuid, sight in asked for slot in self._lined_slots((uuid,), sight)}
        self._lines.watch(fleet.node_ids[fleet.node_at[slot]] for slot in slots)

    def _lined_slots(self, uuids: tuple[str, ...], sight: VisibilityScope) -> list[int]:
        """Those that this viewer sees, in the order that was asked for."""
        lens = self._lenses.of(sight)
        found = (self._room.fleet.find(uuid, lens.place_of) for uuid in uuids)
        return [slot for slot in found if slot is not None]

    def _tap(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "tap")
        if len(arguments) != 1 or not isinstance(arguments[0], bool):
            raise WebSocketViolationError(CloseCode.INVALID_DATA, "tap is true or false")
        viewer.is_tapping = arguments[0]
        viewer.tapped.clear()

    # -- what they are sent

    def hold_changed(self) -> None:
        """To everyone at once, however they watch; what is sent is the state, so none is missed."""
        for viewer in self._viewers.values():
            viewer.is_hold_due = True
            viewer.peer.wake()

    def applied(self, effect: MessageApplied) -> None:
        self._lines.note(effect.node_id)
        if not self._fresh.is_set():
            self._fresh_mono = time.monotonic()
            self._fresh.set()
        for viewer in self._viewers.values():
            if viewer.is_tapping and self._lenses.of(viewer.sight).sees_node(effect.node_id):
                self._note_tap(viewer, effect)

    def _note_tap(self, viewer: LiveViewer, effect: MessageApplied) -> None:
        if len(viewer.tapped) >= MAX_TAPPED:
            # A tap that skips would be a wrong count: rather none.
            self._say_bye(viewer, "this tap reads too slowly")
            viewer.is_tapping = False
            viewer.tapped.clear()
            return
        viewer.tapped.append(effect)

    def announce(self, event: str, node_id: str | None, thing: str,
                 shape: Callable[[VisibleFleet], Any]) -> None:
        """To all who see this node (None: to all; "": to who see every node), at once; of one
        thing, the newest is enough."""
        made: dict[VisibilityScope, bytes] = {}
        for viewer in self._viewers.values():
            lens = self._lenses.of(viewer.sight)
            if node_id is not None and not (
                    lens.sees_node(node_id) if node_id else lens.is_whole):
                continue
            if viewer.sight not in made:
                made[viewer.sight] = event_frame(event, msgspec.to_builtins(shape(lens)),
                                                 NAMESPACE)
            if len(viewer.news) >= MAX_NEWS:
                del viewer.news[next(iter(viewer.news))]  # the page asks for the list now and then
            viewer.news[f"{event} {thing}"] = made[viewer.sight]
            viewer.peer.wake()

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
        viewers = list(self._viewers.values())
        self._spent_s += SEND_S * sum(viewer.metric is not None for viewer in viewers)
        self._period_s = min(PERIOD_S, max(CELLS_EVERY_S, self._spent_s / CELLS_SHARE))
        self._spent_s = 0.0
        self._version += 1
        self._frames.clear()
        self._look()
        if mono - self._second_mono >= PERIOD_S - CELLS_EVERY_S / 2:
            self._second, self._second_mono = self._second + 1, mono
            self._check(viewers)
        for viewer in viewers:
            viewer.peer.wake()

    def _check(self, viewers: list[LiveViewer]) -> None:
        for viewer in viewers:
            if not self._holds(viewer.actor.credential):
                self._say_bye(viewer, SIGNED_OUT)
            viewer.is_tap_due = True

    def _look(self) -> None:
        """All frames of one version show one moment."""
        if not self._frames:
            self._now, self._mono = time.time(), time.monotonic()

    def _pull(self, viewer: LiveViewer) -> bytes | None:
        if viewer.replies:
            return viewer.replies.popleft()
        if viewer.news:
            return viewer.news.pop(next(iter(viewer.news)))
        if viewer.is_tap_due and viewer.tapped:
            return self._taps(viewer)
        if viewer.is_hold_due:
            viewer.is_hold_due = False
            return event_frame("hold", self._hold_shown(self._lenses.of(viewer.sight)), NAMESPACE)
        if viewer.lines and viewer.lined_push != self._second:
            viewer.lined_push = self._second
            return self._lined(viewer)
        if viewer.metric is None:
            return None
        fleet, lens = self._room.fleet, self._lenses.of(viewer.sight)
        if viewer.epoch != lens.epoch:
            viewer.epoch = lens.epoch
            viewer.forget()
        if viewer.slots < len(lens) or viewer.nodes < len(lens.node_ids):
            return self._layout(viewer, lens)
        if viewer.owners != fleet.tasks_version:
            viewer.owners = fleet.tasks_version
            return self._frame(lens, ("owners", viewer.owners), "owners",
                               lambda: views.owners(fleet, lens))
        if viewer.totals != self._second:
            viewer.totals = self._second
            return self._frame(lens, ("totals",), "totals",
                               lambda: views.totals(fleet, lens, self._now, self._mono))
        if viewer.cells != self._version:
            viewer.cells = self._version
            return self._cells(viewer, lens, viewer.metric)
        if viewer.events != self._room.events.version:
            viewer.events = self._room.events.version
            return self._frame(lens, ("events", viewer.events, lens.reads), "events",
                               lambda: events_views.live(self._room, lens))
        return None

    def _lined(self, viewer: LiveViewer) -> bytes:
        lens, uuids, since = self._lenses.of(viewer.sight), viewer.lines, viewer.lined
        viewer.lined = self._lines.number
        return self._frame(lens, ("lines", uuids, since, viewer.lined), "lines", lambda: {
            "at": self._now,
            "gpus": self._lines.since(self._lined_slots(uuids, viewer.sight), since)})

    def _cells(self, viewer: LiveViewer, lens: VisibleFleet, metric: str) -> bytes:
        picked = viewer.picked
        # Whose commands one reads decides what a filter finds, and nothing else here.
        asked = None if picked is None else (picked.text, lens.reads)
        return self._frame(
            lens, ("cells", metric, asked, len(lens)), "cells",
            lambda: views.cells(self._room.fleet, lens, metric, picked, self._now, self._mono))

    def _layout(self, viewer: LiveViewer, lens: VisibleFleet) -> bytes:
        fleet, slot, node = self._room.fleet, max(viewer.slots, 0), viewer.nodes
        viewer.slots, viewer.nodes = len(lens), len(lens.node_ids)
        return self._frame(lens, ("layout", slot, node, viewer.slots, viewer.nodes), "layout",
                           lambda: views.layout(fleet, lens, slot, node))

    def _frame(self, lens: VisibleFleet, topic: Hashable, event: str,
               shape: Callable[[], dict[str, Any]]
               ) -> bytes:
        """Encoded once for all who watch the same through the same lens."""
        key = (lens.sight.groups, lens.epoch, topic)
        found = self._frames.get(key)
        if found is None:
            began = time.thread_time()  # others on this machine do not count
            found = self._frames[key] = event_frame(event, shape(), NAMESPACE)
            self._spent_s += time.thread_time() - began
        return found

    def _taps(self, viewer: LiveViewer) -> bytes:
        count = min(TAP_FRAMES, len(viewer.tapped))
        rows = [viewer.tapped.popleft() for _ in range(count)]
        viewer.is_tap_due = bool(viewer.tapped)
        frames = [[row.node_id, row.stream, row.seq, row.received_at] for row in rows]
        return event_frame("applied", {"frames": frames}, NAMESPACE)

    # -- the end

    def end_credential(self, credential: str) -> None:
        for viewer in list(self._viewers.values()):
            if viewer.actor.credential == credential:
                self._say_bye(viewer, SIGNED_OUT)

    def end_all(self, reason: str) -> None:
        for viewer in list(self._viewers.values()):
            self._say_bye(viewer, reason)

    def _say_bye(self, viewer: LiveViewer, reason: str) -> None:
        viewer.peer.push(event_frame("bye", {"reason": reason}, NAMESPACE))
        viewer.peer.finish(CloseCode.GOING_AWAY, reason)
        # One that does not read would stay until it stalls.
        gevent.spawn_later(CLOSED_WITHIN_S, viewer.peer.abort)

    @property
    def count(self) -> int:
        return len(self._viewers)


def _csrf_in(auth: Any) -> str:
    given = auth.get("csrf") if isinstance(auth, dict) else None
    return given if isinstance(given, str) else ""


def _watched(arguments: tuple[Any, ...]) -> tuple[str, str]:
    match arguments:
        case ({"metric": str(metric), "filter": str(text)},) if metric in WATCHABLE:
            if len(metric) + len(text.encode()) <= MAX_WATCH_BYTES:
                return metric, text
    raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                  'watch takes {"metric": KEY, "filter": TEXT}')


def _uuids(arguments: tuple[Any, ...]) -> tuple[str, ...]:
    match arguments:
        case ({"gpus": [*uuids]},) if len(uuids) <= MOST_GPUS:
            if all(isinstance(uuid, str) and len(uuid) <= MAX_UUID for uuid in uuids):
                return tuple(dict.fromkeys(uuids))
    raise WebSocketViolationError(CloseCode.INVALID_DATA,
                                  f'lines takes {{"gpus": [UUID, …]}}, at most {MOST_GPUS}')


def _reply(text: str, error: FilterError | None) -> bytes:
    return event_frame("filter", {
        "text": text, "ok": error is None, "error": None if error is None else error.sentence,
        "at": None if error is None else error.at}, NAMESPACE)


def _stranger(event: str, *_arguments: Any) -> None:
    raise WebSocketViolationError(CloseCode.POLICY, f"no event {event[:40]!r} here")
