"""Sessions: how they begin, are renewed and end."""

import time
from dataclasses import dataclass, replace

from .policy import AccessDenial, AccessTarget, Actor, DenialReason, RefusedError, Role, may
from .service import AccountService
from .store import Session, SessionStore, new_session

END = "DELETE /api/v1/sessions/<session_id>"


@dataclass(eq=False, slots=True)
class SessionService:
    store: SessionStore
    accounts: AccountService

    def begin(self, user: str, how: str, address: str) -> tuple[str, Session]:
        """Begin a session; return the secret for the cookie, and the session."""
        word, session = new_session(user, how, address, time.time())
        self.store.add(session)
        self.accounts.reload()
        return word, session

    def begin_for(self, user: str, address: str, lasts_s: float, fresh_until: float | None
                  ) -> tuple[str, Session]:
        """Begin a session for a user whom the site's provider signed in."""
        word, new = new_session(user, "oidc", address, time.time())
        session = replace(new, ends_at=new.created_at + lasts_s, fresh_until=fresh_until)
        self.store.add(session)
        self.accounts.reload()
        return word, session

    def renew(self, credential: str, fresh_until: float) -> tuple[str, Session]:
        """Give the session another secret; the old one is no longer valid."""
        old = self.accounts.session_of(credential)
        assert old is not None, "the caller has checked that it is valid"
        word, new = new_session(old.user, old.how, old.address, old.created_at)
        session = replace(old, hash=new.hash, fresh_until=fresh_until)
        self.store.renew(session)
        self.accounts.reload()
        return word, session

    def list(self, actor: Actor) -> list[Session]:
        self.accounts.check(actor, "GET /api/v1/sessions", None)
        now = time.time()
        sees_all = actor.role is not None and actor.role.covers(Role.ADMIN)
        return sorted((session for session in self.accounts.sessions() if session.holds(now)
                       and (sees_all or is_own(actor, session.user))),
                      key=lambda session: session.created_at)

    def end(self, actor: Actor, session_id: str) -> None:
        self.accounts.check(actor, END, None)
        session = self.accounts.session_of(session_id)
        if session is None or may(
                actor, END, AccessTarget(person=session.user), time.time()) is not None:
            # Only its owner and admins may learn whether it exists.
            raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                            f"there is no session {session_id[:40]!r} of yours"))
        self.accounts.change(actor, "session", "end", {"person": session.user},
                             lambda: self.store.end(session_id), takes_away=True)

    def sign_out(self, actor: Actor) -> None:
        self.accounts.check(actor, "POST /sign-out", None)
        self.accounts.change(actor, "session", "sign_out", {"person": actor.name},
                             lambda: self.store.end(actor.credential), takes_away=True)

    def sign_out_everywhere(self, actor: Actor) -> None:
        self.accounts.check(actor, "POST /api/v1/sign-out-everywhere", None)
        self.accounts.change(actor, "session", "sign_out_everywhere", {"person": actor.name},
                             lambda: self.store.end_all_of(actor.name), takes_away=True)


def is_own(actor: Actor, name: str) -> bool:
    return actor.kind == "person" and actor.name == name
