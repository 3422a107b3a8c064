"""The SQL of people and programs: users, API tokens, sessions, one-time codes, sign-ins.

Used by the hub and, over their own connection, by `gpudeck user` and `gpudeck token`: so each
change is one transaction that checks its own conditions.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from ..errors import AlreadyExistsError, InvalidChangeError, NotFoundError
from ..runtime.sql_transaction import put, together
from ..runtime.state_store import SqlConnection, SqlStore
from .policy import FRESH_S, Role, Scope

SCHEMA = """
drop table sessions;
drop table codes;
create table users (
  name text primary key, role text not null, groups text not null, unix_names text not null,
  password text, created_at real not null, signed_in_at real
) without rowid;
create table tokens (
  id text primary key, hash blob not null unique, name text not null, role text not null,
  groups text not null, unix_names text not null, created_at real not null,
  created_by text not null, expires_at real not null, used_at real
) without rowid;
create table sessions (
  id text primary key, hash blob not null unique, user text not null, how text not null,
  address text not null, created_at real not null, used_at real not null, ends_at real not null,
  fresh_until real
) without rowid;
create table codes (hash blob primary key, user text, ends_at real not null) without rowid;
create table sign_ins (
  at real not null, name text not null, address text not null, how text not null,
  outcome text not null
);
"""
OIDC_SCHEMA = """
create table identities (
  issuer text not null, subject text not null, user_name text not null,
  primary key (issuer, subject)
) without rowid;
create table oidc_sessions (
  session_id text primary key, issuer text not null, subject text not null, sid text,
  id_token text not null
) without rowid;
"""
PROVIDER_GROUPS_SCHEMA = """
create table provider_groups (
  user_name text not null, group_name text not null, primary key (user_name, group_name)
) without rowid;
"""
# By the version of the state that each leads to. A step is never edited later.
MIGRATIONS = {2: SCHEMA, 19: OIDC_SCHEMA, 21: PROVIDER_GROUPS_SCHEMA}
CODE_LASTS_S = 600.0
SESSION_LASTS_S = 7 * 86_400.0
IDLE_S = 86_400.0
TOKEN_LASTS_MOST_S = 366 * 86_400.0
MAX_USERS = 10_000
MAX_TOKENS = 1_000
SIGN_INS_KEPT = 200
TOKEN_MARK = "gpdk_"  # a prefix that secret scanners can find in a repository


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    scope: Scope
    password: str | None  # the argon2id hash; None: the user has to sign in by a link
    created_at: float
    signed_in_at: float | None = None


@dataclass(frozen=True, slots=True)
class ApiToken:
    id: str
    hash: bytes
    name: str
    role: Role
    scope: Scope
    created_at: float
    created_by: str
    expires_at: float
    used_at: float | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A user's session. `hash`: of the secret, which only the browser has; it may change, the `id`
    stays."""

    id: str
    hash: bytes
    user: str
    how: str
    address: str
    created_at: float
    used_at: float
    ends_at: float
    fresh_until: float | None = None

    def holds(self, now: float) -> bool:
        return now < self.ends_at and now < self.used_at + IDLE_S


@dataclass(frozen=True, slots=True)
class SignInRecord:
    at: float
    name: str
    address: str
    how: str
    outcome: str


@dataclass(frozen=True, slots=True)
class OneTimeCode:
    """A one-time code: for one user or, with None, for the future first admin."""

    user: str | None


def digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


def new_session(user: str, how: str, address: str, now: float) -> tuple[str, Session]:
    """Return the secret for the cookie, and the session. It is fresh, unless a proxy or a provider
    vouched for the user."""
    word = secrets.token_urlsafe(32)
    fresh_until = None if how in ("proxy", "oidc") else now + FRESH_S
    return word, Session("s" + secrets.token_hex(8), digest(word), user, how, address, now, now,
                         now + SESSION_LASTS_S, fresh_until)


def new_token(name: str, role: Role, scope: Scope, created_by: str, now: float, expires_at: float
              ) -> tuple[str, ApiToken]:
    word = TOKEN_MARK + secrets.token_urlsafe(32)
    return word, ApiToken("t" + secrets.token_hex(8), digest(word), name, role, scope, now,
                          created_by,
                          min(expires_at, now + TOKEN_LASTS_MOST_S))


