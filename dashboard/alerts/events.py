"""What alerts and their rules dispatch."""

from dataclasses import dataclass

from .core.firing_alerts import Alert


@dataclass(frozen=True, slots=True)
class RulesChanged:
    """A rule was added, edited, given another mode, or removed."""


@dataclass(frozen=True, slots=True)
class AlertChanged:
    """An alert began, changed or ended."""

    alert: Alert
