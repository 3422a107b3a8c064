"""Changes of rules: the caller's rights and the guard of modes, the audit log, then in force."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from ..access.policy import Actor, actor_fields
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from .active_rules import ActiveRules
from .core.promotion import (
    ACTING,
    PromotionRequest,
    RehearsalEvidence,
    RuleRevision,
    as_put,
    refusal,
)
from .core.rule import InvalidRuleError, Mode, Rule, check, version
from .store import AlertsStore

PUT_RULE = "PUT /api/v1/rules/<rule_id>"
RANK: dict[Mode, int] = {"observe": 0, "dry_run": 1, "confirm": 2, "auto": 3}
MOST_RULES = 200


@dataclass(frozen=True, slots=True)
class RuleAdmin:
    """Puts, promotes and removes rules. `person_of`: the author of a rule put with a token is the
    person behind the token, who may not approve the rule with that token either. `rehearsals_of`:
    the stored rehearsals of one rule."""

    rules: ActiveRules
    store: AlertsStore
    auditor: AuditRecorder
    person_of: Callable[[Actor], str]
    rehearsals_of: Callable[[str], Iterable[RehearsalEvidence]]
    needs_second: bool
    proof_s: float

    def put(self, actor: Actor, rule: Rule) -> int:
        require(actor, PUT_RULE)
        check(rule)
        _, before = self.rules.rules.get(rule.id, (0, None))
        rule = self._admit(actor, before, rule)
        ready = check(rule)
        if before is None and len(self.rules.rules) >= MOST_RULES:
            raise InvalidChangeError(f"at most {MOST_RULES} rules are allowed")
        return self._save(actor, rule, {"action": "put", "detail": {
            "rule": rule.id, "version": ready.version, "mode": rule.mode}})

    def set_mode(self, actor: Actor, rule_id: str, mode: Mode, expires: str | None) -> int:
        """Set the mode and the expiry day of a rule. An operator may lower a mode at once; raising
        it, or changing the expiry, takes an admin with a fresh password."""
        rule = self._find_rule(rule_id)
        revised = replace(rule, mode=mode, expires=rule.expires if expires is None else expires)
        is_up = RANK[mode] > RANK[rule.mode] or revised.expires != rule.expires
        require(actor, PUT_RULE if is_up else "POST /api/v1/rules/<rule_id>/mode")
        admitted = self._admit(actor, rule, revised)
        try:
            ready = check(admitted)
        except InvalidRuleError as error:
            raise InvalidChangeError(str(error)) from None
        return self._save(actor, admitted, {"action": "mode", "detail": {
            "rule": rule_id, "version": ready.version, "from": rule.mode, "to": admitted.mode,
            "expires": admitted.expires}})

    def _admit(self, actor: Actor, before: Rule | None, revised: Rule) -> Rule:
        """Return the rule to put in force: an edit may lower its mode."""
        if before is None and revised.mode in ACTING:
            raise InvalidChangeError("a new rule starts in observe or dry_run: try it out first")
        admitted = as_put(before, revised)
        if before is not None and version(before) == version(admitted):
            self._check_promotion(actor, before, admitted)
        return admitted

    def _check_promotion(self, actor: Actor, before: Rule, revised: Rule) -> None:
        """Check a revision with the same meaning: another mode or expiry is a promotion."""
        puts = [RuleRevision(rule, author, at)
                for _, author, at, _, rule in self.store.versions(before.id)]
        why = refusal(PromotionRequest(
            before, revised.mode, revised.expires, puts, self.rehearsals_of(before.id),
            frozenset({actor.name, self.person_of(actor)}), self.needs_second, time.time(),
            self.proof_s))
        if why is not None:
            raise InvalidChangeError(why)

    def _save(self, actor: Actor, rule: Rule, fields: dict[str, object]) -> int:
        with self.auditor.change("rule", actor_fields(actor) | fields):
            number = self.store.put_rule(rule, self.person_of(actor), time.time())
        self.rules.reload()
        return number

    def remove(self, actor: Actor, rule_id: str) -> None:
        require(actor, "DELETE /api/v1/rules/<rule_id>")
        rule = self._find_rule(rule_id)
        with self.auditor.change("rule", actor_fields(actor) | {"action": "remove", "detail": {
                "rule": rule_id}}, takes_away=True):
            self.store.put_rule(rule, actor.name, time.time(), is_there=False)
        self.rules.reload()

    def _find_rule(self, rule_id: str) -> Rule:
        if rule_id not in self.rules.rules:
            raise NotFoundError(f"there is no rule {rule_id[:80]!r}")
        return self.rules.rules[rule_id][1]
