"""Who is known here: people with sessions, programs with tokens; and what changes them.

All is held in memory, because a look-up per request must not touch the disk, and read anew when
somebody else has written: `gpudeck user` needs no other way to a running hub.
"""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import gevent

from ..errors import InvalidChangeError
from .passwords import PasswordService
from .policy import (
    EVERYTHING,
    AccessDenial,
    AccessTarget,
    Actor,
    DenialReason,
    RefusedError,
    Role,
    Scope,
    by,
    may,
)
from .protocols import AccountState, AuditLog
from .sign_in_attempts import Records, SignInAttempts
from .store import ApiToken, Session, SignInRecord, User, digest, new_session, new_token

log = logging.getLogger("gpudeck.people")

LOOK_EVERY_S = 0.25
NOTE_EVERY_S = 60.0
FILE_TOKEN = "tfile"




@dataclass(frozen=True, slots=True)
class AccountChange:
    """Of a user; None: stays as it is."""

    role: Role | None = None
    groups: tuple[str, ...] | None = None
    unix_names: tuple[str, ...] | None = None
    password: str | None = None


class AccountService:
    def __init__(self, state: AccountState, passwords: PasswordService, audit: AuditLog) -> None:
        self._state = state
        self.audit = audit
        self._accounts = state.accounts
        self._passwords = passwords
        self.on_end: list[Callable[[str], None]] = []  # told which credential has ended
        self.users: dict[str, User] = {}
        self._tokens: dict[bytes, ApiToken] = {}
        self._sessions: dict[bytes, Session] = {}
        self._session_of: dict[str, bytes] = {}
        self._attempts: list[SignInRecord] = []
        self._on_the_way: list[SignInRecord] = []  # to the disk
        self._entries = SignInAttempts(time.monotonic())
        self._used_sessions: dict[str, float] = {}
        self._used_tokens: dict[str, float] = {}
        self._seen = state.writes_elsewhere()
        self.reload()

    # -- what is held

    def reload(self) -> None:
        before = self._credentials()
        now = time.time()
        used = {session.id: session.used_at for session in self._sessions.values()}
        self.users = {user.name: user for user in self._accounts.users()}
        self._tokens = {token.hash: token for token in self._accounts.tokens()}
        found = (session for session in self._accounts.sessions(now) if session.user in self.users)
        self._sessions = {
            session.hash: replace(session, used_at=max(session.used_at, used.get(session.id, 0.0)))
            for session in found}
        self._session_of = {session.id: key for key, session in self._sessions.items()}
        for credential in before - self._credentials():
            for tell in self.on_end:
                tell(credential)

    def _credentials(self) -> set[str]:
        return {*self._session_of, *(token.id for token in self._tokens.values())}

    def run(self) -> None:
        while True:
            gevent.sleep(LOOK_EVERY_S)
            try:
                self.look()
                self._write_notes(gevent.get_hub().threadpool.apply)
            except Exception as error:
                # A full disk must not keep a revocation from being seen once there is room again.
                log.warning("state not read or written reason=%r", str(error))

    def look(self) -> None:
        """Whether somebody else has written, and what."""
        seen = self._state.writes_elsewhere()
        if seen != self._seen:
            self._seen = seen
            self.reload()

    def _take_notes(self) -> tuple[
            list[SignInRecord], dict[str, float], dict[str, float], Records]:
        records = self._entries.take(time.time(), time.monotonic())
        notes = self._attempts, self._used_sessions, self._used_tokens, records
        self._attempts, self._used_sessions, self._used_tokens = [], {}, {}
        return notes

    def _write_notes(self, run: Callable[..., None]) -> None:
        notes = self._take_notes()
        if not any(notes):
            return
        self._on_the_way = notes[0]
        try:
            run(self._state.note, notes)
        except Exception:
            self._entries.put_back(notes[3])
            raise
        finally:
            self._on_the_way = []

    def write_notes(self) -> None:
        """The last ones, before the hub ends."""
        self._write_notes(lambda write, notes: write(*notes))

    def note(self, attempt: SignInRecord) -> None:
        """Kept in memory for a moment: whoever guesses must not set the pace of the disk."""
        self._attempts = [*self._attempts[-199:], attempt]
        self._entries.add(attempt.at, attempt.name, attempt.address, attempt.how, attempt.outcome,
                          time.monotonic())

    # -- who asks

    def session(self, word: str) -> Session | None:
        now = time.time()
        session = self._sessions.get(digest(word))
        if session is None or not session.holds(now):
            return None
        if now - session.used_at >= NOTE_EVERY_S:
            self._used_sessions[session.id] = now
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
            self._used_tokens[token.id] = now
            token = self._tokens[token.hash] = replace(token, used_at=now)
        return Actor("program", token.name, token.role, token.scope, token.id)

    def behind(self, actor: Actor) -> str:
        """The person: of a program, the one who made its token."""
        if actor.kind != "program":
            return actor.name
        made_by = (token.created_by for token in self._tokens.values()
                   if token.id == actor.credential)
        return next(made_by, actor.name)

    def holds(self, credential: str) -> bool:
        now = time.time()
        key = self._session_of.get(credential)
        if key is not None:
            return self._sessions[key].holds(now)
        return any(token.id == credential and now < token.expires_at
                   for token in self._tokens.values())

    # -- sessions

    def enter(self, user: str, how: str, address: str) -> tuple[str, Session]:
        word, session = new_session(user, how, address, time.time())
        self._accounts.add_session(session)
        self.reload()
        return word, session

    def renew(self, credential: str, fresh_until: float) -> tuple[str, Session]:
        """The same session under another secret: what was known before opens nothing more."""
        old = self._sessions[self._session_of[credential]]
        word, made = new_session(old.user, old.how, old.address, old.created_at)
        session = replace(old, hash=made.hash, fresh_until=fresh_until)
        self._accounts.renew_session(session)
        self.reload()
        return word, session

    def sessions(self, actor: Actor) -> list[Session]:
        self._check(actor, "GET /api/v1/sessions")
        now = time.time()
        sees_all = actor.role is not None and actor.role.covers(Role.ADMIN)
        return sorted((session for session in self._sessions.values() if session.holds(now)
                       and (sees_all or _is_own(actor, session.user))),
                      key=lambda session: session.created_at)

    def end_session(self, actor: Actor, session_id: str) -> None:
        key = self._session_of.get(session_id)
        owner = None if key is None else self._sessions[key].user
        verb = "DELETE /api/v1/sessions/<session_id>"
        self._check(actor, verb)
        if owner is None or may(actor, verb, AccessTarget(person=owner)) is not None:
            # Whether it exists is for its owner and for admins.
            raise RefusedError(AccessDenial(DenialReason.HIDDEN,
                                            f"there is no session {session_id[:40]!r} of yours"))
        with self._change(actor, "session", "end", {"person": owner}, takes_away=True):
            self._accounts.end_session(session_id)
        self.reload()

    def sign_out(self, actor: Actor) -> None:
        self._check(actor, "POST /sign-out")
        with self._change(actor, "session", "sign_out", {"person": actor.name}, takes_away=True):
            self._accounts.end_session(actor.credential)
        self.reload()

    def sign_out_everywhere(self, actor: Actor) -> None:
        self._check(actor, "POST /api/v1/sign-out-everywhere")
        with self._change(actor, "session", "sign_out_everywhere", {"person": actor.name},
                          takes_away=True):
            self._accounts.end_sessions_of(actor.name)
        self.reload()

    # -- users

    def add_user(self, actor: Actor, name: str, role: Role, scope: Scope, password: str | None
                 ) -> tuple[User, str | None]:
        """The user and, where there is no password yet, the code of a link to set one."""
        verb, now = "POST /api/v1/users", time.time()
        self._check(actor, verb, AccessTarget(role=role, scope=scope))
        hashed = None if password is None else self._passwords.hash(password)
        self._check(actor, verb, AccessTarget(role=role, scope=scope))
        user = User(name, role, scope, hashed, now)
        with self._change(actor, "user", "add", {"person": name} | _granted(role, scope)):
            self._accounts.add_user(user)
            code = None if hashed is not None else self._accounts.add_code(name, now)
        self.reload()
        return user, code

    def change_user(self, actor: Actor, name: str, change: AccountChange) -> User:
        verb = "PATCH /api/v1/users/<name>"
        known = self.users.get(name)
        scope = None if known is None else _changed(known.scope, change)
        target = AccessTarget(name, change.role, scope)
        self._check(actor, verb, target)
        hashed = None
        if change.password is not None:
            hashed = self._passwords.hash(change.password)
            self._check(actor, verb, target)
        detail = {"person": name, "password": "new" if hashed is not None else None}
        with self._change(actor, "user", "change", detail | _granted(change.role, scope)):
            user = self._accounts.change_user(name, change.role, scope, hashed)
        self.reload()
        return user

    def reset_password(self, actor: Actor, name: str) -> str:
        """The code of a link to set a new one. The old one goes: who signs in as somebody by a
        link and leaves them their password would not be noticed."""
        self._check(actor, "POST /api/v1/users/<name>/link", AccessTarget(name))
        if _is_own(actor, name):
            raise InvalidChangeError("change your own password by giving a new one")
        with self._change(actor, "user", "reset_password", {"person": name}):
            self._accounts.change_user(name, is_password_gone=True)
            code = self._accounts.add_code(name, time.time())
        self.reload()
        return code

    def remove_user(self, actor: Actor, name: str) -> None:
        self._check(actor, "DELETE /api/v1/users/<name>", AccessTarget(name))
        with self._change(actor, "user", "remove", {"person": name}, takes_away=True):
            self._accounts.remove_user(name)
        self.reload()

    # -- API tokens

    def tokens(self) -> list[ApiToken]:
        return sorted(self._tokens.values(), key=lambda token: token.created_at)

    def add_token(self, actor: Actor, name: str, role: Role, scope: Scope, expires_at: float
                  ) -> tuple[str, ApiToken]:
        self._check(actor, "POST /api/v1/tokens", AccessTarget(role=role, scope=scope))
        word, token = new_token(name, role, scope, actor.name, time.time(), expires_at)
        detail = {"token": token.id, "name": name, "expires_at": token.expires_at}
        with self._change(actor, "token", "add", detail | _granted(role, scope)):
            self._accounts.add_token(token)
        self.reload()
        return word, token

    def remove_token(self, actor: Actor, token_id: str) -> None:
        self._check(actor, "DELETE /api/v1/tokens/<token_id>")
        with self._change(actor, "token", "remove", {"token": token_id[:64]}, takes_away=True):
            self._accounts.remove_token(token_id)
        self.reload()

    def keep_file_token(self, word: str | None) -> None:
        """`api.token`, which `demo` and `up` put here: an admin while the file is there."""
        now = time.time()
        if word is None:
            if any(token.id == FILE_TOKEN for token in self._tokens.values()):
                self._accounts.remove_token(FILE_TOKEN)
        else:
            _, made = new_token("api.token", Role.ADMIN, Scope((EVERYTHING,)), "this folder", now,
                                now + 365 * 86_400)
            self._accounts.add_token(replace(made, id=FILE_TOKEN, hash=digest(word)))
        self.reload()

    def sign_ins(self, actor: Actor) -> list[SignInRecord]:
        self._check(actor, "GET /api/v1/sign-ins")
        new = [*self._on_the_way, *self._attempts]
        return [*reversed(new), *self._accounts.sign_ins()][:200]

    def _change(self, actor: Actor, kind: str, action: str, detail: dict[str, Any],
                takes_away: bool = False) -> AbstractContextManager[None]:
        known = {name: value for name, value in detail.items() if value is not None}
        return self.audit.change(kind, by(actor) | {"action": action, "detail": known},
                                  takes_away)

    def _check(self, actor: Actor, verb: str, target: AccessTarget | None = None) -> None:
        """The gate asked already, without the target; and what it let in may have ended since."""
        refusal = may(actor, verb, target, time.time())
        if refusal is None and not self.holds(actor.credential):
            refusal = AccessDenial(DenialReason.UNKNOWN, "you have been signed out")
        if refusal is not None:
            raise RefusedError(refusal)


def _granted(role: Role | None, scope: Scope | None) -> dict[str, Any]:
    return {"role": None if role is None else role.value,
            "groups": None if scope is None else [*scope.groups],
            "unix_names": None if scope is None else [*scope.unix_names]}


def _is_own(actor: Actor, name: str) -> bool:
    return actor.kind == "person" and actor.name == name


def _changed(scope: Scope, change: AccountChange) -> Scope | None:
    if change.groups is None and change.unix_names is None:
        return None
    return Scope(scope.groups if change.groups is None else change.groups,
                 scope.unix_names if change.unix_names is None else change.unix_names)
