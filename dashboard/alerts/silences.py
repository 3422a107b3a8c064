"""Silences: matching alerts cause no notifications and no actions until a given time."""

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
    """Creates and ends silences, and finds those that match an alert."""

    def __init__(self, store: AlertsStore, auditor: AuditRecorder, fleet: Fleet,
                 rules: ActiveRules) -> None:
        self._store = store
        self._auditor = auditor
        self._fleet = fleet
        self._rules = rules
        self.silences = store.silences()

    def create(self, actor: Actor, draft: Silence) -> Silence:
        require(actor, "POST /api/v1/silences")
        self._check(draft, time.time())
        silence = replace(draft, id="z" + secrets.token_hex(8), by=actor.name)
        self._save(actor, silence, "silence")
        return silence

    def _check(self, draft: Silence, now: float) -> None:
        if not any((draft.rule, draft.node, draft.target, draft.user)):
            raise InvalidChangeError("name what to silence: a rule, a node, a target or a user")
        if not draft.because.strip():
            raise InvalidChangeError("give a reason (because), so that others know when they may "
                                     "end it")
        if draft.rule and draft.rule not in self._rules.rules:
            raise NotFoundError(f"there is no rule {draft.rule[:80]!r}")
        if not now < draft.until <= now + MOST_S or draft.begins >= draft.until:
            raise InvalidChangeError("a silence must end in the future, within 30 days")
        if draft.node and not any(draft.node in (node_id, node.hello.host) for node_id, node in
                                  self._fleet.nodes.items()):
            raise NotFoundError(f"there is no node {draft.node[:80]!r}: give its host name, or "
                                "its id")
        if sum(not silence.is_over(now) for silence in self.silences.values()) >= MOST_SILENCES:
            raise InvalidChangeError(f"at most {MOST_SILENCES} silences are allowed")

    def end(self, actor: Actor, silence_id: str) -> None:
        require(actor, "DELETE /api/v1/silences/<silence_id>")
        silence = self.silences.get(silence_id)
        if silence is None or silence.is_over(time.time()):
            raise NotFoundError("there is no such silence, or it has ended")
        self._save(actor, replace(silence, ended_at=time.time()), "end silence")

    def _save(self, actor: Actor, silence: Silence, action: str) -> None:
        with self._auditor.change("silence", actor_fields(actor) | {"action": action, "detail": {
                "silence": silence.id, "what": silence.what, "because": silence.because,
                "rule": silence.rule, "node": silence.node,
                "target": silence.target, "user": silence.user, "until": silence.until}}):
            self._store.put_silence(silence)
        self.silences[silence.id] = silence

    def active(self, now: float) -> list[Silence]:
        return [silence for silence in self.silences.values() if silence.is_on(now)]

    def matching(self, alert: Alert, now: float) -> list[str]:
        """Return the ids of the active silences that match an alert."""
        return [silence.id for silence in self.active(now) if silence.matches(alert)]
