"""Which Alerts somebody asks for. Pure."""

from dataclasses import dataclass

from .firing_alerts import Alert


@dataclass(frozen=True, slots=True)
class AlertQuery:
    """`targets`: those themselves. `gpus`: what is marked where these are shown, and `nodes` those
    that they are on. None: all."""

    targets: frozenset[str] | None = None
    gpus: frozenset[str] | None = None
    nodes: frozenset[str] = frozenset()

    @property
    def marking(self) -> frozenset[str]:
        """Targets whose Alerts are marked at these GPUs, whatever they were on."""
        return self.nodes if self.gpus is None else self.gpus | self.nodes

    def matches(self, alert: Alert) -> bool:
        if self.targets is not None and alert.target.key not in self.targets:
            return False
        return self.gpus is None or alert.target.key in self.marking or not (
            self.gpus.isdisjoint(alert.target.gpus))
