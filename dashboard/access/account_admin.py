"""What admins and people themselves change: users, passwords, API tokens."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..errors import InvalidChangeError
from .passwords import PasswordService
from .policy import EVERYTHING, AccessTarget, Actor, Role, Scope
from .protocols import AuditLog, record_change
from .service import AccountService
from .sessions import is_own
from .sign_in_log import SignInLog
from .store import AccountsStore, ApiToken, SignInRecord, User, digest, new_token

FILE_TOKEN = "tfile"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AccountChange:
    """Of a user; None: stays as it is."""

    role: Role | None = None
    groups: tuple[str, ...] | None = None
    unix_names: tuple[str, ...] | None = None
    password: str | None = None


class AccountAdmin:
    def __init__(self, store: AccountsStore, accounts: AccountService, passwords: PasswordService,
                 sign_ins: SignInLog, audit: AuditLog) -> None:
        self._store = store
        self._accounts = accounts
        self._passwords = passwords
        self._sign_ins = sign_ins
        self._audit = audit

    # -- users

    def add_user(self, actor: Actor, name: str, role: Role, scope: Scope, password: str | None
                 ) -> tuple[User, str | None]:
        """The user and, where there is no password yet, the code of a link to set one."""
        verb, now = "POST /api/v1/users", time.time()
        target = AccessTarget(role=role, scope=scope)
        hashed = self._checked_hash(actor, verb, target, password)
        user = User(name, role, scope, hashed, now)

        def add() -> str | None:
            self._store.add_user(user)
            return None if hashed is not None else self._store.add_code(name, now)

        return user, self._change(actor, "user", "add", {"person": name} | _granted(role, scope),
                                  add)

    def change_user(self, actor: Actor, name: str, change: AccountChange) -> User:
        known = self._accounts.users.get(name)
        scope = None if known is None else _changed(known.scope, change)
        hashed = self._checked_hash(actor, "PATCH /api/v1/users/<name>",
                                    AccessTarget(name, change.role, scope), change.password)
        detail = {"person": name, "password": "new" if hashed is not None else None}
        return self._change(
            actor, "user", "change", detail | _granted(change.role, scope),
            lambda: self._store.change_user(name, change.role, scope, hashed))

    def _checked_hash(self, actor: Actor, verb: str, target: AccessTarget, password: str | None
                      ) -> str | None:
        """Hashing takes a while, after which the actor must still be allowed to."""
        self._accounts.check(actor, verb, target)
        if password is None:
            return None
        hashed = self._passwords.hash(password)
        self._accounts.check(actor, verb, target)
        return hashed

    def reset_password(self, actor: Actor, name: str) -> str:
        """The code of a link to set a new one. The old one goes: who signs in as somebody by a
        link and leaves them their password would not be noticed."""
        self._accounts.check(actor, "POST /api/v1/users/<name>/link", AccessTarget(name))
        if is_own(actor, name):
            raise InvalidChangeError("change your own password by giving a new one")

        def reset() -> str:
            self._store.change_user(name, is_password_gone=True)
            return self._store.add_code(name, time.time())

        return self._change(actor, "user", "reset_password", {"person": name}, reset)

    def remove_user(self, actor: Actor, name: str) -> None:
        self._accounts.check(actor, "DELETE /api/v1/users/<name>", AccessTarget(name))
        self._change(actor, "user", "remove", {"person": name},
                     lambda: self._store.remove_user(name), takes_away=True)

    # -- API tokens

    def add_token(self, actor: Actor, name: str, role: Role, scope: Scope, expires_at: float
                  ) -> tuple[str, ApiToken]:
        self._accounts.check(actor, "POST /api/v1/tokens", AccessTarget(role=role, scope=scope))
        word, token = new_token(name, role, scope, actor.name, time.time(), expires_at)
        detail = {"token": token.id, "name": name, "expires_at": token.expires_at}
        self._change(actor, "token", "add", detail | _granted(role, scope),
                     lambda: self._store.add_token(token))
        return word, token

    def remove_token(self, actor: Actor, token_id: str) -> None:
        self._accounts.check(actor, "DELETE /api/v1/tokens/<token_id>", None)
        self._change(actor, "token", "remove", {"token": token_id[:64]},
                     lambda: self._store.remove_token(token_id), takes_away=True)

    def keep_file_token(self, word: str | None) -> None:
        """`api.token`, which `demo` and `up` put here: an admin while the file is there."""
        now = time.time()
        if word is None:
            if any(token.id == FILE_TOKEN for token in self._accounts.tokens()):
                self._store.remove_token(FILE_TOKEN)
        else:
            _, made = new_token("api.token", Role.ADMIN, Scope((EVERYTHING,)), "this folder", now,
                                now + 365 * 86_400)
            self._store.add_token(replace(made, id=FILE_TOKEN, hash=digest(word)))
        self._accounts.reload()

    def sign_ins(self, actor: Actor) -> list[SignInRecord]:
        self._accounts.check(actor, "GET /api/v1/sign-ins", None)
        return self._sign_ins.newest()

    def _change(self, actor: Actor, kind: str, action: str, detail: dict[str, Any],
                change: Callable[[], T], takes_away: bool = False) -> T:
        with record_change(self._audit, actor, kind, action, detail, takes_away):
            changed = change()
        self._accounts.reload()
        return changed


def _granted(role: Role | None, scope: Scope | None) -> dict[str, Any]:
    return {"role": None if role is None else role.value,
            "groups": None if scope is None else [*scope.groups],
            "unix_names": None if scope is None else [*scope.unix_names]}


def _changed(scope: Scope, change: AccountChange) -> Scope | None:
    if change.groups is None and change.unix_names is None:
        return None
    return Scope(scope.groups if change.groups is None else change.groups,
                 scope.unix_names if change.unix_names is None else change.unix_names)
