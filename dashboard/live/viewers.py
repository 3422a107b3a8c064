"""Connected viewers, and what each was last sent."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

import gevent

from gpudeck.network.websocket import CloseCode

from ..access.policy import Actor
from ..fleet.filters import Filter
from ..fleet.visibility import VisibilityScope
from ..web.bounded_socket import BoundedSocket
from ..web.envelopes import event_frame

NAMESPACE = "/live"
MAX_ANNOUNCEMENTS = 256
MAX_TAPPED = 50_000
CLOSED_WITHIN_S = 0.7
SIGNED_OUT = "signed out"

Tapped = tuple[str, str, int, float]  # node, stream, seq, and when it was received


@dataclass(slots=True)
class LiveViewer:
    peer: BoundedSocket
    actor: Actor
    scope: VisibilityScope
    metric: str | None = None  # None: watches nothing now
    filter: Filter | None = None
    lines: tuple[str, ...] = ()  # the GPUs whose every sample it wants
    lines_sent: int = -1  # the number of the last moment that it was sent
    lines_second: int = -1
    is_tapping: bool = False
    wants_numbers: bool = False
    facts_second: int = -1_000
    announcements: dict[str, bytes] = field(default_factory=dict)  # the newest of each thing
    replies: deque[bytes] = field(default_factory=lambda: deque(maxlen=8))
    epoch: int = -1  # of the layout it has
    slots: int = -1  # of the layout, how many it has; -1: none of it
    nodes: int = 0
    versions: dict[str, Hashable] = field(default_factory=dict)  # of all else that it has, by topic
    is_hold_due: bool = False
    tapped: deque[Tapped] = field(default_factory=deque)
    is_tap_due: bool = False

    def forget(self) -> None:
        """Forget what the viewer has, so that everything is sent again."""
        self.slots, self.nodes = -1, 0
        self.versions.clear()

    def announce(self, thing: str, frame: bytes) -> None:
        if len(self.announcements) >= MAX_ANNOUNCEMENTS:
            # The page asks for the whole list now and then.
            del self.announcements[next(iter(self.announcements))]
        self.announcements[thing] = frame
        self.peer.wake()

    def tap(self, row: Tapped) -> None:
        if len(self.tapped) >= MAX_TAPPED:
            # A tap that skips would be a wrong count: rather none.
            self.end("this tap reads too slowly")
            self.is_tapping = False
            self.tapped.clear()
            return
        self.tapped.append(row)

    def end(self, reason: str) -> None:
        self.peer.push(event_frame("bye", {"reason": reason}, NAMESPACE))
        self.peer.finish(CloseCode.GOING_AWAY, reason)
        # One that does not read would stay until it stalls.
        gevent.spawn_later(CLOSED_WITHIN_S, self.peer.abort)


class LiveViewers(dict[str, LiveViewer]):
    """Viewers by session."""

    def all(self) -> list[LiveViewer]:
        """Return a copy, as a viewer may leave meanwhile."""
        return list(self.values())

    def end_credential(self, credential: str) -> None:
        for viewer in self.all():
            if viewer.actor.credential == credential:
                viewer.end(SIGNED_OUT)

    def end_all(self, reason: str) -> None:
        for viewer in self.all():
            viewer.end(reason)
