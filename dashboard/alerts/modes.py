"""Who lets a Rule do what: every change of a Rule's mode comes through here."""

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ..access.policy import Actor, RefusedError, may
from ..access.service import AccountService
from ..errors import InvalidChangeError, NotFoundError
from .core.promotion import (
    ACTING,
    PROVEN_S,
    PromotionRequest,
    RehearsalEvidence,
    RuleRevision,
    as_put,
    refusal,
)
from .core.rule import InvalidRuleError, Mode, Rule, version
from .service import AlertService
from .store import AlertsStore

PUT_RULE = "PUT /api/v1/rules/<rule_id>"
RANK: dict[Mode, int] = {"observe": 0, "dry_run": 1, "confirm": 2, "auto": 3}


class RuleModeService:
    """`rehearsals`: of one rule, those that were kept."""

    def __init__(self, desk: AlertService, store: AlertsStore, accounts: AccountService,
                 needs_second: bool,
                 proof_s: float = PROVEN_S) -> None:
        self._desk = desk
        self._store = store
        self._accounts = accounts
        self._needs_second = needs_second
        self._proof_s = proof_s
        self.rehearsals: Callable[[str], Iterable[RehearsalEvidence]] = lambda rule_id: ()

    def gate(self, actor: Actor, before: Rule | None, wanted: Rule) -> Rule:
        """What is put in force of what was asked for. Raises CannotChange."""
        if before is None and wanted.mode in ACTING:
            raise InvalidChangeError("a new rule begins in observe or dry_run: try it out first")
        found = as_put(before, wanted)
        if before is not None and version(before) == version(found):
            self._allow(actor, before, found)
        return found

    def _allow(self, actor: Actor, before: Rule, wanted: Rule) -> None:
        """The meaning is the same; another mode, or another end, is a promotion."""
        names = frozenset({actor.name, self._accounts.behind(actor)})
        why = refusal(PromotionRequest(
            before, wanted.mode, wanted.expires,
            [RuleRevision(rule, by, at) for _, by, at, _, rule in self._store.versions(before.id)],
            self.rehearsals(before.id), names, self._needs_second, time.time(), self._proof_s))
        if why is not None:
            raise InvalidChangeError(why)

    def set_mode(self, actor: Actor, rule_id: str, mode: Mode, expires: str | None) -> int:
        """Down is quick, for operators; up is for an admin with a fresh password."""
        found = self._desk.rules.get(rule_id)
        if found is None:
            raise NotFoundError(f"there is no rule {rule_id[:80]!r}")
        _, rule = found
        wanted = replace(rule, mode=mode, expires=rule.expires if expires is None else expires)
        is_up = RANK[mode] > RANK[rule.mode] or wanted.expires != rule.expires
        denial = may(actor, PUT_RULE if is_up else "POST /api/v1/rules/<rule_id>/mode",
                     now=time.time())
        if denial is not None:
            raise RefusedError(denial)
        try:
            return self._desk.put_mode(actor, rule, self.gate(actor, rule, wanted))
        except InvalidRuleError as error:
            raise InvalidChangeError("; ".join(map(str, error.problems))) from None
