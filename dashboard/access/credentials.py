"""Sign-in by password, one-time code or trusted proxy, and confirmation of the password."""

import hashlib
import hmac
import secrets
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..errors import InvalidChangeError
from ..state import HubState
from ..trusted_networks import neighbourhood
from .passwords import MOST_LENGTH, PasswordQueueFullError, PasswordService, flaw
from .policy import EVERYTHING, FRESH_S, Actor, Role, Scope, name_flaw
from .protocols import AuditLog
from .service import AccountService
from .sessions import SessionService
from .sign_in_log import SignInLog
from .store import AccountsStore, Session, SignInRecord, User
from .throttle import KEYS, Key, SignInThrottle

DEVICE_LASTS_S = 400 * 86_400.0
TYPED_CHARS = 64

WRONG = "The name or the password is not right."
USED = "This link has been used already, or is too old."
MISMATCH = "The passwords do not match."


class SignInError(Exception):
    """Sign-in refused; the message does not reveal which users exist."""

    def __init__(self, status: HTTPStatus, sentence: str, retry_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True)
class SignInResult:
    word: str  # the session's secret
    session: Session
    device: str | None = None  # the proof that this device has signed in


@dataclass(frozen=True, slots=True)
class SignInOrigin:
    """Address and device of a sign-in attempt."""

    address: str
    device: str = ""


