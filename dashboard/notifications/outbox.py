"""Waiting notifications: on disk before they are sent, and until their receiver has accepted them;
and heartbeats. A receiver that hangs delays no other, and never the hub."""

import logging
import random
import time
from collections.abc import Iterator

import gevent

from ..alerts.service import AlertService
from ..audit.recorder import AuditRecorder
from ..errors import NotFoundError
from .channels.table import channel_of
from .receiver_directory import ReceiverDirectory, ReceiverStatus
from .receivers import Receiver
from .retry import QueuedNotification, record_failure, retry_now
from .store import CANNOT_STORE, NotificationsStore
from .transports import DeliveryResult, Transports
from .words import AlertNotification, merge_notifications

log = logging.getLogger("gpudeck.notifications")

MOST_WAITING = 2_000  # of one receiver
WATCHED_WITHIN_S = 15.0


class NotificationOutbox:
    """The waiting notifications. `is_unwritten`: the disk has refused some of them; `write` stores
    all again."""

    def __init__(self, store: NotificationsStore, receivers: ReceiverDirectory,
                 transports: Transports, auditor: AuditRecorder, alerts: AlertService) -> None:
        self._store = store
        self._receivers = receivers
        self._transports = transports
        self._auditor = auditor
        self._alerts = alerts
        self._waiting = {entry.notice.id: entry for entry in store.waiting()}
        self._sending: set[str] = set()
        self._finished: set[str] = set()  # accepted or dropped, but still on disk
        self.is_unwritten = False

    def __iter__(self) -> Iterator[QueuedNotification]:
        return iter([*self._waiting.values()])

    def __len__(self) -> int:
        return len(self._waiting)

    def find(self, notification_id: str) -> QueuedNotification:
        if notification_id not in self._waiting:
            raise NotFoundError("there is no such notification waiting: it was delivered, or "
                                "dropped")
        return self._waiting[notification_id]

    def snapshot(self) -> dict[str, QueuedNotification]:
        return dict(self._waiting)

    def restore(self, snapshot: dict[str, QueuedNotification]) -> None:
        """Restore a snapshot: the disk has stored nothing of what came since."""
        self._waiting = snapshot

    def put(self, notification: AlertNotification, now: float) -> int:
        """Store a notification, with older ones of the same group merged into it. Return how many
        others were dropped."""
        queued, replaced, dropped = self._add(notification, now)
        self._store.drop(replaced)
        self._store.put(queued)
        return dropped

    def _add(self, notification: AlertNotification, now: float
             ) -> tuple[QueuedNotification, list[str], int]:
        """Add a notification in memory. Return it, the ids that it replaces, and how many were
        dropped."""
        replaced = []
        for older in self._mergeable(notification):
            notification = merge_notifications(older.notice, notification)
            replaced.append(older.notice.id)
        queue = [entry for entry in self if entry.notice.receiver == notification.receiver
                 and entry.notice.id not in replaced]
        dropped = len(queue) >= MOST_WAITING
        if dropped:
            replaced.append(min(queue, key=lambda entry: entry.notice.at).notice.id)
        for replaced_id in replaced:
            del self._waiting[replaced_id]
        entry = self._waiting[notification.id] = QueuedNotification(notification, now)
        return entry, replaced, int(dropped)

    def _mergeable(self, notification: AlertNotification) -> list[QueuedNotification]:
        """Return older ones of the same group, of which nothing was delivered yet."""
        group = notification.receiver, notification.words
        return [entry for entry in self if (entry.notice.receiver, entry.notice.words) == group
                and entry.parked_at is None and not entry.left
                and entry.notice.id not in self._sending]

    def hold(self, notification: AlertNotification, now: float) -> int:
        """Like `put`, but send it although the disk stores nothing. A hub that ends in between may
        repeat it."""
        self.is_unwritten = True
        _, replaced, dropped = self._add(notification, now)
        self._finished |= {*replaced}
        return dropped

    def write(self) -> None:
        """Store what the disk refused before."""
        if self.is_unwritten:
            self._store.drop(self._finished)
            for entry in self:
                self._store.put(entry)

    def note_written(self) -> None:
        """Note that everything is on disk."""
        self.is_unwritten = False
        self._finished.clear()

    def forget(self, entry: QueuedNotification) -> None:
        del self._waiting[entry.notice.id]
        self._store.drop([entry.notice.id])

    def forget_receiver(self, receiver_id: str) -> None:
        """Forget the notifications of a receiver, whose rows are dropped with it."""
        self._waiting = {notification_id: entry for notification_id, entry in self._waiting.items()
                         if entry.notice.receiver != receiver_id}

    def retry(self, notification_id: str, now: float) -> None:
        entry = self.find(notification_id)
        retry_now(entry, now)
        self._store.put(entry)

    # -- delivery

    def send_due(self, now: float) -> None:
        due: dict[str, QueuedNotification] = {}
        for entry in self:
            receiver = self._receivers.find(entry.notice.receiver)
            if receiver is None or not receiver.is_on or (
                    self._receivers.status[receiver.id].is_busy):
                continue
            first = due.get(receiver.id)
            if entry.parked_at is None and entry.next_at <= now and (
                    first is None or entry.next_at < first.next_at):
                due[receiver.id] = entry
        for receiver_id, entry in due.items():
            self._receivers.status[receiver_id].is_busy = True
            self._sending.add(entry.notice.id)
            gevent.spawn(self._deliver, self._receivers.get(receiver_id), entry)

    def _deliver(self, receiver: Receiver, entry: QueuedNotification) -> None:
        status = self._receivers.status[receiver.id]
        try:
            result = channel_of(receiver).send(entry, self._transports)
        except Exception as error:  # the receiver must be free again whatever happens
            log.exception("notice_failed")
            result = DeliveryResult(False, type(error).__name__, entry.left)
        finally:
            status.is_busy = False
            self._sending.discard(entry.notice.id)
        now = time.time()
        if entry.notice.id not in self._waiting:
            return  # its receiver was removed in the meantime
        status.note(result, now)
        try:
            if result.is_taken:
                self.forget(entry)
            else:
                self._put_off(entry, result, now)
        except CANNOT_STORE:  # the next step reports it
            self.is_unwritten = True
            if result.is_taken:
                self._finished.add(entry.notice.id)

    def _put_off(self, entry: QueuedNotification, result: DeliveryResult, now: float) -> None:
        entry.left = result.unsent
        record_failure(entry, result.words, now, random.random(), result.is_final, result.retry_s)
        self._store.put(entry)
        log.warning("notice_not_taken receiver=%r attempts=%d reason=%r", entry.notice.receiver,
                    entry.attempts, result.words)
        if entry.parked_at is not None:
            self._auditor.note("notice", {"action": "park", "outcome": "failed", "detail": {
                "receiver": entry.notice.receiver, "notice": entry.notice.id},
                "sentence": result.words})

    # -- the dead-man's switch

    def send_heartbeats(self, mono: float) -> None:
        if mono - self._alerts.stepped_mono > WATCHED_WITHIN_S:
            return  # rules are not evaluated: a heartbeat would be wrong
        for receiver in self._receivers:
            status, every_s = self._receivers.status[receiver.id], channel_of(receiver).beat_every_s
            if every_s is None or not receiver.is_on or status.is_busy or (
                    mono - status.beat_mono < every_s):
                continue
            status.beat_mono, status.is_busy = mono, True
            gevent.spawn(self._deliver_beat, receiver, status, len(self._alerts.firing()))

    def _deliver_beat(self, receiver: Receiver, status: ReceiverStatus, firing: int) -> None:
        try:
            result = channel_of(receiver).send_heartbeat(self._transports, firing, len(self))
        finally:
            status.is_busy = False
        status.note(result, time.time())
