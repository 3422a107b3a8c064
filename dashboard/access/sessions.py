"""Sessions: how they begin, are renewed and end."""

import time
from collections.abc import Callable
from dataclasses import replace

from .policy import AccessDenial, AccessTarget, Actor, DenialReason, RefusedError, Role, may
from .protocols import AuditLog, record_change
from .service import AccountService
from .store import Session, SessionStore, new_session

END = "DELETE /api/v1/sessions/<session_id>"


class SessionService:
    def __init__(self, store: SessionStore, accounts: AccountService, audit: AuditLog) -> None:
        self._store = store
        self._accounts = accounts
        self._audit = audit

    def begin(self, user: str, how: str, address: str) -> tuple[str, Session]:
        """The secret for the cookie, and the session."""
        word, session = new_session(user, how, address, time.time())
        self._store.add(session)
        self._accounts.reload()
        return word, session

    def renew(self, credential: str, fresh_until: float) -> tuple[str, Session]:
        """The same session under another secret: what was known before opens nothing more."""
        old = self._accounts.session_of(credential)
        assert old is not None, "whoever renews has checked that it holds"
        word, made = new_session(old.user, old.how, old.address, old.created_at)
        session = replace(old, hash=made.hash, fresh_until=fresh_until)
        self._store.renew(session)
        self._accounts.reload()
        return word, session

    def list(self, actor: Actor) -> list[Session]:
        self._accounts.check(actor, "GET /api/v1/sessions", None)
        now = time.time()
        sees_all = actor.role is not None and actor.role.covers(Role.ADMIN)
        return sorted((session for session in self._accounts.sessions() if session.holds(now)
                       and (sees_all or is_own(actor, session.user))),
                      key=lambda session: session.created_at)

    def end(self, actor: Actor, session_id: str) -> None:
        self._accounts.check(actor, END, None)
        session = self._accounts.session_of(session_id)
        if session is None or may(
                actor, END, AccessTarget(person=session.user), time.time()) is not None:
            # Whether it exists is for its owner and for admins.
            raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                            f"there is no session {session_id[:40]!r} of yours"))
        self._end(actor, "end", session.user, lambda: self._store.end(session_id))

    def sign_out(self, actor: Actor) -> None:
        self._accounts.check(actor, "POST /sign-out", None)
        self._end(actor, "sign_out", actor.name, lambda: self._store.end(actor.credential))

    def sign_out_everywhere(self, actor: Actor) -> None:
        self._accounts.check(actor, "POST /api/v1/sign-out-everywhere", None)
        self._end(actor, "sign_out_everywhere", actor.name,
                  lambda: self._store.end_all_of(actor.name))

    def _end(self, actor: Actor, action: str, person: str, end: Callable[[], None]) -> None:
        with record_change(self._audit, actor, "session", action, {"person": person},
                           takes_away=True):
            end()
        self._accounts.reload()


def is_own(actor: Actor, name: str) -> bool:
    return actor.kind == "person" and actor.name == name
