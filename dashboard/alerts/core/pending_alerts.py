"""Alerts that may fire soon: conditions that are met, but not for long enough yet. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

import numpy as np

from .firing_alerts import Alert, AlertTarget
from .rule import Of
from .rule_tracker import RuleTracker
from .state_machine import AlertPhase

MOST_PENDING = 200  # of one rule


class NamedTargets(Protocol):
    def name(self, row: int) -> AlertTarget: ...


def pending_alerts(watches: Mapping[str, RuleTracker], targets: Mapping[Of, NamedTargets],
                   only: Collection[str] | None = None) -> Iterator[tuple[int, Alert]]:
    """Yield pending alerts, each with its row; `only`: of these rules. `fired_at` lies in the
    future."""
    for rule_id in watches if only is None else [listed for listed in only if listed in watches]:
        watch = watches[rule_id]
        machine, rule = watch.machine, watch.ready.rule
        rule_targets = targets.get(rule.of)
        if rule_targets is None:
            continue
        for row in map(int, np.flatnonzero(machine.phase == AlertPhase.PENDING)[:MOST_PENDING]):
            since, value = float(machine.since[row]), float(watch.last_values.values[row])
            target = rule_targets.name(row)
            yield row, Alert(
                f"{rule_id}/{target.key}/pending", rule_id, watch.ready.version, rule.title,
                rule.severity, rule.of, target, "pending", since, since + watch.ready.for_s,
                since, None if np.isnan(value) else value)
