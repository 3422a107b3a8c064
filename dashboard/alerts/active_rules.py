"""The rules in force: one copy in memory for all that evaluate, change or show them."""

import logging
import time
from functools import cache

from ..runtime.dispatcher import Dispatcher
from .core.rule import CompiledRule, InvalidRuleError, Rule, check
from .events import RulesChanged
from .rules_file import PACK, parse
from .store import AlertsStore

log = logging.getLogger("gpudeck.alerts")


@cache
def shipped_rules() -> tuple[Rule, ...]:
    return tuple(ready.rule for ready in parse(PACK.read_text()).rules.values())


class ActiveRules:
    """The rules in force by id, each with its version number. `ready`: those that compile."""

    def __init__(self, store: AlertsStore, events: Dispatcher) -> None:
        self._store = store
        self._events = events
        self.rules: dict[str, tuple[int, Rule]] = {}
        self.ready: dict[str, CompiledRule] = {}
        if not store.has_any_rule():
            self._add_pack()
        self.reload()

    def _add_pack(self) -> None:
        """Store the shipped rules in a hub that never had a rule. None of them acts."""
        now = time.time()
        for shipped in shipped_rules():
            self._store.put_rule(shipped, "gpudeck", now)

    def reload(self) -> None:
        """Read the stored rules again; to be called after every change of them."""
        rules, compiled = self._store.rules(), {}
        for rule_id, (_, rule) in rules.items():
            try:
                compiled[rule_id] = check(rule)
            except InvalidRuleError as error:  # in an older grammar: listed as failing
                log.warning("rule_not_ready rule=%s why=%r", rule_id, str(error))
        self.rules, self.ready = rules, compiled
        self._events.dispatch(RulesChanged())
