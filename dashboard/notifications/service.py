"""Tells receivers of Alerts: at least once, and within limits nobody else.

What is to be told is on disk before it leaves, and until its receiver has taken it. Each receiver
has a lane of its own: one that hangs keeps no other waiting, and never the hub.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import gevent
import msgspec
from gevent.threadpool import ThreadPool
from msgspec.structs import replace

from ..access.policy import Actor, RefusedError, by, may
from ..alerts.core.firing_alerts import Alert, ended_by_restart
from ..alerts.core.rule import CompiledRule, InvalidRuleError, Rule, check
from ..alerts.core.silence import Mute
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..settings import HubSettings
from ..trusted_networks import NONE, NetworkSet
from . import mail, webhook
from .addresses import OwnerAddresses
from .grouping import (
    NotificationBatch,
    NotificationGrouping,
    NotificationTiming,
    folded,
    member_key,
)
from .mail import SmtpSettings
from .owner_words import MailMessage
from .receivers import Receiver, flaw
from .retry import QueuedNotification, again, failed
from .store import NotificationsStore
from .webhook import WebhookRequest
from .words import AlertNotification, chat_text, joined, made
from .words import mail as mail_of

log = logging.getLogger("gpudeck.notices")

EVERY_S = 1.0
BEAT_EVERY_S = 60.0
WATCHED_WITHIN_S = 15.0
MOST_RECEIVERS = 20
MOST_WAITING = 2_000  # of one receiver
SECRETS = "secrets"


class FiringAlertSource(Protocol):
    """Who looks at the Rules, and knows what fires."""

    stepped_mono: float

    @property
    def ready(self) -> dict[str, CompiledRule]: ...

    def firing(self) -> list[Alert]: ...


@dataclass(slots=True)
class ReceiverStatus:
    """How one receiver has been doing since the hub was started."""

    is_busy: bool = False
    sent: int = 0
    failed: int = 0
    unreached: int = 0  # owners without an address
    dropped: int = 0
    told_at: float | None = None
    error: str = ""
    error_at: float | None = None
    beat_mono: float = -BEAT_EVERY_S


class NotificationService:
    def __init__(self, store: NotificationsStore, auditor: AuditRecorder, addresses: OwnerAddresses,
                 smtp: SmtpSettings | None, folder: Path, url: Callable[[], str],
                 pace: NotificationTiming | None = None, inside: NetworkSet = NONE) -> None:
        self._store = store
        self._auditor = auditor
        self._addresses = addresses
        self._smtp = smtp
        self._folder = folder
        self._url = url
        self._inside = inside
        self._watcher: FiringAlertSource | None = None
        self._mute: Callable[[], Mute] = lambda: lambda _: False
        self._ready: dict[str, CompiledRule] = {}
        self._pool = ThreadPool(MOST_RECEIVERS + 1)  # and one for who tries a receiver out
        self.groups = NotificationGrouping(pace)
        self.receivers = store.receivers()
        self.lanes = {receiver_id: ReceiverStatus() for receiver_id in self.receivers}
        self.waiting = {each.notice.id: each for each in store.waiting()}
        self._sending: set[str] = set()
        self._unwritten: list[NotificationBatch] = []

    def recover(self, rules: Iterable[Rule], were_open: Iterable[Alert]) -> None:
        """Before anyone says that those are over: they fired when the hub ended, which may not
        have come to note it here."""
        self._ready = {rule.id: ready for rule in rules if (ready := _ready(rule)) is not None}
        now = time.time()
        self.groups.recover(self._store.groups(), now)
        for alert in were_open:
            self._take(alert, now)
        self.groups.doubt(now, self._hold_s)
        self._write([], now)

    def watch(self, watcher: FiringAlertSource, mute: Callable[[], Mute]) -> None:
        self._watcher, self._mute = watcher, mute

    def _hold_s(self, rule_id: str) -> float:
        ready = self._find(rule_id)
        return 0.0 if ready is None else float(ready.for_s)

    def _find(self, rule_id: str) -> CompiledRule | None:
        found = self._ready if self._watcher is None else self._watcher.ready
        return found.get(rule_id)

    @property
    def has_mail(self) -> bool:
        return self._smtp is not None

    # -- in

    def take(self, alert: Alert) -> None:
        """It began, changed or ended. Nothing waits for this."""
        self._take(alert, time.time())

    def _take(self, alert: Alert, now: float) -> None:
        ready = self._find(alert.rule_id)
        names = ("rule", "node") if ready is None else ready.rule.group_by
        for receiver in self.receivers.values():
            self.groups.take(alert, receiver, names, now)

    # -- out

    def run(self) -> None:
        while True:
            gevent.sleep(EVERY_S)
            try:
                self.step(time.time(), time.monotonic())
            except Exception:  # what cannot be told now is told later
                log.exception("notices_failed")

    def step(self, now: float, mono: float) -> None:
        watcher = self._watcher
        if watcher is None:
            return
        firing: dict[str, Alert] = {}

        def fires(alert: Alert) -> bool:
            firing.update({member_key(each): each for each in watcher.firing()})
            return member_key(alert) in firing

        self.groups.settle(now, fires, lambda alert: ended_by_restart(alert, now))
        self._write([*folded(self.groups.due(now, self._mute()))], now)
        self._send_due(now)
        self._beat(mono)

    def _write(self, batches: list[NotificationBatch], now: float) -> None:
        """What is told and that it was, both or neither; where the disk takes nothing, later."""
        batches, changes = self._unwritten + batches, self.groups.changes()
        if not batches and not changes:
            return
        before = dict(self.waiting)
        try:
            with self._store.together():
                for batch in batches:
                    self._put(batch, now)
                self._store.keep(changes)
        except BaseException:
            self.waiting, self._unwritten = before, batches
            self.groups.put_back(changes)
            raise
        self._unwritten = []

    def _put(self, batch: NotificationBatch, now: float) -> None:
        receiver = self.receivers.get(batch.key[0])
        if receiver is None:
            return
        lane = self.lanes[receiver.id]
        if receiver.kind == "owners" and self._addresses.of(batch.owner) is None:
            lane.unreached += 1
            return
        notice = made(batch, now, self._url(), self._find)
        for each in self._not_left(notice):
            notice = joined(each.notice, notice)
            self._forget(each)
        mine = [each for each in self.waiting.values() if each.notice.receiver == receiver.id]
        if len(mine) >= MOST_WAITING:
            lane.dropped += 1
            self._forget(min(mine, key=lambda each: each.notice.at))
        waiting = self.waiting[notice.id] = QueuedNotification(notice, now)
        self._store.put(waiting)

    def _not_left(self, notice: AlertNotification) -> list[QueuedNotification]:
        """Older ones of the same group, of which nothing was taken yet."""
        return [each for each in self.waiting.values()
                if (each.notice.receiver, each.notice.words) == (notice.receiver, notice.words)
                and each.parked_at is None and not each.left
                and each.notice.id not in self._sending]

    def _forget(self, each: QueuedNotification) -> None:
        del self.waiting[each.notice.id]
        self._store.drop([each.notice.id])

    def _send_due(self, now: float) -> None:
        due: dict[str, QueuedNotification] = {}
        for each in self.waiting.values():
            receiver = self.receivers.get(each.notice.receiver)
            if receiver is None or not receiver.is_on or self.lanes[receiver.id].is_busy:
                continue
            first = due.get(receiver.id)
            if each.parked_at is None and each.next_at <= now and (
                    first is None or each.next_at < first.next_at):
                due[receiver.id] = each
        for receiver_id, each in due.items():
            self.lanes[receiver_id].is_busy = True
            self._sending.add(each.notice.id)
            gevent.spawn(self._deliver, self.receivers[receiver_id], each)

    def _deliver(self, receiver: Receiver, each: QueuedNotification) -> None:
        lane = self.lanes[receiver.id]
        try:
            is_taken, words, left = self._send(receiver, each)
        except Exception as error:  # a lane must be free again whatever happens
            log.exception("notice_failed")
            is_taken, words, left = False, type(error).__name__, each.left
        finally:
            lane.is_busy = False
            self._sending.discard(each.notice.id)
        now = time.time()
        if each.notice.id not in self.waiting:
            return  # its receiver was removed meanwhile
        if is_taken:
            lane.sent, lane.told_at, lane.error = lane.sent + 1, now, ""
            self._forget(each)
            return
        lane.failed, lane.error, lane.error_at = lane.failed + 1, words, now
        each.left = left
        failed(each, words, now, random.random())
        self._store.put(each)
        log.warning("notice_not_taken receiver=%r attempts=%d reason=%r", receiver.id,
                    each.attempts, words)
        if each.parked_at is not None:
            self._auditor.note("notice", {"action": "park", "outcome": "failed", "detail": {
                "receiver": receiver.id, "notice": each.notice.id}, "sentence": words})

    def _send(self, receiver: Receiver, each: QueuedNotification) -> tuple[bool, str,
                                                                           tuple[str, ...]]:
        notice = each.notice
        if receiver.kind == "webhook":
            is_taken, words = self._post(receiver, fields_of(notice, receiver), notice.id)
            return is_taken, words, ()
        if self._smtp is None:
            return False, "no mail server is set up (setting smtp_host)", each.left
        to = ", ".join(each.left or receiver.addresses)
        if receiver.kind == "owners":
            to = self._addresses.of(notice.owner) or ""
            if not to:
                return False, f"no address of {notice.owner} is known any more", ()
        left, why = self._pool.apply(mail.attempt, (self._smtp, mail_of(notice, to)))
        return why is None, why or "", left if receiver.kind == "mail" else ()

    def _post(self, receiver: Receiver, fields: Any, notice_id: str) -> tuple[bool, str]:
        token = receiver.token
        if receiver.token_file:
            try:
                token = (self._folder / SECRETS / receiver.token_file).read_text().strip()
            except (OSError, ValueError):
                return False, (f"the token's file {receiver.token_file} cannot be read in the "
                               f"folder {SECRETS} of the hub's data folder")
            if not token.isascii() or not token.isprintable() or " " in token:
                return False, f"in {receiver.token_file} stands no token"
        found: tuple[bool, str] = self._pool.apply(webhook.trial, (
            WebhookRequest.of(receiver.to, fields, token, notice_id, self._inside),))
        return found

    # -- the dead-man's switch

    def _beat(self, mono: float) -> None:
        """Not kept and not repeated: that it does not come is what it says."""
        for receiver in self.receivers.values():
            lane = self.lanes[receiver.id]
            if receiver.kind != "heartbeat" or not receiver.is_on or lane.is_busy or (
                    mono - lane.beat_mono < BEAT_EVERY_S):
                continue
            watcher = self._watcher
            if watcher is None or mono - watcher.stepped_mono > WATCHED_WITHIN_S:
                continue  # rules are not watched: then this must not say that all is well
            lane.beat_mono, lane.is_busy = mono, True
            gevent.spawn(self._deliver_beat, receiver, lane, len(watcher.firing()))

    def _deliver_beat(self, receiver: Receiver, lane: ReceiverStatus, firing: int) -> None:
        try:
            is_taken, words = self._post(receiver, self._beat_fields(firing), "")
        finally:
            lane.is_busy = False
        if is_taken:
            lane.sent, lane.told_at, lane.error = lane.sent + 1, time.time(), ""
        else:
            lane.failed, lane.error, lane.error_at = lane.failed + 1, words, time.time()

    def _beat_fields(self, firing: int) -> dict[str, Any]:
        return {"version": 1, "status": "alive", "at": time.time(), "firing": firing,
                "waiting": len(self.waiting), "url": self._url(),
                "text": "gpudeck watches its rules. When this stops coming, it does not."}

    # -- receivers

    def add(self, actor: Actor, asked: Receiver) -> Receiver:
        self._may(actor, "POST /api/v1/receivers")
        if len(self.receivers) >= MOST_RECEIVERS:
            raise InvalidChangeError(f"at most {MOST_RECEIVERS} receivers fit")
        made_one = replace(asked, id="r" + secrets.token_hex(6))
        self._keep(actor, made_one, "add")
        self.lanes[made_one.id] = ReceiverStatus()
        return made_one

    def change(self, actor: Actor, receiver_id: str, asked: Receiver) -> Receiver:
        """What is not said of a URL and a token stays: they are never shown."""
        self._may(actor, "PUT /api/v1/receivers/<receiver_id>")
        known = self._known(receiver_id)
        if asked.kind != known.kind:
            raise InvalidChangeError("what kind of receiver it is does not change: add another one")
        wanted = replace(asked, id=known.id, to=asked.to or known.to)
        if not asked.token and not asked.token_file and wanted.to == known.to:
            wanted = replace(wanted, token=known.token, token_file=known.token_file)
        self._keep(actor, wanted, "change")
        return wanted

    def _keep(self, actor: Actor, wanted: Receiver, action: str) -> None:
        why = flaw(wanted) or self._deaf(wanted)
        if why is not None:
            raise InvalidChangeError(why)
        if wanted.kind in ("mail", "owners") and self._smtp is None:
            raise InvalidChangeError("no mail server is set up: start the hub with --smtp-host and "
                                     "--smtp-from")
        with self._auditor.change("receiver", by(actor) | {"action": action, "detail": {
                "receiver": wanted.id, "kind": wanted.kind, "name": wanted.name,
                "is_on": wanted.is_on}}):
            self._store.put_receiver(wanted)
        self.receivers[wanted.id] = wanted
        self.groups.refit(wanted)
        if self._watcher is not None:
            for alert in self._watcher.firing():
                self._take(alert, time.time())

    def _deaf(self, wanted: Receiver) -> str | None:
        """Who hears of a rule that is not there hears of nothing, and nobody would know."""
        before = self.receivers.get(wanted.id)
        known = () if before is None else before.rules
        unknown = [each for each in wanted.rules if each not in known and self._find(each) is None]
        return f"there is no rule {', '.join(unknown)}: it would hear of nothing" if (
            unknown) else None

    def remove(self, actor: Actor, receiver_id: str) -> None:
        self._may(actor, "DELETE /api/v1/receivers/<receiver_id>")
        known = self._known(receiver_id)
        with self._auditor.change("receiver", by(actor) | {"action": "remove", "detail": {
                "receiver": known.id, "kind": known.kind, "name": known.name}}):
            self._store.drop_receiver(known.id)
        del self.receivers[known.id], self.lanes[known.id]
        self.groups.forget_receiver(known.id)
        self.waiting = {notice_id: each for notice_id, each in self.waiting.items()
                        if each.notice.receiver != known.id}

    def try_out(self, actor: Actor, receiver_id: str) -> tuple[bool, str]:
        """Sends a notice that is none, now, and says what became of it."""
        self._may(actor, "POST /api/v1/receivers/<receiver_id>/test")
        receiver = self._known(receiver_id)
        if receiver.kind == "heartbeat":
            is_taken, words = self._post(receiver, self._beat_fields(0), "")
        elif receiver.kind == "webhook":
            is_taken, words = self._post(receiver, test_fields(receiver, self._url()), "")
        else:
            is_taken, words = self._test_mail(actor, receiver)
        self._auditor.note("receiver", by(actor) | {
            "action": "test", "outcome": "done" if is_taken else "failed",
            "detail": {"receiver": receiver.id}, "sentence": words})
        return is_taken, words

    def _test_mail(self, actor: Actor, receiver: Receiver) -> tuple[bool, str]:
        if self._smtp is None:
            return False, "no mail server is set up (setting smtp_host)"
        to = ", ".join(receiver.addresses)
        if receiver.kind == "owners":
            own = (self._addresses.of(name) for name in actor.scope.unix_names)
            to = next((address for address in own if address is not None), "")
            if not to:
                return False, ("it would be written to you, and no address of your own Unix name "
                               "is known: name it among your Unix names, and its address")
        fields = test_fields(receiver, self._url())
        _, why = self._pool.apply(mail.attempt, (self._smtp, MailMessage(
            to, "[gpudeck] A test: nothing fires", fields["text"] + "\n")))
        return why is None, why or f"the mail server took it, to {to}"

    def retry(self, actor: Actor, notice_id: str) -> None:
        self._may(actor, "POST /api/v1/notices/<notice_id>/retry")
        each = self._waiting_one(notice_id)
        again(each, time.time())
        self._store.put(each)

    def drop(self, actor: Actor, notice_id: str) -> None:
        self._may(actor, "DELETE /api/v1/notices/<notice_id>")
        each = self._waiting_one(notice_id)
        with self._auditor.change("notice", by(actor) | {"action": "drop", "detail": {
                "notice": notice_id, "receiver": each.notice.receiver}}):
            self._forget(each)

    def _waiting_one(self, notice_id: str) -> QueuedNotification:
        if notice_id not in self.waiting:
            raise NotFoundError("there is no such notice waiting: it was taken, or dropped")
        return self.waiting[notice_id]

    def _known(self, receiver_id: str) -> Receiver:
        if receiver_id not in self.receivers:
            raise NotFoundError(f"there is no receiver {receiver_id[:80]!r}")
        return self.receivers[receiver_id]

    def _may(self, actor: Actor, verb: str) -> None:
        refusal = may(actor, verb, now=time.time())
        if refusal is not None:
            raise RefusedError(refusal)


def pace_of(settings: HubSettings) -> NotificationTiming:
    return NotificationTiming(settings.notice_wait_s, settings.notice_interval_s,
                              settings.notice_repeat_s)


def _ready(rule: Rule) -> CompiledRule | None:
    try:
        return check(rule)
    except InvalidRuleError:  # by an older grammar
        return None


def fields_of(notice: AlertNotification, receiver: Receiver) -> dict[str, Any]:
    """What a webhook is sent. `text` is what chats show."""
    found: dict[str, Any] = msgspec.to_builtins(notice)
    del found["words"]
    return {"version": 1, "status": "firing" if notice.firing else "resolved", **found,
            "receiver": receiver.name, "text": chat_text(notice)}


def test_fields(receiver: Receiver, url: str) -> dict[str, Any]:
    return {"version": 1, "status": "test", "receiver": receiver.name, "url": f"{url}/alerts",
            "alerts": [], "text": "This is a test of gpudeck: nothing fires, and notices come here."
            f"\n\nAll alerts: {url}/alerts"}
