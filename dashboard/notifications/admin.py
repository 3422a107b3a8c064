"""What admins do with receivers and with notifications that wait: checked and recorded."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from ..access.policy import Actor, RefusedError, by, may
from ..alerts.core.firing_alerts import Alert
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError
from .channels.table import channel_of, flaw
from .delivery import FiringAlertSource
from .grouping import NotificationGrouping
from .outbox import NotificationOutbox
from .receiver_directory import ReceiverDirectory
from .receivers import MAX_RECEIVERS, Receiver
from .store import NotificationsStore
from .transports import DeliveryResult, Transports


@dataclass(frozen=True, slots=True)
class NotificationAdmin:
    store: NotificationsStore
    auditor: AuditRecorder
    receivers: ReceiverDirectory
    groups: NotificationGrouping
    outbox: NotificationOutbox
    transports: Transports
    alerts: FiringAlertSource
    take: Callable[[Alert], None]

    # -- receivers

    def add(self, actor: Actor, asked: Receiver) -> Receiver:
        _check(actor, "POST /api/v1/receivers")
        if len(self.receivers) >= MAX_RECEIVERS:
            raise InvalidChangeError(f"at most {MAX_RECEIVERS} receivers fit")
        made = replace(asked, id="r" + secrets.token_hex(6))
        self._save(actor, made, "add")
        return made

    def change(self, actor: Actor, receiver_id: str, asked: Receiver) -> Receiver:
        """A URL and a token that are left out stay as they are: they are never shown."""
        _check(actor, "PUT /api/v1/receivers/<receiver_id>")
        known = self.receivers.known(receiver_id)
        if asked.kind != known.kind:
            raise InvalidChangeError("what kind of receiver it is does not change: add another one")
        wanted = replace(asked, id=known.id, to=asked.to or known.to)
        if not asked.token and not asked.token_file and wanted.to == known.to:
            wanted = replace(wanted, token=known.token, token_file=known.token_file)
        self._save(actor, wanted, "change")
        return wanted

    def _save(self, actor: Actor, wanted: Receiver, action: str) -> None:
        why = flaw(wanted) or self._unknown_rules(wanted)
        if why is not None:
            raise InvalidChangeError(why)
        if channel_of(wanted).needs_mail and not self.transports.has_mail:
            raise InvalidChangeError("no mail server is set up: start the hub with --smtp-host and "
                                     "--smtp-from")
        with self.auditor.change("receiver", by(actor) | {"action": action, "detail": {
                "receiver": wanted.id, "kind": wanted.kind, "name": wanted.name,
                "is_on": wanted.is_on}}):
            self.store.put_receiver(wanted)
        self.receivers.put(wanted)
        self.groups.refit(wanted)
        for alert in self.alerts.firing():
            self.take(alert)

    def _unknown_rules(self, wanted: Receiver) -> str | None:
        """A receiver for a rule that does not exist would stay silent, and nobody would know."""
        before = self.receivers.find(wanted.id)
        known = () if before is None else before.rules
        unknown = [each for each in wanted.rules
                   if each not in known and each not in self.alerts.ready]
        return f"there is no rule {', '.join(unknown)}: it would hear of nothing" if (
            unknown) else None

    def remove(self, actor: Actor, receiver_id: str) -> None:
        _check(actor, "DELETE /api/v1/receivers/<receiver_id>")
        known = self.receivers.known(receiver_id)
        with self.auditor.change("receiver", by(actor) | {"action": "remove", "detail": {
                "receiver": known.id, "kind": known.kind, "name": known.name}}):
            self.store.drop_receiver(known.id)
        self.receivers.remove(known.id)
        self.groups.forget_receiver(known.id)
        self.outbox.forget_receiver(known.id)

    def test(self, actor: Actor, receiver_id: str) -> DeliveryResult:
        """Send a test now, and return what came of it."""
        _check(actor, "POST /api/v1/receivers/<receiver_id>/test")
        receiver = self.receivers.known(receiver_id)
        result = channel_of(receiver).test(receiver, actor, self.transports, len(self.outbox))
        self.auditor.note("receiver", by(actor) | {
            "action": "test", "outcome": "done" if result.is_taken else "failed",
            "detail": {"receiver": receiver.id}, "sentence": result.words})
        return result

    # -- notifications that wait

    def retry(self, actor: Actor, notification_id: str) -> None:
        _check(actor, "POST /api/v1/notices/<notice_id>/retry")
        self.outbox.retry(notification_id, time.time())

    def drop(self, actor: Actor, notification_id: str) -> None:
        _check(actor, "DELETE /api/v1/notices/<notice_id>")
        each = self.outbox.find(notification_id)
        with self.auditor.change("notice", by(actor) | {"action": "drop", "detail": {
                "notice": notification_id, "receiver": each.notice.receiver}}):
            self.outbox.forget(each)


def _check(actor: Actor, verb: str) -> None:
    refusal = may(actor, verb, now=time.time())
    if refusal is not None:
        raise RefusedError(refusal)
