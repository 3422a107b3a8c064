"""Views of rules and alerts for the API, limited to what the caller may see."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gpudeck.contract.rungs import RungTarget
from gpudeck.contract.wire import Task

from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleet
from .active_rules import ActiveRules
from .core.firing_alerts import Alert, AlertTarget
from .core.momentary_rule import Basis, momentary
from .core.pending_alerts import pending_alerts
from .core.query import AlertQuery, FleetPart
from .core.rule import ACTED_ON, CompiledRule, Of, Rule, check
from .core.rule_tracker import RuleTracker
from .core.rung_facts import Place, job_of, rung_target
from .service import AlertService
from .store import MOST_LISTED, AlertPlace, AlertsStore
from .views import AlertDetail, RuleView, RungCheck, rule_view, rung_checks

KINDS: dict[Of, str] = {"gpu": "GPU", "owner": "user", "task": "task", "job": "job", "node": "node"}
UNSEEN = "not seen again since the hub was restarted"
MOST_RUNGS = 2_000  # targets on which a ladder is tried out
MOST_LOOKS = 20  # batches read for one page


@dataclass(frozen=True, slots=True)
class AlertQueries:
    """Reads the state of rules and alerts; changes nothing."""

    alerts: AlertService
    rules: ActiveRules
    store: AlertsStore
    fleet: Fleet

    # -- rules

    def all_rules(self) -> list[RuleView]:
        failing = self.alerts.failing()
        return [self._rule_view(rule_id, failing) for rule_id in sorted(self.rules.rules)]

    def rule(self, rule_id: str) -> RuleView | None:
        return self._rule_view(rule_id, self.alerts.failing()) if (
            rule_id in self.rules.rules) else None

    def _rule_view(self, rule_id: str, failing: dict[str, str]) -> RuleView:
        number, rule = self.rules.rules[rule_id]
        ready = self.rules.ready.get(rule_id)
        watch = self.alerts.evaluator.watches.get(rule_id)
        why_not = failing.get(rule_id, "" if watch is None else watch.trouble)
        return rule_view(rule, number, ready, watch, why_not)

    def try_out(self, rule: Rule) -> tuple[int, list[AlertTarget], Basis]:
        """Return the number of its targets, and those that meet its condition now."""
        momentary_rule, basis = momentary(rule)
        ready, now = check(momentary_rule), time.time()
        if not self.alerts.targets:
            return 0, [], basis
        # Collecting targets here would hide newcomers from the next step.
        targets, watch = self.alerts.targets[rule.of], RuleTracker(ready)
        look = watch.glance(targets, now)
        return int((watch.last_values.scope & targets.there).sum()), [
            targets.name(row) for row in map(int, np.flatnonzero(look.breach & targets.there))
        ], basis

    def warning(self, rule: Rule) -> str:
        """Return why a valid rule would never fire in the fleet as it is now; empty if it may."""
        if rule.of not in KINDS or rule.of not in self.alerts.targets or self.try_out(rule)[0]:
            return ""
        return (f"its scope {rule.scope!r} matches no {KINDS[rule.of]} at the moment: it would "
                "never fire")

    def refused_rungs(self, ready: CompiledRule, visible: VisibleFleet) -> list[RungCheck]:
        """Return the steps of its ladder that its targets, as they are now, would refuse."""
        if not ready.has_ladder:
            return []
        dos, targets = [do for do, _ in ready.steps], [*self._rung_targets(ready, visible)]
        if targets:
            return rung_checks(dos, targets, ready.rule.of)
        nodes = [rung_target(self.fleet, node_id, (), ()) for node_id, node
                 in self.fleet.nodes.items() if node.connected and visible.sees_node(node_id)]
        return rung_checks(dos, nodes, "node")

    def _rung_targets(self, ready: CompiledRule, visible: VisibleFleet) -> Iterator[RungTarget]:
        targets, nodes = self.alerts.targets.get(ready.rule.of), self.fleet.nodes
        if targets is None or ready.rule.of not in ACTED_ON:
            return
        jobs: dict[Place, list[Task]] = {}
        for node_id, node in nodes.items():
            for task in node.tasks.values():
                jobs.setdefault(job_of(node_id, task), []).append(task)
        in_scope = targets.there if ready.scope is None else (
            targets.there & targets.in_scope(ready.scope))
        for row in np.flatnonzero(in_scope)[:MOST_RUNGS].tolist():
            tasks = [(node_id, nodes[node_id].tasks[task_id])
                     for node_id, task_id in targets.matters_to(row)
                     if (node_id in nodes and task_id in nodes[node_id].tasks
                         and visible.sees_node(node_id))]
            if tasks:
                yield rung_target(self.fleet, tasks[0][0], tasks, jobs[job_of(*tasks[0])])

    # -- alerts

    def open(self) -> list[Alert]:
        return [*self.alerts.firing(), *self.alerts.restart.waiting()]

    def unseen(self) -> dict[str, AlertDetail]:
        """Return, by alert id, why nothing is done about alerts from before a restart."""
        return {alert.id: AlertDetail([UNSEEN]) for alert in self.alerts.restart.waiting()}

    def pending(self) -> list[Alert]:
        """Return alerts whose condition is met but not for long enough yet; the next to fire
        first."""
        pending = pending_alerts(self.alerts.evaluator.watches, self.alerts.targets)
        return sorted((alert for _, alert in pending), key=lambda alert: (alert.fired_at, alert.id))

    # -- what a caller may see of them

    def ended(self, visible: VisibleFleet, start: float, end: float, about: AlertQuery,
              rule: str | None, after: AlertPlace | None, limit: int
              ) -> tuple[list[Alert], AlertPlace | None]:
        """Return a page of ended alerts that the caller may see, and the place after which there
        may be more. Where most are hidden it may hold fewer, as the number of batches read is
        limited."""
        page: list[Alert] = []
        for _ in range(MOST_LOOKS):
            batch = self.store.ended_alerts(start, end, about, rule, after)
            for alert in batch:
                if len(page) == limit:
                    return page, after
                after = alert.fired_at, alert.id
                if about.is_within(alert.target) and self.is_seen(alert.target, visible):
                    page.append(alert)
            if len(batch) < MOST_LISTED:
                return page, None
        return page, after

    def is_seen(self, target: AlertTarget, visible: VisibleFleet) -> bool:
        """Return whether alerts on this target are visible: those of a node to everyone who sees
        the node, those without a node to everyone who sees the whole fleet, and an owner's also to
        that owner."""
        if target.node_id:
            return visible.sees_node(target.node_id)
        return visible.is_whole or any(user in visible.reads.own for user in target.users)

    def gpus_seen(self, target: AlertTarget, visible: VisibleFleet) -> list[str]:
        """Return the target's GPUs without those on hidden nodes, as a job or an owner may have."""
        return [uuid for uuid in target.gpus
                if visible.is_whole or self.fleet.find(uuid, visible.place_of) is not None]

    def host_of(self, node: str) -> str:
        member = self.fleet.nodes.get(node)
        return node if member is None else member.hello.host

    def part(self, group: str | None, model: str | None) -> FleetPart | None:
        """Return the GPUs of a group or a model as they are now; None if neither is given."""
        if group is None and model is None:
            return None
        fleet = self.fleet
        slots = [slot for slot in range(len(fleet))
                 if model in (None, fleet.facts[slot].name)
                 and group in (None, fleet.group_of(fleet.node_ids[fleet.node_at[slot]]))]
        return FleetPart(frozenset(fleet.uuids[slot] for slot in slots),
                         frozenset(fleet.node_ids[fleet.node_at[slot]] for slot in slots))

    def nodes_of(self, gpus: Iterable[str]) -> frozenset[str]:
        slots = (self.fleet.find(uuid) for uuid in gpus)
        return frozenset(self.fleet.node_of(slot).hello.node_id for slot in slots
                         if slot is not None)
