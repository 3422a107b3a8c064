"""Queries for alerts. Pure."""

from dataclasses import dataclass

from .firing_alerts import Alert, AlertTarget


@dataclass(frozen=True, slots=True)
class FleetPart:
    """The GPUs of a group or a model, and the Nodes that have any of them."""

    gpus: frozenset[str]
    nodes: frozenset[str]

    def has(self, target: AlertTarget) -> bool:
        """Return whether an alert's target is in this part. An alert of a node is about all its
        GPUs; one of the whole fleet is in no part."""
        return not self.gpus.isdisjoint(target.gpus) or (
            not target.gpus and target.node_id in self.nodes)


@dataclass(frozen=True, slots=True)
class AlertQuery:
    """Filters alerts; None: no restriction. `targets`: alerts of these targets. `gpus`: alerts
    marked on these GPUs, and on `nodes`, the nodes that have them. `part`: alerts on GPUs and nodes
    of it. `users`: alerts whose target has any of these users."""

    targets: frozenset[str] | None = None
    gpus: frozenset[str] | None = None
    nodes: frozenset[str] = frozenset()
    part: FleetPart | None = None
    users: frozenset[str] | None = None

    @property
    def marking(self) -> frozenset[str]:
        """Targets and GPUs whose alerts count as alerts about `gpus`."""
        return self.nodes if self.gpus is None else self.gpus | self.nodes

    def matches(self, alert: Alert) -> bool:
        if self.targets is not None and alert.target.key not in self.targets:
            return False
        return self.is_within(alert.target) and (
            self.gpus is None or alert.target.key in self.marking or not (
                self.gpus.isdisjoint(alert.target.gpus)))

    def is_within(self, target: AlertTarget) -> bool:
        """Return whether a target matches `part` and `users`, which are not in the SQL."""
        return (self.part is None or self.part.has(target)) and (
            self.users is None or not self.users.isdisjoint(target.users))
