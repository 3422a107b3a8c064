"""Send notifications of alerts to receivers: at least once, and rarely more than once.

Each is on disk before it is sent, and until its receiver has accepted it. While the disk stores
nothing they are sent from memory, as people must hear of that too.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from functools import cache

from msgspec.structs import replace

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..alerts.core.firing_alerts import Alert, ended_by_restart
from ..alerts.core.rule import InvalidRuleError, Rule, check
from ..alerts.core.silence import Mute
from ..alerts.service import AlertService
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError
from ..settings import HubSettings
from .channels.table import channel_of, flaw, owners_for
from .grouping import (
    NotificationBatch,
    NotificationGrouping,
    NotificationTiming,
    fold,
    member_key,
)
from .outbox import NotificationOutbox
from .receiver_directory import ReceiverDirectory
from .receivers import MAX_RECEIVERS, Receiver
from .store import CANNOT_STORE, NotificationsStore
from .transports import DeliveryResult, Transports
from .words import build_notification

log = logging.getLogger("gpudeck.notifications")

BY_DEFAULT = ("rule", "node")


def recovered_groups(store: NotificationsStore, receivers: ReceiverDirectory,
                     timing: NotificationTiming, rules: Iterable[Rule], were_open: Iterable[Alert]
                     ) -> NotificationGrouping:
    """Return the stored groups, with the alerts that were firing when the hub stopped. Call it
    before rules are evaluated again, which records those alerts as ended."""
    ready = {}
    for rule in rules:
        try:
            ready[rule.id] = check(rule)
        except InvalidRuleError:  # in an older grammar
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
        store.put_changes(groups.changes())
    return groups


def fires_in(alerts: AlertService) -> Callable[[Alert], bool]:
    """Return a test for alerts that fire, or did before a restart and whose targets were not seen
    again yet: those are no more over here than they are in lists."""
    @cache
    def keys() -> set[str]:  # often not needed
        return {member_key(alert) for alert in (*alerts.firing(), *alerts.restart.waiting())}

    return lambda alert: member_key(alert) in keys()


class NotificationService:
    """Notifies receivers of alerts. `mute` is called once in each step."""

    def __init__(self, store: NotificationsStore, auditor: AuditRecorder,
                 receivers: ReceiverDirectory, groups: NotificationGrouping, transports: Transports,
                 alerts: AlertService, mute: Callable[[], Mute]) -> None:
        self._store = store
        self._auditor = auditor
        self._alerts = alerts
        self._mute = mute
        self.receivers = receivers
        self.groups = groups
        self.transports = transports
        self.outbox = NotificationOutbox(store, receivers, transports, auditor, alerts)
        self._reported = ""  # the disk error that was logged last

    def take(self, alert: Alert) -> None:
        """Take an alert that began, changed or ended, without waiting for anything."""
        now, ready = time.time(), self._alerts.ready.get(alert.rule_id)
        names = BY_DEFAULT if ready is None else ready.rule.group_by
        for receiver in self.receivers:
            self.groups.take(alert, receiver, names, now)

    def step(self, now: float, mono: float) -> None:
        self.groups.settle(now, fires_in(self._alerts), lambda alert: ended_by_restart(alert, now))
        self._write([*fold(self.groups.due(now, self._mute()))], now)
        self.outbox.send_due(now)
        self.outbox.send_heartbeats(mono)

    def _write(self, batches: list[NotificationBatch], now: float) -> None:
        """Store notifications and the state of their groups, both or neither; if the disk stores
        nothing, retry later and send them from memory."""
        changes = self.groups.changes()
        notifications = [
            build_notification(batch, now, self.transports.url(), self._alerts.ready.get)
            for batch in batches if self._reaches(batch)]
        if not notifications and not changes and not self.outbox.is_unwritten:
            return
        before = self.outbox.snapshot()
        try:
            with self._store.together():
                dropped = [self.outbox.put(notification, now) for notification in notifications]
                self._store.put_changes(changes)
                self.outbox.write()
        except CANNOT_STORE as error:
            self.outbox.restore(before)
            self.groups.put_back(changes)
            dropped = [self.outbox.hold(notification, now) for notification in notifications]
            self._report(str(error))
        else:
            self.outbox.note_written()
            self._report("")
        for notification, number in zip(notifications, dropped, strict=True):
            self.receivers.status[notification.receiver].dropped += number

    def _reaches(self, batch: NotificationBatch) -> bool:
        receiver = self.receivers.find(batch.key[0])
        if receiver is None:
            return False
        reaches = channel_of(receiver).reaches(batch.owner, self.transports)
        self.receivers.status[receiver.id].unreached += not reaches
        return reaches

    def _report(self, trouble: str) -> None:
        """Log a disk error once for as long as it lasts."""
        if trouble and not self._reported:
            log.error("notices_not_kept why=%r; they are sent from memory", trouble)
        self._reported = trouble

    # -- receivers, by admins

    def add(self, actor: Actor, draft: Receiver) -> Receiver:
        require(actor, "POST /api/v1/receivers")
        if len(self.receivers) >= MAX_RECEIVERS:
            raise InvalidChangeError(f"at most {MAX_RECEIVERS} receivers are allowed")
        receiver = replace(draft, id="r" + secrets.token_hex(6))
        self._save(actor, receiver, "add")
        return receiver

    def change(self, actor: Actor, receiver_id: str, draft: Receiver) -> Receiver:
        """Change a receiver. A URL and a token that are left out stay as they are: they are never
        shown."""
        require(actor, "PUT /api/v1/receivers/<receiver_id>")
        current = self.receivers.get(receiver_id)
        if draft.kind != current.kind:
            raise InvalidChangeError("the kind of a receiver cannot be changed; add a new "
                                     "receiver instead")
        receiver = replace(draft, id=current.id, to=draft.to or current.to)
        if not draft.token and not draft.token_file and receiver.to == current.to:
            receiver = replace(receiver, token=current.token, token_file=current.token_file)
        self._save(actor, receiver, "change")
        return receiver

    def _save(self, actor: Actor, receiver: Receiver, action: str) -> None:
        why = flaw(receiver) or self._unknown_rules(receiver)
        if why is not None:
            raise InvalidChangeError(why)
        if channel_of(receiver).needs_mail and not self.transports.has_mail:
            raise InvalidChangeError("no mail server is set up: start the hub with --smtp-host and "
                                     "--smtp-from")
        with self._auditor.change("receiver", actor_fields(actor) | {"action": action, "detail": {
                "receiver": receiver.id, "kind": receiver.kind, "name": receiver.name,
                "is_on": receiver.is_on}}):
            self._store.put_receiver(receiver)
        self.receivers.put(receiver)
        self.groups.refit(receiver)
        for alert in self._alerts.firing():
            self.take(alert)

    def _unknown_rules(self, receiver: Receiver) -> str | None:
        """Refuse rules that do not exist: a receiver for them would stay silent, and nobody would
        know."""
        before = self.receivers.find(receiver.id)
        former_rules = () if before is None else before.rules
        unknown = [rule_id for rule_id in receiver.rules
                   if rule_id not in former_rules and rule_id not in self._alerts.ready]
        return f"there is no rule {', '.join(unknown)}: the receiver would get nothing" if (
            unknown) else None

    def remove(self, actor: Actor, receiver_id: str) -> None:
        require(actor, "DELETE /api/v1/receivers/<receiver_id>")
        receiver = self.receivers.get(receiver_id)
        with self._auditor.change("receiver", actor_fields(actor) | {"action": "remove", "detail": {
                "receiver": receiver.id, "kind": receiver.kind, "name": receiver.name}}):
            self._store.drop_receiver(receiver.id)
        self.receivers.remove(receiver.id)
        self.groups.forget_receiver(receiver.id)
        self.outbox.forget_receiver(receiver.id)

    def test(self, actor: Actor, receiver_id: str) -> DeliveryResult:
        """Send a test now, and return its result."""
        require(actor, "POST /api/v1/receivers/<receiver_id>/test")
        receiver = self.receivers.get(receiver_id)
        result = channel_of(receiver).test(actor, self.transports, len(self.outbox))
        status = self.receivers.status[receiver.id]
        status.test, status.tested_at = result, time.time()
        self._auditor.note("receiver", actor_fields(actor) | {
            "action": "test", "outcome": "done" if result.is_taken else "failed",
            "detail": {"receiver": receiver.id}, "sentence": result.words})
        return result

    # -- notifications that wait, by admins

    def retry(self, actor: Actor, notification_id: str) -> None:
        require(actor, "POST /api/v1/notices/<notice_id>/retry")
        self.outbox.retry(notification_id, time.time())

    def drop(self, actor: Actor, notification_id: str) -> None:
        require(actor, "DELETE /api/v1/notices/<notice_id>")
        entry = self.outbox.find(notification_id)
        with self._auditor.change("notice", actor_fields(actor) | {"action": "drop", "detail": {
                "notice": notification_id, "receiver": entry.notice.receiver}}):
            self.outbox.forget(entry)


def timing_of(settings: HubSettings) -> NotificationTiming:
    return NotificationTiming(settings.notice_wait_s, settings.notice_interval_s,
                              settings.notice_repeat_s)
