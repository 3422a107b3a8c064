"""What viewers ask for. Each request is checked against sessions and tokens as they are now."""

from collections.abc import Callable
from typing import Any

from gpudeck.metrics import COLUMN, SLOW_COLUMN
from gpudeck.websocket import CloseCode, WebSocketViolationError

from ..access.policy import Actor, may
from ..fleet.filters import Filter, FilterError, parse
from ..fleet.fleet import Fleet
from ..fleet.recent_seconds import MOST_GPUS, TimelineBuffer
from ..fleet.visibility import VisibilityScope
from ..web.bounded_socket import BoundedServer, BoundedSocket, event_frame
from .frames import LiveFrames
from .viewers import NAMESPACE, LiveViewer, LiveViewers

WATCHABLE = COLUMN.keys() | SLOW_COLUMN.keys()
MAX_FILTERS = 64
MAX_VIEWERS = 1_000
MAX_WATCH_BYTES = 2_048
MAX_UUID = 128


class LiveRequests:
    """`is_valid`: whether a credential still holds."""

    def __init__(self, server: BoundedServer, viewers: LiveViewers, frames: LiveFrames,
                 lines: TimelineBuffer, fleet: Fleet, is_valid: Callable[[str], bool],
                 is_csrf_right: Callable[[dict[str, Any], str], bool]) -> None:
        self._viewers = viewers
        self._frames = frames
        self._lines = lines
        self._fleet = fleet
        self._is_valid = is_valid
        self._is_csrf_right = is_csrf_right
        handlers = {"connect": self._connect, "watch": self._watch, "hide": self._hide,
                    "lines": self._ask_lines, "tap": self._tap, "disconnect": self._disconnect,
                    "*": _unknown}
        for event, handler in handlers.items():
            server.on(event, handler, namespace=NAMESPACE)

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
        self._viewers.add(sid, viewer)
        peer.pull = lambda: self._frames.next(viewer)
        peer.admit()
        return True

    def _disconnect(self, sid: str, _reason: str = "") -> None:
        viewer = self._viewers.remove(sid)
        if viewer is not None:
            viewer.peer.pull = None
            self._watch_lines()

    def _allowed(self, sid: str, event: str) -> LiveViewer:
        viewer = self._viewers.of(sid)
        actor = viewer.actor
        if may(actor, f"{NAMESPACE} {event}") is not None or not self._is_valid(actor.credential):
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
            viewer.filter, viewer.metric = picked, metric
            viewer.replies.append(_reply(text, None))
        viewer.forget()
        self._frames.look()
        viewer.peer.wake()

    def _filter(self, viewer: LiveViewer, text: str) -> Filter | None:
        picked = parse(text)
        others = {(other.filter.text, other.scope) for other in self._viewers
                  if other is not viewer and other.filter is not None}
        if picked is not None and (picked.text, viewer.scope) not in others and (
                len(others) >= MAX_FILTERS):
            raise FilterError(f"{MAX_FILTERS} different filters are in use on this hub; use one "
                              "of them or wait", 0)
        return picked

    def _hide(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "hide")
        viewer.metric = None
        viewer.lines = ()
        self._watch_lines()

    def _ask_lines(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "lines")
        viewer.lines, viewer.lines_sent, viewer.lines_second = _uuids(arguments), -1, -1
        self._watch_lines()
        viewer.peer.wake()

    def _watch_lines(self) -> None:
        fleet = self._fleet
        asked = {(uuid, viewer.scope) for viewer in self._viewers for uuid in viewer.lines}
        slots = {slot for uuid, scope in asked for slot in self._frames.slots_of((uuid,), scope)}
        self._lines.watch(fleet.node_ids[fleet.node_at[slot]] for slot in slots)

    def _tap(self, sid: str, *arguments: Any) -> None:
        viewer = self._allowed(sid, "tap")
        if len(arguments) != 1 or not isinstance(arguments[0], bool):
            raise WebSocketViolationError(CloseCode.INVALID_DATA, "tap is true or false")
        viewer.is_tapping = arguments[0]
        viewer.tapped.clear()


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


def _unknown(event: str, *_arguments: Any) -> None:
    raise WebSocketViolationError(CloseCode.POLICY, f"no event {event[:40]!r} here")
