"""The socket endpoint for browsers and programs: docs/internals/live.md.

A viewer has no queue. The hub knows what it was last sent, and when the kernel has taken that,
sends the newest of what it lacks; so a viewer that reads slowly costs what a fast one costs.
"""

import time
from collections.abc import Callable
from typing import Any

import gevent
import msgspec
from gevent.event import Event

from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN
from gpudeck.network.websocket import CloseCode, WebSocketViolationError

from ..access.policy import Actor, may
from ..fleet.effects import StreamRecord
from ..fleet.filters import Filter, FilterError, parse
from ..fleet.recent_seconds import MOST_GPUS, TimelineBuffer
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibilityScope, VisibleFleet, VisibleFleetCache
from ..pool.lease_map import LeaseMap
from ..web.bounded_socket import BoundedServer, BoundedSocket
from ..web.envelopes import event_frame
from .frames import LiveFrames
from .viewers import NAMESPACE, SIGNED_OUT, LiveViewer, LiveViewers

WATCHABLE = COLUMN.keys() | SLOW_COLUMN.keys()
MAX_FILTERS = 64
MAX_VIEWERS = 1_000
MAX_WATCH_BYTES = 2_048
MAX_UUID = 128
PERIOD_S = 1.0
COALESCE_S = 0.04
# Nodes report at their own moments spread over a second, so once a second would show most of them
# half a second late. Cells go more often than the rest, as long as that costs no more than this
# share of a core: with many different views they come down to once a second.
CELLS_EVERY_S = 0.08
CELLS_SHARE = 0.05
SEND_S = 1e-4  # per viewer, about


