"""Mail to the owners of tasks about what is done to them. In native threads, so that a slow server
slows nobody else; at least once, within limits."""

import logging
from collections.abc import Callable
from typing import Any

import gevent
from gevent.queue import Full, Queue

from ..automation.ladder_steps import LadderNotification
from .addresses import OwnerAddresses
from .mail import SmtpSettings, trial
from .owner_words import MailMessage, OwnerActionNotification, mail_of, unreached

log = logging.getLogger("gpudeck.notify")

WAITING_MOST = 1_000
AGAIN_AFTER_S = (5.0, 30.0, 120.0)


class OwnerMailer:
    def __init__(self, smtp: SmtpSettings | None, addresses: OwnerAddresses, url: Callable[[], str],
                 note: Callable[[str, dict[str, Any]], None],
                 again_after_s: tuple[float, ...] = AGAIN_AFTER_S) -> None:
        self._smtp = smtp
        self._addresses = addresses
        self._url = url
        self._note = note
        self._again_after_s = again_after_s
        self._waiting: Queue[tuple[MailMessage, OwnerActionNotification]] = Queue(WAITING_MOST)

    def unreached(self, owner: str | None) -> str | None:
        """For the preview: why this owner hears of it at terminals only."""
        return unreached(owner, self._smtp is not None, self._addresses.of(owner) is not None)

    def tell(self, owner: str | None, told: OwnerActionNotification) -> bool:
        """Whether a mail is on its way. It waits for nothing."""
        to = self._addresses.of(owner)
        if self._smtp is None or to is None:
            return False
        try:
            self._waiting.put_nowait((mail_of(to, told, self._url()), told))
        except Full:
            self._outcome(to, told, "more mail is waiting than is kept")
            return False
        return True

    def notify_of_ladder(self, notification: LadderNotification) -> None:
        """Owners of a task get a mail with the command, as for any action; all others, here."""
        intent = notification.intent
        if not intent.task_ids:
            self.tell(intent.owner, OwnerActionNotification(
                "notify", intent.host or "the fleet", intent.target, None, intent.cause,
                intent.sentence, notification.text))

    def run(self) -> None:
        while True:
            mail, told = self._waiting.get()
            gevent.spawn(self._deliver, mail, told)  # one that has to wait holds up no other

    def _deliver(self, mail: MailMessage, told: OwnerActionNotification) -> None:
        assert self._smtp is not None
        why: str | None = None
        for wait_s in (0.0, *self._again_after_s):
            gevent.sleep(wait_s)
            why = gevent.get_hub().threadpool.apply(trial, (self._smtp, mail))
            if why is None:
                break
            log.warning("mail_not_sent reason=%r", why)
        self._outcome(mail.to, told, why)

    def _outcome(self, to: str, told: OwnerActionNotification, why: str | None) -> None:
        ended = "was told by mail" if why is None else f"could not be told by mail: {why}"[:300]
        self._note("notice", {
            "action": told.action, "actor": told.by, "host": told.host, "task_id": told.task_id,
            "outcome": "done" if why is None else "failed", "sentence": f"{to} {ended}"})
