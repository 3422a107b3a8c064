"""Mail to task owners about actions on their tasks. In native threads, so that a slow server delays
nobody else; at least once, within limits."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.event import Event

from ..automation.intents import ActionIntent
from .addresses import OwnerAddresses
from .mail import SmtpSettings, attempt
from .owner_words import MailMessage, OwnerActionNotification, mail_of, unreached

log = logging.getLogger("gpudeck.notifications")

WAITING_MOST = 1_000
AGAIN_AFTER_S = (5.0, 30.0, 120.0)


@dataclass(frozen=True, slots=True)
class OwnerMailer:
    smtp: SmtpSettings | None
    addresses: OwnerAddresses
    url: Callable[[], str]
    note: Callable[[str, dict[str, Any]], None]
    again_after_s: tuple[float, ...] = AGAIN_AFTER_S
    wake: Event = field(init=False, default_factory=Event)
    _waiting: deque[tuple[MailMessage, OwnerActionNotification]] = field(
        init=False, default_factory=deque)

    def unreached(self, owner: str | None) -> str | None:
        """Return, for the preview, why this owner will be notified on terminals only; None: also by
        mail."""
        return unreached(owner, self.smtp is not None, self.addresses.of(owner) is not None)

    def send(self, owner: str | None, notification: OwnerActionNotification) -> bool:
        """Queue a mail without waiting, and return whether one was queued."""
        to = self.addresses.of(owner)
        if self.smtp is None or to is None:
            return False
        if len(self._waiting) >= WAITING_MOST:
            self._outcome(to, notification, "too much mail is waiting")
            return False
        self._waiting.append((mail_of(to, notification, self.url()), notification))
        self.wake.set()
        return True

    def notify_of_ladder(self, intent: ActionIntent, text: str) -> None:
        """Notify an owner without tasks. Owners of a task get the mail with the command, as for any
        action."""
        if not intent.task_ids:
            self.send(intent.owner, OwnerActionNotification(
                "notify", intent.host or "the fleet", intent.target, None, intent.cause,
                intent.sentence, text))

    def step(self, _now: float, _mono: float) -> None:
        while self._waiting:
            gevent.spawn(self._deliver, *self._waiting.popleft())  # so that none delays another

    def _deliver(self, mail: MailMessage, notification: OwnerActionNotification) -> None:
        assert self.smtp is not None
        why: str | None = None
        for wait_s in (0.0, *self.again_after_s):
            gevent.sleep(wait_s)
            _, why = gevent.get_hub().threadpool.apply(attempt, (self.smtp, mail))
            if why is None:
                break
            log.warning("mail_not_sent reason=%r", why)
        self._outcome(mail.to, notification, why)

    def _outcome(self, to: str, notification: OwnerActionNotification, why: str | None) -> None:
        outcome = ("was notified by mail" if why is None
                   else f"could not be notified by mail: {why}"[:300])
        self.note("notice", {
            "action": notification.action, "actor": notification.by, "host": notification.host,
            "task_id": notification.task_id, "outcome": "done" if why is None else "failed",
            "sentence": f"{to} {outcome}"})
