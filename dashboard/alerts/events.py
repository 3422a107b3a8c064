"""Events that alerts and their rules dispatch."""

from dataclasses import dataclass

from .core.firing_alerts import Alert


@dataclass(frozen=True, slots=True)
class RulesChanged:
    """A rule was added, edited or removed, or its mode was changed."""


@dataclass(frozen=True, slots=True)
class AlertChanged:
    """An alert began, changed or ended."""

    alert: Alert
