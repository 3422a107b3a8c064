"""Protocols of what accounts need from the packages above them."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .policy import Actor, actor_fields
from .store import SignInRecord


class AuditLog(Protocol):
    """The audit log, in which every change of an account is recorded in the same transaction."""

    def change(self, kind: str, fields: Mapping[str, Any], takes_away: bool = False
               ) -> AbstractContextManager[None]: ...


class SignInNotes(Protocol):
    """Writes sign-in attempts, when sessions and tokens were last used, and records of the audit;
    in a native thread."""

    def __call__(self, attempts: list[SignInRecord], sessions: dict[str, float],
                 tokens: dict[str, float], records: Iterable[dict[str, Any]] = ()) -> None: ...


def record_change(audit: AuditLog, actor: Actor, kind: str, action: str, detail: dict[str, Any],
                  takes_away: bool = False) -> AbstractContextManager[None]:
    """Return a context that records a change; fields of `detail` that are None are left out."""
    changes = {name: value for name, value in detail.items() if value is not None}
    fields = actor_fields(actor) | {"action": action, "detail": changes}
    return audit.change(kind, fields, takes_away)