class AccountsStore(SqlStore):
    # -- users

    def users(self) -> list[User]:
        rows = self._db.execute("select name, role, groups, unix_names, password, created_at, "
                                "signed_in_at from users order by name")
        return [User(name, Role(role), _scope(groups, unix_names), password, created, signed_in)
                for name, role, groups, unix_names, password, created, signed_in in rows]

    def user(self, name: str) -> User:
        matches = [user for user in self.users() if user.name == name]
        if not matches:
            raise NotFoundError(f"there is no user {name!r}")
        return matches[0]

    def add_user(self, user: User, is_first: bool = False) -> None:
        with together(self._db):
            users = self.users()
            if is_first and users:
                raise AlreadyExistsError("this hub has its first admin already; sign in, or ask "
                                         "an admin")
            if any(existing.name == user.name for existing in users):
                raise AlreadyExistsError(f"there is a user {user.name!r} already")
            if len(users) >= MAX_USERS:
                raise InvalidChangeError(f"this hub has {MAX_USERS} users, the maximum")
            self._put_user(user)
            if is_first:
                self._db.execute("delete from codes where user_name is null")

    def _put_user(self, user: User) -> None:
        put(self._db, "users", [(
            user.name, user.role, _line(user.scope.groups), _line(user.scope.unix_names),
            user.password, user.created_at, user.signed_in_at)])

    def change_user(self, name: str, role: Role | None = None, scope: Scope | None = None,
                    password: str | None = None, is_password_gone: bool = False) -> User:
        """Change the user and end their sessions. A field that is None stays as it is."""
        with together(self._db):
            old = self.user(name)
            self._check_admin_remains(old, role)
            new = replace(old, role=role or old.role, scope=scope or old.scope,
                          password=None if is_password_gone else password or old.password)
            self._put_user(new)
            self._end_all_of(name)
        return new

    def remove_user(self, name: str) -> None:
        with together(self._db):
            self._check_admin_remains(self.user(name), None, is_leaving=True)
            self._db.execute("delete from users where name = ?", (name,))
            # Otherwise a new user with this name could sign in through these identities.
            self._db.execute("delete from identities where user_name = ?", (name,))
            self._db.execute("delete from provider_groups where user_name = ?", (name,))
            self._end_all_of(name)

    def _check_admin_remains(self, user: User, role: Role | None, is_leaving: bool = False) -> None:
        stays = not is_leaving and role in (None, Role.ADMIN)
        if user.role is not Role.ADMIN or stays:
            return
        if sum(other.role is Role.ADMIN for other in self.users()) == 1:
            raise InvalidChangeError(f"{user.name!r} is the last admin; make another one first")

    def _end_all_of(self, name: str) -> None:
        self._db.execute("delete from sessions where user_name = ?", (name,))
        self._db.execute("delete from codes where user_name = ?", (name,))

    # -- API tokens

    def tokens(self) -> list[ApiToken]:
        rows = self._db.execute("select id, hash, name, role, groups, unix_names, created_at, "
                                "created_by, expires_at, used_at from tokens order by created_at")
        return [ApiToken(row[0], row[1], row[2], Role(row[3]), _scope(row[4], row[5]), *row[6:])
                for row in rows]

    def add_token(self, token: ApiToken) -> None:
        """Add a token; it replaces the one with the same id."""
        with together(self._db):
            if len(self.tokens()) >= MAX_TOKENS:
                raise InvalidChangeError(f"this hub has {MAX_TOKENS} tokens, the maximum; revoke "
                                         "unused ones")
            put(self._db, "tokens", [(
                token.id, token.hash, token.name, token.role, _line(token.scope.groups),
                _line(token.scope.unix_names), token.created_at, token.created_by,
                token.expires_at, token.used_at)])

    def remove_token(self, token_id: str) -> None:
        if not self._db.execute("delete from tokens where id = ?", (token_id,)).rowcount:
            raise NotFoundError(f"there is no token {token_id!r}")

    # -- one-time codes

    def add_code(self, user: str | None, now: float) -> str:
        """Create a one-time code; only its hash is stored."""
        code = secrets.token_urlsafe(24)
        with together(self._db):
            if user is not None:
                self.user(user)
            self._db.execute("delete from codes where ends_at < ?", (now,))
            self._db.execute("insert into codes values (?, ?, ?)",
                             (digest(code), user, now + CODE_LASTS_S))
        return code

    def code(self, code: str, now: float) -> OneTimeCode | None:
        """Return what a code is for; None: it is unknown, used up or too old."""
        row = self._db.execute("select user_name from codes where hash = ? and ends_at > ?",
                               (digest(code), now)).fetchone()
        return None if row is None else OneTimeCode(row[0])

    def use_code(self, code: str, now: float) -> OneTimeCode | None:
        """Return what a code is for, as `code` does, and delete it."""
        row = self._db.execute("delete from codes where hash = ? and ends_at > ? returning "
                               "user_name",
                               (digest(code), now)).fetchone()
        return None if row is None else OneTimeCode(row[0])


