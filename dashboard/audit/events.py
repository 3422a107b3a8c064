"""What the audit tells the rest of the hub."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditFailed:
    """A record could not be written; dispatched once for as long as it lasts."""

    reason: str
