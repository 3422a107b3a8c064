"""Changes of rules: rights, guard, record, and then in force."""

import time
from collections.abc import Callable

from msgspec.structs import replace

from ..access.policy import Actor, by
from ..access.rights import require
from ..audit.recorder import AuditRecorder
from ..errors import InvalidChangeError, NotFoundError
from .active_rules import ActiveRules
from .core.rule import InvalidRuleError, Mode, Rule, check
from .promotion_policy import PromotionPolicy
from .store import AlertsStore

PUT_RULE = "PUT /api/v1/rules/<rule_id>"
RANK: dict[Mode, int] = {"observe": 0, "dry_run": 1, "confirm": 2, "auto": 3}
MOST_RULES = 200


class RuleAdmin:
    """Puts, promotes and removes rules. `person_of`: the author of a rule put by a token is the
    person behind it."""

    def __init__(self, rules: ActiveRules, policy: PromotionPolicy, store: AlertsStore,
                 auditor: AuditRecorder, person_of: Callable[[Actor], str]) -> None:
        self._rules = rules
        self._policy = policy
        self._store = store
        self._auditor = auditor
        self._person_of = person_of

    def put(self, actor: Actor, rule: Rule) -> int:
        require(actor, PUT_RULE)
        check(rule)
        _, before = self._rules.rules.get(rule.id, (0, None))
        rule = self._policy.admit(actor, before, rule)
        ready = check(rule)
        if before is None and len(self._rules.rules) >= MOST_RULES:
            raise InvalidChangeError(f"at most {MOST_RULES} rules fit")
        return self._save(actor, rule, {"action": "put", "detail": {
            "rule": rule.id, "version": ready.version, "mode": rule.mode}})

    def set_mode(self, actor: Actor, rule_id: str, mode: Mode, expires: str | None) -> int:
        """Down is quick, for operators; up is for an admin with a fresh password."""
        rule = self._known(rule_id)
        wanted = replace(rule, mode=mode, expires=rule.expires if expires is None else expires)
        is_up = RANK[mode] > RANK[rule.mode] or wanted.expires != rule.expires
        require(actor, PUT_RULE if is_up else "POST /api/v1/rules/<rule_id>/mode")
        admitted = self._policy.admit(actor, rule, wanted)
        try:
            ready = check(admitted)
        except InvalidRuleError as error:
            raise InvalidChangeError("; ".join(map(str, error.problems))) from None
        return self._save(actor, admitted, {"action": "mode", "detail": {
            "rule": rule_id, "version": ready.version, "from": rule.mode, "to": admitted.mode,
            "expires": admitted.expires}})

    def _save(self, actor: Actor, rule: Rule, fields: dict[str, object]) -> int:
        with self._auditor.change("rule", by(actor) | fields):
            number = self._store.put_rule(rule, self._person_of(actor), time.time())
        self._rules.reload()
        return number

    def remove(self, actor: Actor, rule_id: str) -> None:
        require(actor, "DELETE /api/v1/rules/<rule_id>")
        rule = self._known(rule_id)
        with self._auditor.change("rule", by(actor) | {"action": "remove", "detail": {
                "rule": rule_id}}, takes_away=True):
            self._store.put_rule(rule, actor.name, time.time(), is_there=False)
        self._rules.reload()

    def _known(self, rule_id: str) -> Rule:
        if rule_id not in self._rules.rules:
            raise NotFoundError(f"there is no rule {rule_id[:80]!r}")
        return self._rules.rules[rule_id][1]
