"""The current brakes, stored before anything acts; the breaker and its reset."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..alerts.core.gpu_targets import HubSelfMetrics
from ..audit.events import AuditFailed
from ..audit.recorder import AuditRecorder
from ..errors import AuditWriteError, InvalidChangeError
from ..runtime.dispatcher import Dispatcher
from . import brake_limits
from .brake_limits import BrakeBlock, BrakeRequest, BrakeState, BrakeTrip, CountedAction, Name
from .store import CANNOT_STORE, AutomationStore

log = logging.getLogger("gpudeck.automation")

MAX_REASON = 400


@dataclass(frozen=True, slots=True)
class BrakesReset:
    """An admin has reset the brakes: drop what waited for them."""


class BrakeService:
    def __init__(self, store: AutomationStore, auditor: AuditRecorder, events: Dispatcher) -> None:
        self._store = store
        self._auditor = auditor
        self._events = events
        # Reads like UTC and never steps: a clock that is set forward frees no budget.
        self._base = time.time() - time.monotonic()
        self._is_unsaved = False
        self._unrecorded: list[tuple[BrakeTrip, str]] = []  # with their source
        self._disk_error = ""
        self.state = self._stored()
        events.listen(AuditFailed, lambda event: self.trip(
            "breaker", f"actions cannot be recorded: {event.reason}"))

    def _stored(self) -> BrakeState:
        """Return the stored state. If it cannot be read, the breaker opens, as it may have been
        open."""
        try:
            return self._store.brake_state() or BrakeState()
        except ValueError as error:
            log.error("brakes_not_read why=%r", str(error))
            return BrakeState(breaker=BrakeTrip(
                time.time(), "breaker",
                "the state of the brakes from before the restart cannot be read"))

    def now(self) -> float:
        return self._base + time.monotonic()

    # -- for what wants to act

    def hub_metrics(self) -> HubSelfMetrics:
        """Return metrics for the rules by which a hub watches itself."""
        return HubSelfMetrics(brakes_on=(self.state.breaker is not None) + len(self.state.storms),
                              is_unrecorded=bool(self._auditor.trouble))

    def mutes(self, source: str) -> list[str]:
        return [block.sentence for block in brake_limits.mutes(self.state, source)]

    def holds(self, request: BrakeRequest) -> list[BrakeBlock]:
        return brake_limits.holds(self.state, request, self.now())

    def reserve(self, request: BrakeRequest) -> CountedAction | str:
        """Count an action and store that before it may be done; or return why it may not. Reaching
        the fleet's limit opens the breaker."""
        blocks = self.holds(request)
        for block in blocks:
            # A source that still wants to act when the fleet's limit is reached cannot be trusted.
            if block.brake == "fleet":
                self.trip("fleet", f"{request.source} wanted to act, and {block.sentence}")
        if blocks:
            return blocks[0].sentence
        after = brake_limits.spend(self.state, request.source, request.node_id, self.now())
        try:
            self._store.put_brake_state(after)
        except CANNOT_STORE as error:
            self.trip("breaker", "an action cannot be counted, since the disk is not writable: "
                                 f"{error}")
            return self.mutes(request.source)[0]
        self.state = after
        return after.spent[-1]

    def refund(self, action: CountedAction) -> None:
        """Uncount an action that touched nothing. If that cannot be stored, it counts again after a
        restart, and no more than that."""
        self.state = brake_limits.refunded(self.state, action)
        try:
            self._store.put_brake_state(self.state)
        except CANNOT_STORE as error:
            log.warning("brakes_not_kept why=%r", str(error))

    # -- trips, until they are reset

    def look_for_storm(self, source: str, began: Iterable[float], targets: int) -> None:
        if source in self.state.storms:
            return
        trip = brake_limits.storm(source, began, targets, time.time())
        if trip is not None:
            self._put(brake_limits.with_storm(self.state, source, trip), trip, source)

    def trip(self, brake: Name, sentence: str) -> None:
        """Open the breaker at once, whether or not the disk accepts it."""
        if self.state.breaker is None:
            trip = BrakeTrip(self.now(), brake, sentence[:1_024])
            self._put(brake_limits.with_breaker(self.state, trip), trip, "")

    def _put(self, state: BrakeState, trip: BrakeTrip, source: str) -> None:
        self.state, self._is_unsaved = state, True
        self._unrecorded.append((trip, source))
        log.error("brake=%s source=%s why=%r", trip.brake, source or "-", trip.sentence)
        self.tick()

    def tick(self) -> None:
        """Store and record what the disk refused before: the breaker has to outlive the hub, and a
        full disk is what opens it."""
        try:
            if self._is_unsaved:
                self._store.put_brake_state(self.state)
                self._is_unsaved = False
            while self._unrecorded:
                trip, source = self._unrecorded[0]
                self._auditor.record("brake", {
                    "actor": source or "gpudeck", "actor_kind": "rule", "outcome": "done",
                    "action": "storm" if trip.brake == "storm" else "trip",
                    "sentence": trip.sentence, "detail": {"at": trip.at}})
                del self._unrecorded[0]
        except (*CANNOT_STORE, AuditWriteError) as error:
            if str(error) != self._disk_error:
                log.error("brakes_not_kept why=%r", str(error))
            self._disk_error = str(error)

    def reset(self, actor: Actor, reason: str) -> None:
        require(actor, "POST /api/v1/brakes")
        reason = " ".join(reason.split())
        if not reason or len(reason) > MAX_REASON or not reason.isprintable():
            raise InvalidChangeError("say in one line why it is safe again, with at most "
                                     f"{MAX_REASON} characters")
        if self.state.breaker is None and not self.state.storms:
            raise InvalidChangeError("there is nothing to reset")
        was, after = self.state, brake_limits.reset(self.state)
        with self._auditor.change("brake", actor_fields(actor) | {
                "action": "reset", "reason": reason, "detail": {
                    "breaker": None if was.breaker is None else was.breaker.sentence,
                    "storms": sorted(was.storms)}}):
            self._store.put_brake_state(after)
        self.state, self._is_unsaved = after, False
        self._events.dispatch(BrakesReset())
