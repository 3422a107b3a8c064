"""The brakes as they stand, on the disk before anything moves; the breaker and its reset."""

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

log = logging.getLogger("gpudeck.brakes")

MAX_REASON = 400


@dataclass(frozen=True, slots=True)
class BrakesReset:
    """An admin has reset the brakes: drop what waited for them."""


class BrakeService:
    def __init__(self, store: AutomationStore, auditor: AuditRecorder, events: Dispatcher) -> None:
        self._store = store
        self._auditor = auditor
        self._events = events
        # Reads like UTC, and does not step: a clock that is set forward gives no budget back.
        self._base = time.time() - time.monotonic()
        self._is_unsaved = False
        self._unrecorded: list[tuple[BrakeTrip, str]] = []  # with what tripped it
        self._disk_error = ""
        self.state = self._stored()
        events.listen(AuditFailed, lambda event: self.trip(
            "breaker", f"actions cannot be recorded: {event.reason}"))

    def _stored(self) -> BrakeState:
        """What cannot be read was not harmless, as far as anybody knows."""
        try:
            return self._store.braked() or BrakeState()
        except ValueError as error:
            log.error("brakes_not_read why=%r", str(error))
            return BrakeState(breaker=BrakeTrip(
                time.time(), "breaker",
                "the state of the brakes from before the restart cannot be read"))

    def now(self) -> float:
        return self._base + time.monotonic()

    # -- asked by who wants to act

    def says(self) -> HubSelfMetrics:
        """For the rules by which a hub watches itself."""
        return HubSelfMetrics(brakes_on=(self.state.breaker is not None) + len(self.state.storms),
                              is_unrecorded=bool(self._auditor.trouble))

    def mutes(self, source: str) -> list[str]:
        return [block.sentence for block in brake_limits.mutes(self.state, source)]

    def holds(self, ask: BrakeRequest) -> list[BrakeBlock]:
        return brake_limits.holds(self.state, ask, self.now())

    def take(self, ask: BrakeRequest) -> CountedAction | str:
        """Spent, and on the disk: it may be done; or why not. Hitting the fleet's bound opens the
        breaker."""
        found = self.holds(ask)
        for hit in found:
            # Whoever still wants to act when the fleet's bound is reached is not to be trusted.
            if hit.brake == "fleet":
                self.trip("fleet", f"{ask.source} wanted to act, and {hit.sentence}")
        if found:
            return found[0].sentence
        spent = brake_limits.spend(self.state, ask.source, ask.node_id, self.now())
        try:
            self._store.put_braked(spent)
        except CANNOT_STORE as error:
            self.trip("breaker", "an action cannot be counted, since the disk is not writable: "
                                 f"{error}")
            return self.mutes(ask.source)[0]
        self.state = spent
        return spent.spent[-1]

    def give_back(self, spent: CountedAction) -> None:
        """Nothing was touched. What cannot be kept stays spent after a restart, and that is all."""
        self.state = brake_limits.given_back(self.state, spent)
        try:
            self._store.put_braked(self.state)
        except CANNOT_STORE as error:
            log.warning("brakes_not_kept why=%r", str(error))

    # -- what holds until it is reset

    def look_for_storm(self, source: str, began: Iterable[float], targets: int) -> None:
        if source in self.state.storms:
            return
        trip = brake_limits.storm(source, began, targets, time.time())
        if trip is not None:
            self._put(brake_limits.stormed(self.state, source, trip), trip, source)

    def trip(self, brake: Name, sentence: str) -> None:
        """In force at once, whatever the disk says."""
        if self.state.breaker is None:
            trip = BrakeTrip(self.now(), brake, sentence[:1_024])
            self._put(brake_limits.tripped(self.state, trip), trip, "")

    def _put(self, state: BrakeState, trip: BrakeTrip, source: str) -> None:
        self.state, self._is_unsaved = state, True
        self._unrecorded.append((trip, source))
        log.error("brake=%s source=%s why=%r", trip.brake, source or "-", trip.sentence)
        self.tick()

    def tick(self) -> None:
        """What the disk did not take is kept and recorded as soon as it does: the breaker has to
        outlive the hub, and a disk that is full is what opens it."""
        try:
            if self._is_unsaved:
                self._store.put_braked(self.state)
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
            self._store.put_braked(after)
        self.state, self._is_unsaved = after, False
        self._events.dispatch(BrakesReset())
