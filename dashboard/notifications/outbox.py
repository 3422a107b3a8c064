"""Notifications that wait: on disk before they leave, and until their receiver has taken them; and
heartbeats. A receiver that hangs keeps no other waiting, and never the hub."""

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
from .retry import QueuedNotification, again, failed
from .store import CANNOT_STORE, NotificationsStore
from .transports import DeliveryResult, Transports
from .words import AlertNotification, joined

log = logging.getLogger("gpudeck.notices")

MOST_WAITING = 2_000  # of one receiver
WATCHED_WITHIN_S = 15.0


class NotificationOutbox:
    """`is_unwritten`: the disk has refused something of it; `write` says all of it again."""

    def __init__(self, store: NotificationsStore, receivers: ReceiverDirectory,
                 transports: Transports, auditor: AuditRecorder, alerts: AlertService) -> None:
        self._store = store
        self._receivers = receivers
        self._transports = transports
        self._auditor = auditor
        self._alerts = alerts
        self._waiting = {each.notice.id: each for each in store.waiting()}
        self._sending: set[str] = set()
        self._gone: set[str] = set()  # taken, or dropped, and on disk still
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
        """The disk has taken nothing of what came since."""
        self._waiting = snapshot

    def put(self, notification: AlertNotification, now: float) -> int:
        """Join older ones of the same group into it. Return how many others were dropped."""
        waiting, gone, dropped = self._add(notification, now)
        self._store.drop(gone)
        self._store.put(waiting)
        return dropped

    def _add(self, notification: AlertNotification, now: float
             ) -> tuple[QueuedNotification, list[str], int]:
        """In memory. Return it, the ids that it takes the place of, and how many were dropped."""
        gone = []
        for each in self._not_left(notification):
            notification = joined(each.notice, notification)
            gone.append(each.notice.id)
        mine = [each for each in self if each.notice.receiver == notification.receiver
                and each.notice.id not in gone]
        dropped = len(mine) >= MOST_WAITING
        if dropped:
            gone.append(min(mine, key=lambda each: each.notice.at).notice.id)
        for each_id in gone:
            del self._waiting[each_id]
        waiting = self._waiting[notification.id] = QueuedNotification(notification, now)
        return waiting, gone, int(dropped)

    def _not_left(self, notification: AlertNotification) -> list[QueuedNotification]:
        """Older ones of the same group, of which nothing was taken yet."""
        group = notification.receiver, notification.words
        return [each for each in self if (each.notice.receiver, each.notice.words) == group
                and each.parked_at is None and not each.left
                and each.notice.id not in self._sending]

    def hold(self, notification: AlertNotification, now: float) -> int:
        """Send it though the disk takes nothing; else as `put`. A hub that ends meanwhile may
        repeat it."""
        self.is_unwritten = True
        _, gone, dropped = self._add(notification, now)
        self._gone |= {*gone}
        return dropped

    def write(self) -> None:
        """What the disk refused before."""
        if self.is_unwritten:
            self._store.drop(self._gone)
            for each in self:
                self._store.put(each)

    def note_written(self) -> None:
        """All of it is on disk."""
        self.is_unwritten = False
        self._gone.clear()

    def forget(self, each: QueuedNotification) -> None:
        del self._waiting[each.notice.id]
        self._store.drop([each.notice.id])

    def forget_receiver(self, receiver_id: str) -> None:
        """Whose rows are dropped with it."""
        self._waiting = {notification_id: each for notification_id, each in self._waiting.items()
                         if each.notice.receiver != receiver_id}

    def retry(self, notification_id: str, now: float) -> None:
        each = self.find(notification_id)
        again(each, now)
        self._store.put(each)

    # -- out

    def send_due(self, now: float) -> None:
        due: dict[str, QueuedNotification] = {}
        for each in self:
            receiver = self._receivers.find(each.notice.receiver)
            if receiver is None or not receiver.is_on or (
                    self._receivers.status[receiver.id].is_busy):
                continue
            first = due.get(receiver.id)
            if each.parked_at is None and each.next_at <= now and (
                    first is None or each.next_at < first.next_at):
                due[receiver.id] = each
        for receiver_id, each in due.items():
            self._receivers.status[receiver_id].is_busy = True
            self._sending.add(each.notice.id)
            gevent.spawn(self._deliver, self._receivers.known(receiver_id), each)

    def _deliver(self, receiver: Receiver, each: QueuedNotification) -> None:
        status = self._receivers.status[receiver.id]
        try:
            result = channel_of(receiver).send(each, self._transports)
        except Exception as error:  # the receiver must be free again whatever happens
            log.exception("notice_failed")
            result = DeliveryResult(False, type(error).__name__, each.left)
        finally:
            status.is_busy = False
            self._sending.discard(each.notice.id)
        now = time.time()
        if each.notice.id not in self._waiting:
            return  # its receiver was removed meanwhile
        status.note(result, now)
        try:
            if result.is_taken:
                self.forget(each)
            else:
                self._put_off(each, result, now)
        except CANNOT_STORE:  # the next step reports it
            self.is_unwritten = True
            if result.is_taken:
                self._gone.add(each.notice.id)

    def _put_off(self, each: QueuedNotification, result: DeliveryResult, now: float) -> None:
        each.left = result.left
        failed(each, result.words, now, random.random(), result.is_final, result.retry_s)
        self._store.put(each)
        log.warning("notice_not_taken receiver=%r attempts=%d reason=%r", each.notice.receiver,
                    each.attempts, result.words)
        if each.parked_at is not None:
            self._auditor.note("notice", {"action": "park", "outcome": "failed", "detail": {
                "receiver": each.notice.receiver, "notice": each.notice.id},
                "sentence": result.words})

    # -- the dead-man's switch

    def beat(self, mono: float) -> None:
        if mono - self._alerts.stepped_mono > WATCHED_WITHIN_S:
            return  # rules are not watched: this must not say that all is well
        for receiver in self._receivers:
            status, every_s = self._receivers.status[receiver.id], channel_of(receiver).beat_every_s
            if every_s is None or not receiver.is_on or status.is_busy or (
                    mono - status.beat_mono < every_s):
                continue
            status.beat_mono, status.is_busy = mono, True
            gevent.spawn(self._deliver_beat, receiver, status, len(self._alerts.firing()))

    def _deliver_beat(self, receiver: Receiver, status: ReceiverStatus, firing: int) -> None:
        try:
            result = channel_of(receiver).beat(self._transports, firing, len(self))
        finally:
            status.is_busy = False
        status.note(result, time.time())