class LiveEndpoint:
    """Requests of viewers are checked against sessions and tokens as they are now. `is_valid`:
    whether a credential still holds."""

    def __init__(self, server: BoundedServer, machine: FleetStateMachine,
                 visible_fleets: VisibleFleetCache, is_valid: Callable[[str], bool],
                 is_csrf_right: Callable[[dict[str, Any], str], bool],
                 hold_shown: Callable[[VisibleFleet], Any], leases: LeaseMap) -> None:
        self._fleet = machine.fleet
        self._visible_fleets = visible_fleets
        self._is_valid = is_valid
        self._is_csrf_right = is_csrf_right
        self._lines = TimelineBuffer(machine.fleet)
        self._frames = LiveFrames(machine, visible_fleets, self._lines, hold_shown, leases)
        self.viewers = LiveViewers()
        handlers = {"connect": self._connect, "watch": self._watch, "hide": self._hide,
                    "lines": self._ask_lines, "tap": self._tap, "numbers": self._ask_numbers,
                    "disconnect": self._disconnect, "*": _unknown}
        for event, handler in handlers.items():
            server.on(event, handler, namespace=NAMESPACE)
        self._second_mono = 0.0
        self._period_s = CELLS_EVERY_S
        self._fresh = Event()
        self._fresh_mono = 0.0

    def hold_changed(self) -> None:
        """Wake everyone, however they watch; the state itself is sent, so no change is missed."""
        for viewer in self.viewers.all():
            viewer.is_hold_due = True
            viewer.peer.wake()

    def applied(self, record: StreamRecord) -> None:
        """Note that a Frame or Event is new."""
        self._lines.note(record.node_id)
        if not self._fresh.is_set():
            self._fresh_mono = time.monotonic()
            self._fresh.set()
        for viewer in self.viewers.all():
            if viewer.is_tapping and self._visible_fleets.of(
                    viewer.scope).sees_node(record.node_id):
                viewer.tap((record.node_id, record.stream, record.seq, record.received_at))

    def announce(self, event: str, node_id: str | None, thing: str,
                 shape: Callable[[VisibleFleet], Any]) -> None:
        """Send to all who see this node (None: to all; "": to those who see every node), at once;
        of one thing, the newest is enough. `shape` returns None: it is not for these viewers."""
        frames: dict[VisibilityScope, bytes | None] = {}
        for viewer in self.viewers.all():
            visible = self._visible_fleets.of(viewer.scope)
            if node_id is not None and not (
                    visible.sees_node(node_id) if node_id else visible.is_whole):
                continue
            if viewer.scope not in frames:
                content = shape(visible)
                frames[viewer.scope] = None if content is None else event_frame(
                    event, msgspec.to_builtins(content), NAMESPACE)
            if (frame := frames[viewer.scope]) is not None:
                viewer.announce(f"{event} {thing}", frame)

    def run(self) -> None:
        """Push soon after a sample, and not too often."""
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
        viewers = self.viewers.all()
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

    # -- what viewers ask for

    def _connect(self, sid: str, environ: dict[str, Any], auth: Any = None) -> bool:
        actor: Actor | None = environ.get("gpudeck.actor")
        denial = may(actor, f"{NAMESPACE} connect", None, time.time())
        if denial is not None or len(self.viewers) >= MAX_VIEWERS:
            return False
        # The cookie alone is also sent for a page of another site; what our own page reads is not.
        if actor is not None and actor.kind == "person" and not self._is_csrf_right(
                environ, _csrf_in(auth)):
            return False
        peer: BoundedSocket = environ["gpudeck.socket"]
        viewer = LiveViewer(peer, environ["gpudeck.actor"],
                            VisibilityScope.of(environ["gpudeck.actor"]))
        self.viewers[sid] = viewer
        peer.pull = lambda: self._frames.next(viewer)
        peer.admit()
        return True

    def _disconnect(self, sid: str, _reason: str = "") -> None:
        viewer = self.viewers.pop(sid, None)
        if viewer is not None:
            viewer.peer.pull = None
            self._watch_lines()

    def _require_viewer(self, sid: str, event: str) -> LiveViewer:
        viewer = self.viewers[sid]
        actor = viewer.actor
        denial = may(actor, f"{NAMESPACE} {event}", None, time.time())
        if denial is not None or not self._is_valid(actor.credential):
            raise WebSocketViolationError(CloseCode.POLICY, f"{event} is not for this viewer")
        return viewer

    def _watch(self, sid: str, *arguments: Any) -> None:
        viewer = self._require_viewer(sid, "watch")
        metric, text = _parse_watch(arguments)
        try:
            picked = self._filter(viewer, text)
        except FilterError as error:
            viewer.replies.append(_reply(text, error))
            viewer.metric = viewer.metric or metric
        else:
            viewer.filter, viewer.metric = picked, metric
            viewer.replies.append(_reply(text, None))
        viewer.forget()
        self._frames.fix_moment()
        viewer.peer.wake()

    def _filter(self, viewer: LiveViewer, text: str) -> Filter | None:
        picked = parse(text)
        in_use = {(other.filter.text, other.scope) for other in self.viewers.values()
                  if other is not viewer and other.filter is not None}
        if picked is not None and (picked.text, viewer.scope) not in in_use and (
                len(in_use) >= MAX_FILTERS):
            raise FilterError(f"{MAX_FILTERS} different filters are in use on this hub; use one "
                              "of them or wait", 0)
        return picked

    def _hide(self, sid: str, *arguments: Any) -> None:
        viewer = self._require_viewer(sid, "hide")
        viewer.metric = None
        viewer.lines = ()
        self._watch_lines()

    def _ask_lines(self, sid: str, *arguments: Any) -> None:
        viewer = self._require_viewer(sid, "lines")
        viewer.lines, viewer.lines_sent, viewer.lines_second = _uuids(arguments), -1, -1
        self._watch_lines()
        viewer.peer.wake()

    def _watch_lines(self) -> None:
        fleet = self._fleet
        gpus = {(uuid, viewer.scope) for viewer in self.viewers.values() for uuid in viewer.lines}
        slots = {slot for uuid, scope in gpus for slot in self._frames.slots_of((uuid,), scope)}
        self._lines.watch(fleet.node_ids[fleet.node_at[slot]] for slot in slots)

    def _ask_numbers(self, sid: str, *arguments: Any) -> None:
        viewer = self._require_viewer(sid, "numbers")
        if len(arguments) != 1 or not isinstance(arguments[0], bool):
            raise WebSocketViolationError(CloseCode.INVALID_DATA, "numbers is true or false")
        viewer.wants_numbers, viewer.facts_second = arguments[0], -1_000
        viewer.versions.clear()
        self._frames.fix_moment()
        viewer.peer.wake()

    def _tap(self, sid: str, *arguments: Any) -> None:
        viewer = self._require_viewer(sid, "tap")
        if len(arguments) != 1 or not isinstance(arguments[0], bool):
            raise WebSocketViolationError(CloseCode.INVALID_DATA, "tap is true or false")
        viewer.is_tapping = arguments[0]
        viewer.tapped.clear()


def _csrf_in(auth: Any) -> str:
    token = auth.get("csrf") if isinstance(auth, dict) else None
    return token if isinstance(token, str) else ""


def _parse_watch(arguments: tuple[Any, ...]) -> tuple[str, str]:
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


def _unknown(event: str, *_arguments: Any) -> None:
    raise WebSocketViolationError(CloseCode.POLICY, f"no event {event[:40]!r} here")
