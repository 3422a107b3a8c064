"""Mail to the owners of tasks about what is done to them. In native threads, so that a slow server
slows nobody else; at least once, within limits."""

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

log = logging.getLogger("gpudeck.notify")

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
        """For the preview: why this owner hears of it at terminals only."""
        return unreached(owner, self.smtp is not None, self.addresses.of(owner) is not None)

    def tell(self, owner: str | None, told: OwnerActionNotification) -> bool:
        """Whether a mail is on its way. It waits for nothing."""
        to = self.addresses.of(owner)
        if self.smtp is None or to is None:
            return False
        if len(self._waiting) >= WAITING_MOST:
            self._outcome(to, told, "too much mail is waiting")
            return False
        self._waiting.append((mail_of(to, told, self.url()), told))
        self.wake.set()
        return True

    def notify_of_ladder(self, intent: ActionIntent, text: str) -> None:
        """Owners of a task get a mail with the command, as for any action; all others, here."""
        if not intent.task_ids:
            self.tell(intent.owner, OwnerActionNotification(
                "notify", intent.host or "the fleet", intent.target, None, intent.cause,
                intent.sentence, text))

    def step(self, _now: float, _mono: float) -> None:
        while self._waiting:
            gevent.spawn(self._deliver, *self._waiting.popleft())  # one holds up no other

    def _deliver(self, mail: MailMessage, told: OwnerActionNotification) -> None:
        assert self.smtp is not None
        why: str | None = None
        for wait_s in (0.0, *self.again_after_s):
            gevent.sleep(wait_s)
            _, why = gevent.get_hub().threadpool.apply(attempt, (self.smtp, mail))
            if why is None:
                break
            log.warning("mail_not_sent reason=%r", why)
        self._outcome(mail.to, told, why)

    def _outcome(self, to: str, told: OwnerActionNotification, why: str | None) -> None:
        ended = ("was notified by mail" if why is None
                 else f"could not be notified by mail: {why}"[:300])
        self.note("notice", {
            "action": told.action, "actor": told.by, "host": told.host, "task_id": told.task_id,
            "outcome": "done" if why is None else "failed", "sentence": f"{to} {ended}"})
