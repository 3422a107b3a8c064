"""What accounts need of the capabilities that stand on them."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .policy import Actor, by
from .store import AccountsStore, SessionStore, SignInRecord


class AuditLog(Protocol):
    """Where every change of an account is recorded, together with it."""

    def change(self, kind: str, fields: Mapping[str, Any], takes_away: bool = False
               ) -> AbstractContextManager[None]: ...


class AccountState(Protocol):
    """The hub's state, as far as accounts are kept in it."""

    @property
    def accounts(self) -> AccountsStore: ...

    @property
    def sessions(self) -> SessionStore: ...

    def secret(self, what: str) -> bytes: ...

    def writes_elsewhere(self) -> int: ...

    def note(self, attempts: list[SignInRecord], sessions: dict[str, float],
             tokens: dict[str, float], records: Iterable[dict[str, Any]] = ()) -> None: ...


def record_change(audit: AuditLog, actor: Actor, kind: str, action: str, detail: dict[str, Any],
                  takes_away: bool = False) -> AbstractContextManager[None]:
    """Around a change that somebody makes; what is None in `detail` is not changed."""
    known = {name: value for name, value in detail.items() if value is not None}
    return audit.change(kind, by(actor) | {"action": action, "detail": known}, takes_away)
