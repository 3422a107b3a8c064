"""Changes that admins and users make: users, passwords, API tokens."""

import time
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InvalidChangeError
from .passwords import PasswordService
from .policy import EVERYTHING, AccessTarget, Actor, Role, Scope
from .service import AccountService
from .sessions import is_own
from .sign_in_log import SignInLog
from .store import AccountsStore, ApiToken, SignInRecord, User, digest, new_token

FILE_TOKEN = "tfile"


@dataclass(frozen=True, slots=True)
class AccountChange:
    """A change to a user; a field that is None stays as it is."""

    role: Role | None = None
    groups: tuple[str, ...] | None = None
    unix_names: tuple[str, ...] | None = None
    password: str | None = None


@dataclass(eq=False, slots=True)
class AccountAdmin:
    store: AccountsStore
    accounts: AccountService
    passwords: PasswordService
    sign_in_log: SignInLog

    # -- users

    def add_user(self, actor: Actor, name: str, role: Role, scope: Scope, password: str | None
                 ) -> tuple[User, str | None]:
        """Add a user; return it and, if it has no password yet, the code of a link to set one."""
        verb, now = "POST /api/v1/users", time.time()
        target = AccessTarget(role=role, scope=scope)
        hashed = self._checked_hash(actor, verb, target, password)
        user = User(name, role, scope, hashed, now)

        def add() -> str | None:
            self.store.add_user(user)
            return None if hashed is not None else self.store.add_code(name, now)

        return user, self.accounts.change(actor, "user", "add",
                                          {"person": name} | _grant_detail(role, scope), add)

    def change_user(self, actor: Actor, name: str, change: AccountChange) -> User:
        user = self.accounts.users.get(name)
        scope = None if user is None else _changed_scope(user.scope, change)
        hashed = self._checked_hash(actor, "PATCH /api/v1/users/<name>",
                                    AccessTarget(name, change.role, scope), change.password)
        detail = {"person": name, "password": "new" if hashed is not None else None}
        return self.accounts.change(
            actor, "user", "change", detail | _grant_detail(change.role, scope),
            lambda: self.store.change_user(name, change.role, scope, hashed))

    def _checked_hash(self, actor: Actor, verb: str, target: AccessTarget, password: str | None
                      ) -> str | None:
        """Hash the password. That takes a while, so permission is checked again afterwards."""
        self.accounts.check(actor, verb, target)
        if password is None:
            return None
        hashed = self.passwords.hash(password)
        self.accounts.check(actor, verb, target)
        return hashed

    def reset_password(self, actor: Actor, name: str) -> str:
        """Clear the password and return the code of a link to set a new one. Had the user kept the
        old password, they would not notice that somebody else signed in by the link."""
        self.accounts.check(actor, "POST /api/v1/users/<name>/link", AccessTarget(name))
        if is_own(actor, name):
            raise InvalidChangeError("change your own password by giving a new one")

        def reset() -> str:
            self.store.change_user(name, is_password_gone=True)
            return self.store.add_code(name, time.time())

        return self.accounts.change(actor, "user", "reset_password", {"person": name}, reset)

    def remove_user(self, actor: Actor, name: str) -> None:
        self.accounts.check(actor, "DELETE /api/v1/users/<name>", AccessTarget(name))
        self.accounts.change(actor, "user", "remove", {"person": name},
                             lambda: self.store.remove_user(name), takes_away=True)

    # -- API tokens

    def add_token(self, actor: Actor, name: str, role: Role, scope: Scope, expires_at: float
                  ) -> tuple[str, ApiToken]:
        self.accounts.check(actor, "POST /api/v1/tokens", AccessTarget(role=role, scope=scope))
        word, token = new_token(name, role, scope, actor.name, time.time(), expires_at)
        detail = {"token": token.id, "name": name, "expires_at": token.expires_at}
        self.accounts.change(actor, "token", "add", detail | _grant_detail(role, scope),
                             lambda: self.store.add_token(token))
        return word, token

    def remove_token(self, actor: Actor, token_id: str) -> None:
        self.accounts.check(actor, "DELETE /api/v1/tokens/<token_id>", None)
        self.accounts.change(actor, "token", "remove", {"token": token_id[:64]},
                             lambda: self.store.remove_token(token_id), takes_away=True)

    def sync_file_token(self, word: str | None) -> None:
        """Store the token of the file `api.token`, which `demo` and `up` write: an admin's token
        for as long as the file exists. `word` None: there is no such file."""
        now = time.time()
        if word is None:
            if any(token.id == FILE_TOKEN for token in self.accounts.tokens()):
                self.store.remove_token(FILE_TOKEN)
        else:
            _, token = new_token("api.token", Role.ADMIN, Scope((EVERYTHING,)), "this folder", now,
                                 now + 365 * 86_400)
            self.store.add_token(replace(token, id=FILE_TOKEN, hash=digest(word)))
        self.accounts.reload()

    def sign_ins(self, actor: Actor) -> list[SignInRecord]:
        self.accounts.check(actor, "GET /api/v1/sign-ins", None)
        return self.sign_in_log.newest()


def _grant_detail(role: Role | None, scope: Scope | None) -> dict[str, Any]:
    return {"role": None if role is None else role.value,
            "groups": None if scope is None else [*scope.groups],
            "unix_names": None if scope is None else [*scope.unix_names]}


def _changed_scope(scope: Scope, change: AccountChange) -> Scope | None:
    if change.groups is None and change.unix_names is None:
        return None
    return Scope(scope.groups if change.groups is None else change.groups,
                 scope.unix_names if change.unix_names is None else change.unix_names)
