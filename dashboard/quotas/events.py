"""What quotas dispatch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """A quota was added, edited or removed."""