class CredentialService:
    def __init__(self, state: HubState, accounts: AccountService, sessions: SessionService,
                 sign_ins: SignInLog, passwords: PasswordService, audit: AuditLog) -> None:
        self._store = state.store(AccountsStore)
        self._accounts = accounts
        self._sessions = sessions
        self._sign_ins = sign_ins
        self._passwords = passwords
        self._audit = audit
        self._throttle = SignInThrottle()
        self._key = state.secret("entry")

    # -- password

    def by_password(self, typed: str, password: str, origin: SignInOrigin) -> SignInResult:
        name = typed.strip().casefold()[:TYPED_CHARS]
        user = self._accounts.users.get(name)
        device = self._device(origin.device, name)
        keys = ([self._lane("device", device)] if device is not None else
                [self._lane("account", name), self._lane("address", neighbourhood(origin.address))])
        if not self._verify(name, user, password, keys, origin, device is not None) or user is None:
            self._note(name, origin, "password", "refused")
            raise SignInError(HTTPStatus.UNAUTHORIZED, WRONG)
        return self._enter(user.name, "password", origin)

    def _verify(self, name: str, user: User | None, password: str, keys: list[Key],
                origin: SignInOrigin, is_known: bool) -> bool:
        """Tell whether the password is right. The guess is counted before it is evaluated, so that
        many at once do not count as one."""
        wait_s = self._throttle.take(keys, time.monotonic())
        if wait_s > 0:
            self._note(name, origin, "password", "throttled")
            raise SignInError(HTTPStatus.TOO_MANY_REQUESTS, "Too many attempts. Wait "
                              f"{_minutes(wait_s)}, or use a device that has signed in before.",
                              wait_s)
        try:
            stored_hash = None if user is None else user.password
            fits = self._passwords.fits(password, stored_hash, is_known)
        except PasswordQueueFullError:
            self._throttle.give_back(keys)
            raise _too_many() from None
        # The password may have been changed or the user removed while it was checked.
        now = self._accounts.users.get(name)
        fits = fits and now is not None and user is not None and now.password == user.password
        if fits:
            self._throttle.give_back(keys)
        return fits

    def step_up(self, actor: Actor, password: str, origin: SignInOrigin) -> SignInResult:
        """Confirm the password: the session is fresh for FRESH_S seconds, under a new secret."""
        user = self._accounts.users.get(actor.name)
        if user is None or user.password is None:
            raise SignInError(HTTPStatus.CONFLICT,
                              "You have no password here. Sign in once more at /sign-in/oidc?fresh "
                              "if your site's sign-in let you in; else ask an admin for a link "
                              "to set one.")
        keys = [self._lane("device", actor.credential)]
        if not self._verify(user.name, user, password, keys, origin, True):
            self._note(user.name, origin, "again", "refused")
            raise SignInError(HTTPStatus.FORBIDDEN, "That is not your password.")
        if not self._accounts.holds(actor.credential):
            raise SignInError(HTTPStatus.UNAUTHORIZED, "You have been signed out.")
        self._note(user.name, origin, "again", "let in")
        return SignInResult(*self._sessions.renew(actor.credential, time.time() + FRESH_S))

    # -- one-time codes

    def user_of_code(self, code: str) -> User | None:
        """Return the user a code is for, without using it up; None for the future first admin.

        Raises SignInError where the code is unknown, used up or too old."""
        self._accounts.refresh()  # the link may be younger than the last refresh
        entry = self._store.code(code, time.time())
        user = None if entry is None or entry.user is None else self._accounts.users.get(entry.user)
        if entry is None or (entry.user is not None and user is None) or (
                entry.user is None and self._accounts.users):
            raise SignInError(HTTPStatus.GONE, USED)
        return user

    def by_code(self, code: str, origin: SignInOrigin) -> SignInResult:
        user = self.user_of_code(code)
        self._use(code)
        assert user is not None, "the first admin has to choose a name"
        return self._enter(user.name, "link", origin)

    def _use(self, code: str) -> None:
        if self._store.use_code(code, time.time()) is None:
            raise SignInError(HTTPStatus.GONE, USED)

    def first_admin(self, code: str, typed: str, password: str, repeated: str,
                    origin: SignInOrigin) -> SignInResult:
        name = typed.strip().casefold()
        if self.user_of_code(code) is not None:
            raise SignInError(HTTPStatus.GONE, USED)
        hashed = self._new_password(name, password, repeated)
        self._use(code)
        user = User(name, Role.ADMIN, Scope((EVERYTHING,)), hashed, time.time())
        try:
            with self._change(name, "add", origin, {"role": "admin", "groups": [EVERYTHING]}):
                self._store.add_user(user, is_first=True)
        except InvalidChangeError as error:
            raise SignInError(HTTPStatus.GONE, str(error)) from error
        self._accounts.reload()
        return self._enter(name, "link", origin)

    def set_password(self, code: str, password: str, repeated: str,
                     origin: SignInOrigin) -> SignInResult:
        user = self.user_of_code(code)
        if user is None:
            raise SignInError(HTTPStatus.GONE, USED)
        hashed = self._new_password(user.name, password, repeated)
        self._use(code)
        with self._change(user.name, "change", origin, {"password": "new"}):
            self._store.change_user(user.name, password=hashed)
        self._accounts.reload()
        return self._enter(user.name, "link", origin)

    def _change(self, name: str, action: str, origin: SignInOrigin, detail: dict[str, Any]
                ) -> AbstractContextManager[None]:
        """Record a change made by link in the audit log; its holder counts as the person."""
        return self._audit.change("user", {
            "actor": name, "actor_kind": "person", "address": origin.address, "action": action,
            "detail": {"person": name, "how": "link"} | detail})

    def _new_password(self, name: str, password: str, repeated: str) -> str:
        problem = name_flaw(name) or flaw(password, name) or (
            MISMATCH if password[:MOST_LENGTH] != repeated[:MOST_LENGTH] else None)
        if problem is not None:
            raise SignInError(HTTPStatus.UNPROCESSABLE_ENTITY, problem)
        try:
            return self._passwords.hash(password)
        except PasswordQueueFullError:
            raise _too_many() from None

    # -- a proxy

    def by_proxy(self, typed: str, origin: SignInOrigin) -> SignInResult:
        name = typed.strip().casefold()[:TYPED_CHARS]
        if name not in self._accounts.users:
            self._note(name, origin, "proxy", "refused")
            raise SignInError(HTTPStatus.FORBIDDEN,
                              f"Your proxy says that you are {name!r}, who is not "
                              "known here. Ask an admin to add you.")
        return self._enter(name, "proxy", origin)

    # -- common to all ways

    def _enter(self, name: str, how: str, origin: SignInOrigin) -> SignInResult:
        word, session = self._sessions.begin(name, how, origin.address)
        self._note(name, origin, how, "let in")
        return SignInResult(word, session, self._device_proof(name))

    def _note(self, name: str, origin: SignInOrigin, how: str, outcome: str) -> None:
        self._sign_ins.add(SignInRecord(time.time(), name[:TYPED_CHARS], origin.address, how,
                                        outcome))

    # -- devices

    def _device_proof(self, name: str) -> str:
        """Return a cookie's proof that this device has signed in as this user. It grants no
        access; it only counts its owner's guesses apart from everyone else's."""
        claim = f"{secrets.token_hex(8)}.{time.time() + DEVICE_LASTS_S:.0f}"
        return f"{claim}.{self._seal(name, claim)}"

    def _device(self, proof: str, name: str) -> str | None:
        claim, _, seal = proof.rpartition(".")
        device_id, _, ends = claim.partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(name, claim).encode()):
            return None
        return device_id if time.time() < float(ends) else None

    def _seal(self, name: str, claim: str) -> str:
        return hmac.digest(self._key, f"device {name} {claim}".encode(), "sha256").hex()

    def form_token(self, word: str) -> str:
        """Return the token a form must carry in addition to the cookie that holds `word`."""
        return hmac.digest(self._key, f"form {word}".encode(), "sha256").hex()

    def _lane(self, lane: str, name: str) -> Key:
        hashed = hashlib.blake2b(f"{lane} {name}".encode(), key=self._key, digest_size=8).digest()
        return lane, int.from_bytes(hashed) % KEYS  # type: ignore[return-value]


def _too_many() -> SignInError:
    return SignInError(HTTPStatus.SERVICE_UNAVAILABLE,
                       "Too many sign-ins at the moment. Try again.", 2.0)


def _minutes(seconds: float) -> str:
    minutes = max(1, -int(-seconds // 60))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
