"""Sign-ins that have been begun at the provider, and what comes back from there."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from ...errors import InvalidChangeError
from ..credentials import SignInError, SignInOrigin, SignInResult
from ..policy import FRESH_S, Role, Scope
from ..protocols import AuditLog
from ..services import AccessServices
from ..store import OidcStore, Session, SignInRecord, User
from .claims import Claims, Identity, OidcRefusedError, OidcSettings, identity

BEGUN_LASTS_S = 600.0
MOST_BEGUN = 1_000
FRESHLY_S = 60.0  # how long ago somebody may have typed a password who was asked for it now
LASTS_S = 8 * 3_600.0  # roles are as old as the sign-in



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
class BegunSignIn:
    """`fresh_for`: the session of somebody who signs in once more."""

    nonce: str
    verifier: str
    browser: bytes
    began_mono: float
    fresh_for: str | None


class OidcService:
    def __init__(self, provider: Provider, store: OidcStore, access: AccessServices,
                 audit: AuditLog, url: Callable[[], str],
                 in_thread: Callable[[Callable[[], Any]], Any]) -> None:
        self._provider, self._store = provider, store
        self._access, self._accounts = access, access.accounts
        self._audit, self._url, self._in_thread = audit, url, in_thread
        self._begun: OrderedDict[str, BegunSignIn] = OrderedDict()
        self._logouts: OrderedDict[str, float] = OrderedDict()

    @property
    def redirect_uri(self) -> str:
        """Of the configured URL: whatever a request says of its host."""
        return f"{self._url()}/sign-in/oidc/callback"

    def begin(self, browser: str, fresh_for: str | None) -> str:
        """Where the browser goes now; `browser`: what its cookie says."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with _SaidOnPage():
            where: str = self._in_thread(lambda: self._provider.metadata() and (
                self._provider.authorization_url(self.redirect_uri, state, nonce, verifier,
                                                 fresh_for is not None)))
        now = time.monotonic()
        self._begun[state] = BegunSignIn(nonce, verifier, _digest(browser), now, fresh_for)
        while len(self._begun) > MOST_BEGUN:
            self._begun.popitem(last=False)
        return where

    def finish(self, given: Mapping[str, str], browser: str, origin: SignInOrigin) -> SignInResult:
        begun = self._begun.pop(given.get("state", ""), None)  # once, whatever comes of it
        if begun is None or time.monotonic() - begun.began_mono > BEGUN_LASTS_S or (
                not hmac.compare_digest(begun.browser, _digest(browser))):
            raise _refused("This sign-in was not started in this browser, was used already, or is "
                           "too old. Try again.")
        if "error" in given:
            raise _refused(f"The provider says: {given.get('error_description') or given['error']}"
                           [:300])
        with _SaidOnPage():
            claims, id_token = self._in_thread(lambda: self._claims(given, begun))
            who = identity(claims, self._provider.settings)
        if begun.fresh_for is not None:
            return self._again(who, begun.fresh_for, origin)
        name = self._user(who, origin)
        fresh_until = None if who.auth_time is None else who.auth_time + FRESH_S
        entered = self._access.sessions.begin_for(name, origin.address, LASTS_S, fresh_until)
        self._store.put_session(entered[1].id, who.issuer, who.subject, who.sid, id_token)
        return self._entered(entered, "oidc", origin)

    def _entered(self, entered: tuple[str, Session], how: str, origin: SignInOrigin
                 ) -> SignInResult:
        self._access.sign_ins.add(SignInRecord(time.time(), entered[1].user, origin.address, how,
                                               "let in"))
        return SignInResult(*entered)

    def _claims(self, given: Mapping[str, str], begun: BegunSignIn) -> tuple[Claims, str]:
        said = self._provider.metadata()
        answered_by = given.get("iss")
        # RFC 9207: another provider's code is not brought to this one.
        must = said.get("authorization_response_iss_parameter_supported") is True
        if (must or answered_by is not None) and answered_by != self._provider.settings.issuer:
            raise OidcRefusedError("The answer came from another provider.")
        if not given.get("code"):
            raise OidcRefusedError("The provider gave no code.")
        return self._provider.claims_for(given["code"], begun.verifier, begun.nonce,
                                         self.redirect_uri)

    # -- who it is here

    def _user(self, who: Identity, origin: SignInOrigin) -> str:
        known = self._store.user_of(who.issuer, who.subject)
        user = None if known is None else self._accounts.users.get(known)
        try:
            return self._add(who, origin) if user is None else self._change(user, who, origin)
        except InvalidChangeError as error:
            raise _refused(f"{error}.") from error

    def _add(self, who: Identity, origin: SignInOrigin) -> str:
        """A name that somebody else has here is not taken over, whatever the provider says."""
        if who.name in self._accounts.users:
            raise _refused(f"There is another user {who.name!r} here, who does not sign in this "
                           "way. An admin removes that one, or you get another name.")
        user = User(who.name, who.role, _scope(who, who.name), None, time.time())
        with self._recorded("add", who, who.name, origin):
            self._store.add_user(user, who.issuer, who.subject)
        self._accounts.reload()
        return who.name

    def _change(self, user: User, who: Identity, origin: SignInOrigin) -> str:
        scope = _scope(who, user.name)
        if (user.role, user.scope) != (who.role, scope):
            with self._recorded("change", who, user.name, origin):
                self._store.change_user(user.name, who.role, scope)
            self._accounts.reload()
        return user.name

    def _recorded(self, action: str, who: Identity, name: str, origin: SignInOrigin) -> Any:
        return self._audit.change("user", {
            "actor": name, "actor_kind": "person", "address": origin.address, "action": action,
            "detail": {"person": name, "how": "oidc", "subject": who.subject[:128],
                       "role": str(who.role), "groups": list(who.groups)}})

    def _again(self, who: Identity, credential: str, origin: SignInOrigin) -> SignInResult:
        session = self._accounts.session_of(credential)
        known = self._store.user_of(who.issuer, who.subject)
        if session is None or session.user != known:
            raise _refused("You signed in again as somebody else; sign out first.")
        if who.auth_time is None or time.time() - who.auth_time > FRESHLY_S:
            raise _refused("The provider did not ask you to sign in again, so nothing is "
                           "confirmed.")
        return self._entered(self._access.sessions.renew(credential, time.time() + FRESH_S),
                             "again", origin)

    # -- out again

    def sign_out_url(self, credential: str) -> str | None:
        """To be asked before the session ends. None: it is not of the provider."""
        known = self._store.id_token(credential)
        if known is None:
            return None
        return self._provider.end_session_url(known, f"{self._url()}/sign-in")

    def logged_out(self, raw: str) -> None:
        """Handle a back-channel logout: the provider ends sessions without a request from us."""
        with _SaidOnPage():
            claims: Claims = self._in_thread(lambda: self._provider.logout_claims(raw))
        once = str(claims.get("jti", ""))
        if not once or once in self._logouts:
            raise _refused("This logout token was used already.")
        self._logouts[once] = time.time()
        while len(self._logouts) > MOST_BEGUN:
            self._logouts.popitem(last=False)
        subject, sid = claims.get("sub"), claims.get("sid")
        ids = self._store.sessions_of(self._provider.settings.issuer,
                                      subject if isinstance(subject, str) else None,
                                      sid if isinstance(sid, str) else None)
        if ids:
            with self._audit.change("session", {
                    "actor": "the OIDC provider", "actor_kind": "program", "action": "end",
                    "detail": {"sessions": len(ids)}}, takes_away=True):
                self._store.end(ids)
            self._accounts.reload()


class _SaidOnPage:
    """What the provider's side refuses, as the sign-in page says it."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, OidcRefusedError):
            raise _refused(str(error)) from error


def _refused(sentence: str) -> SignInError:
    return SignInError(HTTPStatus.FORBIDDEN, sentence)


def _scope(who: Identity, name: str) -> Scope:
    """Who is called alice there is alice on the nodes, too."""
    return Scope(who.groups, (name,) if who.role is not Role.VIEWER else ())


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
