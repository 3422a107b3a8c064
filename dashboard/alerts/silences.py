"""Silences: who is not notified, and not acted on, until when."""

import secrets
import time

from msgspec.structs import replace

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from ..fleet.fleet import Fleet
from .active_rules import ActiveRules
from .core.firing_alerts import Alert
from .core.silence import MOST_S, Silence
from .store import AlertsStore

MOST_SILENCES = 1_000


class SilenceService:
    """Creates and ends silences, and says which of them match an alert."""

    def __init__(self, store: AlertsStore, auditor: AuditRecorder, fleet: Fleet,
                 rules: ActiveRules) -> None:
        self._store = store
        self._auditor = auditor
        self._fleet = fleet
        self._rules = rules
        self.silences = store.silences()

    def create(self, actor: Actor, asked: Silence) -> Silence:
        require(actor, "POST /api/v1/silences")
        self._check(asked, time.time())
        made = replace(asked, id="z" + secrets.token_hex(8), by=actor.name)
        self._save(actor, made, "silence")
        return made

    def _check(self, asked: Silence, now: float) -> None:
        if not any((asked.rule, asked.node, asked.target, asked.user)):
            raise InvalidChangeError("name what to silence: a rule, a node, a target or a user")
        if not asked.because.strip():
            raise InvalidChangeError("give a reason (because), so that others know when they may "
                                     "end it")
        if asked.rule and asked.rule not in self._rules.rules:
            raise NotFoundError(f"there is no rule {asked.rule[:80]!r}")
        if not now < asked.until <= now + MOST_S or asked.begins >= asked.until:
            raise InvalidChangeError("a silence must end in the future, within 30 days")
        if asked.node and not any(asked.node in (node_id, node.hello.host) for node_id, node in
                                  self._fleet.nodes.items()):
            raise NotFoundError(f"there is no node {asked.node[:80]!r}: give its host name, or "
                                "its id")
        if sum(not each.is_over(now) for each in self.silences.values()) >= MOST_SILENCES:
            raise InvalidChangeError(f"at most {MOST_SILENCES} silences are allowed")

    def end(self, actor: Actor, silence_id: str) -> None:
        require(actor, "DELETE /api/v1/silences/<silence_id>")
        known = self.silences.get(silence_id)
        if known is None or known.is_over(time.time()):
            raise NotFoundError("there is no such silence, or it has ended")
        self._save(actor, replace(known, ended_at=time.time()), "end silence")

    def _save(self, actor: Actor, silence: Silence, action: str) -> None:
        with self._auditor.change("silence", actor_fields(actor) | {"action": action, "detail": {
                "silence": silence.id, "what": silence.what, "because": silence.because,
                "rule": silence.rule, "node": silence.node,
                "target": silence.target, "user": silence.user, "until": silence.until}}):
            self._store.put_silence(silence)
        self.silences[silence.id] = silence

    def active(self, now: float) -> list[Silence]:
        return [each for each in self.silences.values() if each.is_on(now)]

    def matching(self, alert: Alert, now: float) -> list[str]:
        """The ids of those that silence it."""
        return [each.id for each in self.active(now) if each.matches(alert)]
