"""Sign-ins pending at the provider, and their completion when it sends the browser back."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from ...errors import InvalidChangeError
from ..credentials import SignInError, SignInOrigin, SignInResult
from ..policy import FRESH_S, Role, Scope
from ..protocols import AuditLog
from ..services import AccessServices
from ..store import OidcStore, Session, SignInRecord, User
from .claims import (
    Claims,
    Identity,
    NoRoleError,
    OidcRefusedError,
    OidcSettings,
    groups_of,
    identity,
    memberships_of,
)
from .groups import ProviderGroups

PENDING_LASTS_S = 600.0
MAX_PENDING = 1_000
FRESHLY_S = 60.0  # largest age of a sign-in that the provider was asked to repeat
LASTS_S = 8 * 3_600.0  # short, because roles are read only at sign-in


class Provider(Protocol):
    settings: OidcSettings

    def metadata(self) -> dict[str, Any]: ...

    def authorization_url(self, redirect_uri: str, state: str, nonce: str, verifier: str,
                          is_fresh: bool) -> str: ...

    def claims_for(self, code: str, verifier: str, nonce: str, redirect_uri: str
                   ) -> tuple[Claims, str]: ...

    def logout_claims(self, raw: str) -> Claims: ...

    def end_session_url(self, id_token: str | None, back_to: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in started at the provider. `fresh_for`: id of the session it is to confirm."""

    nonce: str
    verifier: str
    browser: bytes
    started_mono: float
    fresh_for: str | None


