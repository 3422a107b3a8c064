"""Events that the audit log dispatches to the rest of the hub."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditFailed:
    """A record could not be written; dispatched once until records can be written again."""

    reason: str
