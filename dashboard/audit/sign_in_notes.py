"""Writing of sign-ins: attempts, last uses and audit records are one transaction."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..access.store import SessionStore, SignInRecord
from ..state import HubState
from .store import AuditStore


@dataclass(frozen=True, slots=True)
class SignInWriter:
    """Writes over another connection: it runs in a native thread."""

    state: HubState

    def __call__(self, attempts: list[SignInRecord], sessions: dict[str, float],
                 tokens: dict[str, float], records: Iterable[dict[str, Any]] = ()) -> None:
        with self.state.another(AuditStore) as audit, audit.together():
            store = audit.beside(SessionStore)
            store.note(attempts, sessions, tokens)
            for record in records:
                audit.append(record)