class OidcStore(SqlStore):
    """Users of the site's provider, each identified by issuer and subject, never by name."""

    def __init__(self, db: SqlConnection) -> None:
        super().__init__(db)
        self._accounts = AccountsStore(db)

    def user_of(self, issuer: str, subject: str) -> str | None:
        row = self._db.execute("select user_name from identities where issuer = ? and subject = ?",
                               (issuer, subject)).fetchone()
        return None if row is None else str(row[0])

    def add_user(self, user: User, issuer: str, subject: str) -> None:
        self._accounts.add_user(user)
        put(self._db, "identities", [(issuer, subject, user.name)])

    def change_user(self, name: str, role: Role, scope: Scope) -> None:
        self._accounts.change_user(name, role, scope)

    def put_groups(self, name: str, groups: Iterable[str]) -> None:
        """Replace the groups that the provider gives this user."""
        with together(self._db):
            self._db.execute("delete from provider_groups where user_name = ?", (name,))
            # Otherwise a new user with the name of one who was just removed would have them.
            if self._db.execute("select 1 from users where name = ?", (name,)).fetchone() is None:
                return
            put(self._db, "provider_groups", [(name, group) for group in groups])

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return the groups of each user who has signed in at the provider."""
        groups: dict[str, tuple[str, ...]] = {}
        for name, group in self._db.execute(
                "select user_name, group_name from provider_groups order by user_name, group_name"):
            groups[name] = (*groups.get(name, ()), group)
        return groups

    def put_session(self, session_id: str, issuer: str, subject: str, sid: str | None,
                    id_token: str) -> None:
        with together(self._db):
            self._db.execute("delete from oidc_sessions where session_id not in "
                             "(select id from sessions)")
            put(self._db, "oidc_sessions", [(session_id, issuer, subject, sid, id_token)])

    def id_token(self, session_id: str) -> str | None:
        row = self._db.execute("select id_token from oidc_sessions where session_id = ?",
                               (session_id,)).fetchone()
        return None if row is None else str(row[0])

    def sessions_of(self, issuer: str, subject: str | None, sid: str | None) -> list[str]:
        """Return the ids of the provider's session `sid`; without one, all ids of the subject."""
        column, value = ("sid", sid) if sid is not None else ("subject", subject)
        return [row[0] for row in self._db.execute(
            f"select session_id from oidc_sessions where issuer = ? and {column} = ?",
            (issuer, value))]

    def end(self, session_ids: Iterable[str]) -> None:
        with together(self._db):
            for session_id in session_ids:
                self._db.execute("delete from sessions where id = ?", (session_id,))
                self._db.execute("delete from oidc_sessions where session_id = ?", (session_id,))


class SessionStore(SqlStore):
    """Sessions, and the sign-ins that led to them or did not."""

    def all(self, now: float) -> list[Session]:
        rows = self._db.execute("select id, hash, user_name, how, address, created_at, used_at, "
                                "ends_at, fresh_until from sessions")
        return [session for row in rows if (session := Session(*row)).holds(now)]

    def add(self, session: Session) -> None:
        """Add a session; raise NotFoundError if its user has been removed."""
        with together(self._db):
            if not self._db.execute("update users set signed_in_at = ? where name = ?",
                                    (session.created_at, session.user)).rowcount:
                raise NotFoundError(f"there is no user {session.user!r}")
            self._db.execute("delete from sessions where ends_at < ?", (session.created_at,))
            put(self._db, "sessions", [astuple(session)])

    def renew(self, session: Session) -> None:
        """Store the session's new secret under its id; raise NotFoundError if it has ended."""
        with together(self._db):
            if not self._db.execute("select 1 from sessions where id = ?",
                                    (session.id,)).fetchone():
                raise NotFoundError("this session has ended")
            put(self._db, "sessions", [astuple(session)])

    def end(self, session_id: str) -> None:
        self._db.execute("delete from sessions where id = ?", (session_id,))

    def end_all_of(self, name: str) -> None:
        self._db.execute("delete from sessions where user_name = ?", (name,))

    # -- written a moment later

    def sign_ins(self) -> list[SignInRecord]:
        """Return the latest sign-in attempts, newest first."""
        rows = self._db.execute("select at, name, address, how, outcome from sign_ins "
                                "order by at desc, rowid desc limit ?", (SIGN_INS_KEPT,))
        return [SignInRecord(*row) for row in rows]

    def note(self, attempts: Iterable[SignInRecord], sessions: dict[str, float],
             tokens: dict[str, float]) -> None:
        """Store attempts, and when sessions and tokens were last used."""
        with together(self._db):
            self._db.executemany("insert into sign_ins values (?, ?, ?, ?, ?)",
                                 map(astuple, attempts))
            self._db.execute("delete from sign_ins where rowid not in (select rowid from sign_ins "
                             "order by at desc, rowid desc limit ?)", (SIGN_INS_KEPT,))
            for table, last_uses in (("sessions", sessions), ("tokens", tokens)):
                self._db.executemany(f"update {table} set used_at = ? where id = ?",
                                     [(at, key) for key, at in last_uses.items()])


def _line(names: tuple[str, ...]) -> str:
    """Join names by spaces; no name contains white space."""
    return " ".join(names)


def _scope(groups: str, unix_names: str) -> Scope:
    return Scope(tuple(groups.split()), tuple(unix_names.split()))
