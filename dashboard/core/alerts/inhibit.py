"""Which Alerts another one explains: a Node that is silent says all of its Gpus. Pure."""

from collections.abc import Callable, Iterable

from .alerts import Alert


class Inhibitors:
    """`by`: the Rules by which those of a Rule are inhibited."""

    def __init__(self, firing: Iterable[Alert], by: Callable[[str], tuple[str, ...]]) -> None:
        self._by = by
        self._targets: set[tuple[str, str]] = set()
        self._nodes: set[tuple[str, str]] = set()
        for alert in firing:
            self._targets.add((alert.rule_id, alert.target.key))
            if alert.of == "node":
                self._nodes.add((alert.rule_id, alert.target.node_id))

    def of(self, alert: Alert) -> str | None:
        """The Rule that explains it."""
        target = alert.target
        return next((rule for rule in self._by(alert.rule_id)
                     if (rule, target.key) in self._targets
                     or (rule, target.node_id) in self._nodes), None)
