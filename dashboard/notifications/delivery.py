"""Send what waits in the outbox, and heartbeats. A receiver that hangs keeps no other waiting, and
never the hub."""

import logging
import random
import time
from dataclasses import dataclass
from typing import Protocol

import gevent

from ..alerts.core.firing_alerts import Alert
from ..alerts.core.rule import CompiledRule
from ..audit.recorder import AuditRecorder
from .channels.table import channel_of
from .outbox import NotificationOutbox
from .receiver_directory import ReceiverDirectory, ReceiverStatus
from .receivers import Receiver
from .retry import QueuedNotification, failed
from .transports import DeliveryResult, Transports

log = logging.getLogger("gpudeck.notices")

WATCHED_WITHIN_S = 15.0


class FiringAlertSource(Protocol):
    """The rules as they are watched now."""

    @property
    def ready(self) -> dict[str, CompiledRule]: ...
    stepped_mono: float

    def firing(self) -> list[Alert]: ...


@dataclass(frozen=True, slots=True)
class NotificationDelivery:
    receivers: ReceiverDirectory
    outbox: NotificationOutbox
    transports: Transports
    auditor: AuditRecorder
    alerts: FiringAlertSource

    def send_due(self, now: float) -> None:
        due: dict[str, QueuedNotification] = {}
        for each in self.outbox:
            receiver = self.receivers.find(each.notice.receiver)
            if receiver is None or not receiver.is_on or (
                    self.receivers.status[receiver.id].is_busy):
                continue
            first = due.get(receiver.id)
            if each.parked_at is None and each.next_at <= now and (
                    first is None or each.next_at < first.next_at):
                due[receiver.id] = each
        for receiver_id, each in due.items():
            self.receivers.status[receiver_id].is_busy = True
            self.outbox.sending.add(each.notice.id)
            gevent.spawn(self._deliver, self.receivers.known(receiver_id), each)

    def _deliver(self, receiver: Receiver, each: QueuedNotification) -> None:
        status = self.receivers.status[receiver.id]
        try:
            result = channel_of(receiver).send(receiver, each, self.transports)
        except Exception as error:  # the receiver must be free again whatever happens
            log.exception("notice_failed")
            result = DeliveryResult(False, type(error).__name__, each.left)
        finally:
            status.is_busy = False
            self.outbox.sending.discard(each.notice.id)
        now = time.time()
        if each.notice.id not in self.outbox:
            return  # its receiver was removed meanwhile
        if result.is_taken:
            status.taken(now)
            self.outbox.forget(each)
            return
        status.refused(result.words, now)
        self._put_off(receiver, each, result, now)

    def _put_off(self, receiver: Receiver, each: QueuedNotification, result: DeliveryResult,
                 now: float) -> None:
        each.left = result.left
        failed(each, result.words, now, random.random())
        self.outbox.save(each)
        log.warning("notice_not_taken receiver=%r attempts=%d reason=%r", receiver.id,
                    each.attempts, result.words)
        if each.parked_at is not None:
            self.auditor.note("notice", {"action": "park", "outcome": "failed", "detail": {
                "receiver": receiver.id, "notice": each.notice.id}, "sentence": result.words})

    # -- the dead-man's switch

    def beat(self, mono: float) -> None:
        if mono - self.alerts.stepped_mono > WATCHED_WITHIN_S:
            return  # rules are not watched: this must not say that all is well
        for receiver in self.receivers:
            status, every_s = self.receivers.status[receiver.id], channel_of(receiver).beat_every_s
            if every_s is None or not receiver.is_on or status.is_busy or (
                    mono - status.beat_mono < every_s):
                continue
            status.beat_mono, status.is_busy = mono, True
            gevent.spawn(self._deliver_beat, receiver, status, len(self.alerts.firing()))

    def _deliver_beat(self, receiver: Receiver, status: ReceiverStatus, firing: int) -> None:
        try:
            result = channel_of(receiver).beat(receiver, self.transports, firing,
                                               len(self.outbox))
        finally:
            status.is_busy = False
        if result.is_taken:
            status.taken(time.time())
        else:
            status.refused(result.words, time.time())
