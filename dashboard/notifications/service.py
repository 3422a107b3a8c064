"""Send notifications of alerts to receivers: at least once, and rarely more than once.

Each is on disk before it leaves, and until its receiver has taken it.
"""

import time
from collections.abc import Callable, Iterable

from ..alerts.core.firing_alerts import Alert, ended_by_restart
from ..alerts.core.rule import InvalidRuleError, Rule, check
from ..alerts.core.silence import Mute
from ..audit.recorder import AuditRecorder
from ..settings import HubSettings
from .admin import NotificationAdmin
from .channels.table import channel_of, owners_for
from .delivery import FiringAlertSource, NotificationDelivery
from .grouping import (
    NotificationBatch,
    NotificationGrouping,
    NotificationTiming,
    folded,
    member_key,
)
from .outbox import NotificationOutbox
from .receiver_directory import ReceiverDirectory
from .store import NotificationsStore
from .transports import Transports
from .words import made

BY_DEFAULT = ("rule", "node")


def recovered_groups(store: NotificationsStore, receivers: ReceiverDirectory,
                     timing: NotificationTiming, rules: Iterable[Rule], were_open: Iterable[Alert]
                     ) -> NotificationGrouping:
    """The groups as they were, with what fired when the hub ended, on disk. Before the rules are
    watched again, which records that those alerts are over."""
    ready = {}
    for rule in rules:
        try:
            ready[rule.id] = check(rule)
        except InvalidRuleError:  # by an older grammar
            continue
    now = time.time()
    groups = NotificationGrouping(timing, owners_for)
    groups.recover(store.groups(), now)
    for alert in were_open:
        names = ready[alert.rule_id].rule.group_by if alert.rule_id in ready else BY_DEFAULT
        for receiver in receivers:
            groups.take(alert, receiver, names, now)
    groups.doubt(now, lambda rule_id: float(ready[rule_id].for_s) if rule_id in ready else 0.0)
    with store.together():
        store.keep(groups.changes())
    return groups


class NotificationService:
    """`mute` is asked once for each step."""

    def __init__(self, store: NotificationsStore, auditor: AuditRecorder,
                 receivers: ReceiverDirectory, groups: NotificationGrouping, transports: Transports,
                 alerts: FiringAlertSource, mute: Callable[[], Mute]) -> None:
        self._store = store
        self._transports = transports
        self._alerts = alerts
        self._mute = mute
        self.receivers = receivers
        self.groups = groups
        self.outbox = NotificationOutbox(store)
        self.admin = NotificationAdmin(store, auditor, receivers, groups, self.outbox, transports,
                                       alerts, self.take)
        self._delivery = NotificationDelivery(receivers, self.outbox, transports, auditor, alerts)
        self._unwritten: list[NotificationBatch] = []

    @property
    def has_mail(self) -> bool:
        return self._transports.has_mail

    def take(self, alert: Alert) -> None:
        """It began, changed or ended. Nothing waits for this."""
        now, ready = time.time(), self._alerts.ready.get(alert.rule_id)
        names = BY_DEFAULT if ready is None else ready.rule.group_by
        for receiver in self.receivers:
            self.groups.take(alert, receiver, names, now)

    def step(self, now: float, mono: float) -> None:
        firing: dict[str, Alert] = {}

        def fires(alert: Alert) -> bool:
            firing.update({member_key(each): each for each in self._alerts.firing()})
            return member_key(alert) in firing

        self.groups.settle(now, fires, lambda alert: ended_by_restart(alert, now))
        self._write([*folded(self.groups.due(now, self._mute()))], now)
        self._delivery.send_due(now)
        self._delivery.beat(mono)

    def _write(self, batches: list[NotificationBatch], now: float) -> None:
        """The notifications and that they were made, both or neither; if the disk takes nothing,
        later."""
        batches, changes = self._unwritten + batches, self.groups.changes()
        if not batches and not changes:
            return
        before = self.outbox.snapshot()
        try:
            with self._store.together():
                for batch in batches:
                    self._put(batch, now)
                self._store.keep(changes)
        except BaseException:
            self.outbox.restore(before)
            self._unwritten = batches
            self.groups.put_back(changes)
            raise
        self._unwritten = []

    def _put(self, batch: NotificationBatch, now: float) -> None:
        receiver = self.receivers.find(batch.key[0])
        if receiver is None:
            return
        status = self.receivers.status[receiver.id]
        if not channel_of(receiver).reaches(batch.owner, self._transports):
            status.unreached += 1
            return
        notification = made(batch, now, self._transports.url(), self._alerts.ready.get)
        status.dropped += self.outbox.put(notification, now)


def timing_of(settings: HubSettings) -> NotificationTiming:
    return NotificationTiming(settings.notice_wait_s, settings.notice_interval_s,
                              settings.notice_repeat_s)
