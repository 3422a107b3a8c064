"""Check whether MPS holds shares here, shortly before it counts: without its daemon a share would
be the whole GPU, and nothing says so."""

from collections.abc import Callable, Iterable

from .lock import NodeLease
from .shares import NOT_SEEN, MpsFacts, ShareHolder, holder_of

FRESH_S = 15.0


class MpsProbe:
    """Recent facts about MPS. `facts`: asks the control program, which may take its time."""

    def __init__(self, facts: Callable[[], MpsFacts], now: Callable[[], float]) -> None:
        self._facts = facts
        self._now = now
        self._latest = float("-inf"), NOT_SEEN
        self._is_requested = False

    def probe(self) -> None:
        self._latest = self._now(), self._facts()
        self._is_requested = False

    def probe_if_requested(self) -> None:
        if self._is_requested:
            self.probe()

    def holder_of(self, uid: int, leases: Iterable[NodeLease]) -> ShareHolder:
        at, facts = self._latest
        if self._now() - at > FRESH_S:
            self._is_requested = True
            facts = NOT_SEEN
        return holder_of(uid, facts, leases)
