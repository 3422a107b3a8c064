"""The guard that every change of a rule passes before it is in force."""

import time
from collections.abc import Callable, Iterable

from ..access.policy import Actor
from ..errors import InvalidChangeError
from .core.promotion import (
    ACTING,
    PromotionRequest,
    RehearsalEvidence,
    RuleRevision,
    as_put,
    refusal,
)
from .core.rule import Rule, version
from .store import AlertsStore


class PromotionPolicy:
    """Decides which mode a rule may have next. `person_of`: the person behind a token, who may not
    approve their own rule by it. `rehearsals_of`: the stored rehearsals of one rule."""

    def __init__(self, store: AlertsStore, person_of: Callable[[Actor], str],
                 rehearsals_of: Callable[[str], Iterable[RehearsalEvidence]],
                 needs_second: bool, proof_s: float) -> None:
        self._store = store
        self._person_of = person_of
        self._rehearsals_of = rehearsals_of
        self._needs_second = needs_second
        self._proof_s = proof_s

    def admit(self, actor: Actor, before: Rule | None, wanted: Rule) -> Rule:
        """The rule to put in force: an edit may lower its mode. Raises InvalidChangeError."""
        if before is None and wanted.mode in ACTING:
            raise InvalidChangeError("a new rule begins in observe or dry_run: try it out first")
        admitted = as_put(before, wanted)
        if before is not None and version(before) == version(admitted):
            self._check_promotion(actor, before, admitted)
        return admitted

    def _check_promotion(self, actor: Actor, before: Rule, wanted: Rule) -> None:
        """The meaning is the same; another mode, or another end, is a promotion."""
        names = frozenset({actor.name, self._person_of(actor)})
        why = refusal(PromotionRequest(
            before, wanted.mode, wanted.expires,
            [RuleRevision(rule, by, at) for _, by, at, _, rule in self._store.versions(before.id)],
            self._rehearsals_of(before.id), names, self._needs_second, time.time(), self._proof_s))
        if why is not None:
            raise InvalidChangeError(why)