class OidcService:
    def __init__(self, provider: Provider, store: OidcStore, groups: ProviderGroups,
                 access: AccessServices, audit: AuditLog, url: Callable[[], str],
                 in_thread: Callable[[Callable[[], Any]], Any]) -> None:
        self._provider, self._store, self._groups = provider, store, groups
        self._access, self._accounts = access, access.accounts
        self._audit, self._url, self._in_thread = audit, url, in_thread
        self._pending: OrderedDict[str, PendingSignIn] = OrderedDict()
        self._logouts: OrderedDict[str, float] = OrderedDict()

    @property
    def redirect_uri(self) -> str:
        """Redirect URI, made from the configured URL and not from a request's Host header."""
        return f"{self._url()}/sign-in/oidc/callback"

    def begin(self, browser: str, fresh_for: str | None) -> str:
        """Begin a sign-in and return the URL for the browser. `browser`: its cookie's value."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with _ErrorsOnPage():
            url: str = self._in_thread(lambda: self._provider.metadata() and (
                self._provider.authorization_url(self.redirect_uri, state, nonce, verifier,
                                                 fresh_for is not None)))
        now = time.monotonic()
        self._pending[state] = PendingSignIn(nonce, verifier, _digest(browser), now, fresh_for)
        while len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)
        return url

    def finish(self, params: Mapping[str, str], browser: str, origin: SignInOrigin) -> SignInResult:
        pending = self._pending.pop(params.get("state", ""), None)  # once, whatever comes of it
        if pending is None or time.monotonic() - pending.started_mono > PENDING_LASTS_S or (
                not hmac.compare_digest(pending.browser, _digest(browser))):
            raise _refusal("This sign-in was not started in this browser, was used already, or is "
                           "too old. Try again.")
        if "error" in params:
            words = params.get("error_description") or params["error"]
            raise _refusal(f"The provider says: {words}"[:300])
        with _ErrorsOnPage():
            claims, id_token = self._in_thread(lambda: self._claims(params, pending))
            person = self._identity(claims)
        if pending.fresh_for is not None:
            return self._confirm(person, pending.fresh_for, origin)
        name = self._user(person, origin)
        self._groups.put(name, person.memberships)
        fresh_until = None if person.auth_time is None else person.auth_time + FRESH_S
        word, session = self._access.sessions.begin_for(name, origin.address, LASTS_S, fresh_until)
        self._store.put_session(session.id, person.issuer, person.subject, person.sid, id_token)
        return self._record_sign_in((word, session), "oidc", origin)

    def _record_sign_in(self, issued: tuple[str, Session], how: str, origin: SignInOrigin
                        ) -> SignInResult:
        self._access.sign_ins.add(SignInRecord(time.time(), issued[1].user, origin.address, how,
                                               "let in"))
        return SignInResult(*issued)

    def _claims(self, params: Mapping[str, str], pending: PendingSignIn) -> tuple[Claims, str]:
        metadata = self._provider.metadata()
        answered_by = params.get("iss")
        # RFC 9207: another provider's code is not sent to this one.
        must = metadata.get("authorization_response_iss_parameter_supported") is True
        if (must or answered_by is not None) and answered_by != self._provider.settings.issuer:
            raise OidcRefusedError("The answer came from another provider.")
        if not params.get("code"):
            raise OidcRefusedError("The provider gave no code.")
        return self._provider.claims_for(params["code"], pending.verifier, pending.nonce,
                                         self.redirect_uri)

    # -- the user

    def _identity(self, claims: Claims) -> Identity:
        """Return who signs in. Somebody who has lost every role here leaves their team too, and
        what is still open by an earlier sign-in ends."""
        settings = self._provider.settings
        try:
            return identity(claims, settings)
        except NoRoleError:
            issuer, subject = str(claims["iss"]), str(claims["sub"])
            if (name := self._store.user_of(issuer, subject)) is not None:
                self._groups.put(name, memberships_of(groups_of(claims, settings.groups_claim)))
                self._end_sessions(self._store.sessions_of(issuer, subject, None))
            raise

    def _user(self, person: Identity, origin: SignInOrigin) -> str:
        name = self._store.user_of(person.issuer, person.subject)
        user = None if name is None else self._accounts.users.get(name)
        try:
            return self._add(person, origin) if user is None else self._change(user, person, origin)
        except InvalidChangeError as error:
            raise _refusal(f"{error}.") from error

    def _add(self, person: Identity, origin: SignInOrigin) -> str:
        """Add a user. A name that another user has here is refused, whatever the provider says."""
        if person.name in self._accounts.users:
            raise _refusal(f"There is another user {person.name!r} here, who does not sign in this "
                           "way. An admin removes that one, or you get another name.")
        user = User(person.name, person.role, _scope(person, person.name), None, time.time())
        with self._record_change("add", person, person.name, origin):
            self._store.add_user(user, person.issuer, person.subject)
        self._accounts.reload()
        return person.name

    def _change(self, user: User, person: Identity, origin: SignInOrigin) -> str:
        scope = _scope(person, user.name)
        if (user.role, user.scope) != (person.role, scope):
            with self._record_change("change", person, user.name, origin):
                self._store.change_user(user.name, person.role, scope)
            self._accounts.reload()
        return user.name

    def _record_change(self, action: str, person: Identity, name: str, origin: SignInOrigin) -> Any:
        return self._audit.change("user", {
            "actor": name, "actor_kind": "person", "address": origin.address, "action": action,
            "detail": {"person": name, "how": "oidc", "subject": person.subject[:128],
                       "role": str(person.role), "groups": list(person.groups)}})

    def _confirm(self, person: Identity, credential: str, origin: SignInOrigin) -> SignInResult:
        session = self._accounts.session_of(credential)
        name = self._store.user_of(person.issuer, person.subject)
        if session is None or session.user != name:
            raise _refusal("You signed in again as somebody else; sign out first.")
        if person.auth_time is None or time.time() - person.auth_time > FRESHLY_S:
            raise _refusal("The provider did not ask you to sign in again, so nothing is "
                           "confirmed.")
        return self._record_sign_in(self._access.sessions.renew(credential, time.time() + FRESH_S),
                                    "again", origin)

    # -- signing out

    def sign_out_url(self, credential: str) -> str | None:
        """Return the provider's URL for signing out; None: the session did not begin there.

        Call it before the session ends."""
        id_token = self._store.id_token(credential)
        if id_token is None:
            return None
        return self._provider.end_session_url(id_token, f"{self._url()}/sign-in")

    def handle_logout(self, raw: str) -> None:
        """Handle a back-channel logout: the provider ends sessions without a request from us."""
        with _ErrorsOnPage():
            claims: Claims = self._in_thread(lambda: self._provider.logout_claims(raw))
        token_id = str(claims.get("jti", ""))
        if not token_id or token_id in self._logouts:
            raise _refusal("This logout token was used already.")
        self._logouts[token_id] = time.time()
        while len(self._logouts) > MAX_PENDING:
            self._logouts.popitem(last=False)
        subject, sid = claims.get("sub"), claims.get("sid")
        self._end_sessions(self._store.sessions_of(
            self._provider.settings.issuer, subject if isinstance(subject, str) else None,
            sid if isinstance(sid, str) else None))

    def _end_sessions(self, ids: Sequence[str]) -> None:
        if ids:
            with self._audit.change("session", {
                    "actor": "the OIDC provider", "actor_kind": "program", "action": "end",
                    "detail": {"sessions": len(ids)}}, takes_away=True):
                self._store.end(ids)
            self._accounts.reload()


class _ErrorsOnPage:
    """Turns OidcRefusedError into a SignInError, which the sign-in page shows."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, OidcRefusedError):
            raise _refusal(str(error)) from error


def _refusal(sentence: str) -> SignInError:
    return SignInError(HTTPStatus.FORBIDDEN, sentence)


def _scope(person: Identity, name: str) -> Scope:
    """Return the scope here; a user's name at the provider counts as the Unix name on the nodes."""
    return Scope(person.groups, (name,) if person.role is not Role.VIEWER else ())


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
