"""The hub's accounts: people with sessions, programs with tokens.

All of them are in memory, because a lookup per request must not touch the disk, and are read again
when another process has written: `gpudeck user` needs no other way to a running hub.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

import gevent

from gpudeck.rate import RateLimiter

from ..runtime.dispatcher import Dispatcher
from ..state import HubState
from .events import CredentialEnded
from .policy import AccessDenial, AccessTarget, Actor, DenialReason, RefusedError, may
from .protocols import AuditLog, record_change
from .sign_in_log import SignInLog
from .store import AccountsStore, ApiToken, Session, SessionStore, User, digest

log = logging.getLogger("gpudeck.access")

REFRESH_EVERY_S = 0.25
NOTE_EVERY_S = 60.0

T = TypeVar("T")


class AccountService:
    def __init__(self, state: HubState, sign_ins: SignInLog, events: Dispatcher,
                 audit: AuditLog) -> None:
        self._audit = audit
        self._state = state
        self._store = state.store(AccountsStore)
        self._sign_ins = sign_ins
        self._events = events
        self.users: dict[str, User] = {}
        self._tokens: dict[bytes, ApiToken] = {}
        self._sessions: dict[bytes, Session] = {}
        self._session_hashes: dict[str, bytes] = {}
        self._writes_elsewhere = state.writes_elsewhere()
        self._log_pacer = RateLimiter()
        self.reload()

    # -- accounts in memory

    def reload(self) -> None:
        before = self._credentials()
        now = time.time()
        last_used = {session.id: session.used_at for session in self._sessions.values()}
        self.users = {user.name: user for user in self._store.users()}
        self._tokens = {token.hash: token for token in self._store.tokens()}
        sessions = (session for session in self._state.store(SessionStore).all(now)
                    if session.user in self.users)
        self._sessions = {
            session.hash: replace(
                session, used_at=max(session.used_at, last_used.get(session.id, 0.0)))
            for session in sessions}
        self._session_hashes = {session.id: key for key, session in self._sessions.items()}
        for credential in before - self._credentials():
            self._events.dispatch(CredentialEnded(credential))

    def _credentials(self) -> set[str]:
        return {*self._session_hashes, *(token.id for token in self._tokens.values())}

    def step(self, _now: float, _mono: float) -> None:
        try:
            self.refresh()
            self._sign_ins.write(gevent.get_hub().threadpool.apply)
        except Exception as error:
            # A full disk must not keep a revocation from being seen once there is room again.
            if self._log_pacer.due(str(error), time.monotonic()) is not None:
                log.warning("state not read or written reason=%r", str(error))

    def refresh(self) -> None:
        """Read the accounts again if another process has written."""
        writes = self._state.writes_elsewhere()
        if writes != self._writes_elsewhere:
            self._writes_elsewhere = writes
            self.reload()

    def change(self, actor: Actor, kind: str, action: str, detail: dict[str, Any],
               change: Callable[[], T], takes_away: bool = False) -> T:
        with record_change(self._audit, actor, kind, action, detail, takes_away):
            changed = change()
        self.reload()
        return changed

    # -- identification

    def session(self, word: str) -> Session | None:
        now = time.time()
        session = self._sessions.get(digest(word))
        if session is None or not session.holds(now):
            return None
        if now - session.used_at >= NOTE_EVERY_S:
            self._sign_ins.session_used(session.id, now)
            session = self._sessions[session.hash] = replace(session, used_at=now)
        return session

    def person(self, session: Session) -> Actor:
        user = self.users[session.user]
        return Actor("person", user.name, user.role, user.scope, session.id, session.fresh_until)

    def program(self, word: str) -> Actor | None:
        now = time.time()
        token = self._tokens.get(digest(word))
        if token is None or now >= token.expires_at:
            return None
        if token.used_at is None or now - token.used_at >= NOTE_EVERY_S:
            self._sign_ins.token_used(token.id, now)
            token = self._tokens[token.hash] = replace(token, used_at=now)
        return Actor("program", token.name, token.role, token.scope, token.id)

    def person_behind(self, actor: Actor) -> str:
        """Return the actor's name; for a program, that of the person who created its token."""
        if actor.kind != "program":
            return actor.name
        made_by = (token.created_by for token in self._tokens.values()
                   if token.id == actor.credential)
        return next(made_by, actor.name)

    def holds(self, credential: str) -> bool:
        now = time.time()
        session = self.session_of(credential)
        if session is not None:
            return session.holds(now)
        return any(token.id == credential and now < token.expires_at
                   for token in self._tokens.values())

    def check(self, actor: Actor, verb: str, target: AccessTarget | None) -> None:
        """Raise RefusedError if the actor may not do this. The gate has checked it already, without
        the target, and the session or token may have ended since."""
        refusal = may(actor, verb, target, time.time())
        if refusal is None and not self.holds(actor.credential):
            refusal = AccessDenial(DenialReason.UNKNOWN, "you have been signed out")
        if refusal is not None:
            raise RefusedError(refusal)

    # -- lists

    def session_of(self, credential: str) -> Session | None:
        key = self._session_hashes.get(credential)
        return None if key is None else self._sessions[key]

    def sessions(self) -> Collection[Session]:
        return self._sessions.values()

    def tokens(self) -> list[ApiToken]:
        return sorted(self._tokens.values(), key=lambda token: token.created_at)
