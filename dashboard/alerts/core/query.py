"""Which Alerts somebody asks for. Pure."""

from dataclasses import dataclass

from .firing_alerts import Alert, AlertTarget


@dataclass(frozen=True, slots=True)
class FleetPart:
    """The GPUs of a group or a model, and the Nodes that have any of them."""

    gpus: frozenset[str]
    nodes: frozenset[str]

    def has(self, target: AlertTarget) -> bool:
        """A Node's Alerts are about all its GPUs; those of the whole fleet are no part's own."""
        return not self.gpus.isdisjoint(target.gpus) or (
            not target.gpus and target.node_id in self.nodes)


@dataclass(frozen=True, slots=True)
class AlertQuery:
    """`targets`: those themselves. `gpus`: what is marked where these are shown, and `nodes` those
    that they are on. `part`: at these GPUs and Nodes; `users`: of tasks of theirs. None: all."""

    targets: frozenset[str] | None = None
    gpus: frozenset[str] | None = None
    nodes: frozenset[str] = frozenset()
    part: FleetPart | None = None
    users: frozenset[str] | None = None

    @property
    def marking(self) -> frozenset[str]:
        """Targets whose Alerts are marked at these GPUs, whatever they were on."""
        return self.nodes if self.gpus is None else self.gpus | self.nodes

    def matches(self, alert: Alert) -> bool:
        if self.targets is not None and alert.target.key not in self.targets:
            return False
        return self.is_within(alert.target) and (
            self.gpus is None or alert.target.key in self.marking or not (
                self.gpus.isdisjoint(alert.target.gpus)))

    def is_within(self, target: AlertTarget) -> bool:
        """By `part` and `users` alone."""
        return (self.part is None or self.part.has(target)) and (
            self.users is None or not self.users.isdisjoint(target.users))
