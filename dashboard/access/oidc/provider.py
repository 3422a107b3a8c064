"""Speaks with the provider. Blocks: called in native threads only."""

import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests import RequestException

from .claims import Claims, OidcRefusedError, OidcSettings, checked, issuer

TIMEOUT_S = 10.0
MOST_BYTES = 1_000_000
METADATA_LASTS_S = 3_600.0
KEYS_EVERY_S = 60.0
# Of our own list, never what the token says: `none` and those with a shared secret are forgeries.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
              "Ed25519", "EdDSA"]
NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class OidcProvider:
    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: KeySet | None = None
        self._keys_mono = -KEYS_EVERY_S

    # -- what it says of itself

    def metadata(self) -> dict[str, Any]:
        with self._lock:
            known = self._metadata
            if known is not None and time.monotonic() - known[0] < METADATA_LASTS_S:
                return known[1]
            url = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
            found = self._get(url)
            if found.get("issuer") != self.settings.issuer:
                raise OidcRefusedError(
                    f"The provider calls itself {str(found.get('issuer'))[:200]!r}, and the "
                    f"setting oidc_issuer says {self.settings.issuer!r}. They must be the same, to "
                    "the letter.")
            for name in NEEDED:
                _checked_url(found.get(name), name)
            self._metadata = time.monotonic(), found
            return found

    def known_metadata(self) -> dict[str, Any]:
        """Without asking."""
        return {} if self._metadata is None else self._metadata[1]

    def _get(self, url: str, bearer: str | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"} | (
            {} if bearer is None else {"Authorization": f"Bearer {bearer}"})
        try:
            with self._opener.open(urllib.request.Request(url, headers=headers),
                                   timeout=TIMEOUT_S) as answer:
                body = answer.read(MOST_BYTES + 1)
        except (urllib.error.URLError, OSError) as error:
            raise OidcRefusedError(f"The provider cannot be reached ({_why(error)}). Try again, or "
                                   "sign in with a password.") from error
        try:
            found = json.loads(body) if len(body) <= MOST_BYTES else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise OidcRefusedError("The provider's answer cannot be read.")
        return found

    # -- signing in

    def authorization_url(self, redirect_uri: str, state: str, nonce: str, verifier: str,
                          is_fresh: bool) -> str:
        more = {"prompt": "login", "max_age": "0"} if is_fresh else {}
        url, _ = self._session(redirect_uri).create_authorization_url(
            self.metadata()["authorization_endpoint"], state=state, code_verifier=verifier,
            nonce=nonce, **more)
        return str(url)

    def claims_for(self, code: str, verifier: str, nonce: str, redirect_uri: str
                   ) -> tuple[Claims, str]:
        """And the ID token. Groups that are not in it are asked for."""
        token = self._token(code, verifier, redirect_uri)
        raw = token.get("id_token")
        if not isinstance(raw, str):
            raise OidcRefusedError("The provider gave no ID token.")
        claims = dict(checked(self._signed(raw), self.settings, time.time()))
        if not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise OidcRefusedError("The token is not for this sign-in. Try again.")
        url, word = self.metadata().get("userinfo_endpoint"), token.get("access_token")
        if self._lacks(claims) and isinstance(url, str) and isinstance(word, str):
            more = self._get(_checked_url(url, "userinfo_endpoint"), word)
            if more.get("sub") != claims["sub"]:
                raise OidcRefusedError("The provider named two different people.")
            claims = more | claims
        return claims, raw

    def _lacks(self, claims: Claims) -> bool:
        first = self.settings.groups_claim.split(".")[0]
        return self.settings.name_claim not in claims or not (
            self.settings.groups_claim in claims or first in claims)

    def _token(self, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        try:
            found = self._session(redirect_uri).fetch_token(
                self.metadata()["token_endpoint"], grant_type="authorization_code", code=code,
                code_verifier=verifier, timeout=TIMEOUT_S, allow_redirects=False)
        except AuthlibBaseError as error:
            raise OidcRefusedError(f"The provider refuses this sign-in ({error.error}).") from error
        except (RequestException, ValueError) as error:
            raise OidcRefusedError("The provider cannot be reached for the token "
                                   f"({type(error).__name__}). Try again.") from error
        return dict(found)

    def _session(self, redirect_uri: str) -> Any:
        known, secret = self.settings, self.settings.client_secret
        offered = self.known_metadata().get("token_endpoint_auth_methods_supported")
        by_post = isinstance(offered, list) and "client_secret_basic" not in offered
        how = "none" if secret is None else (
            "client_secret_post" if by_post else "client_secret_basic")
        return OAuth2Session(known.client_id, secret, how, scope=known.scopes,
                             redirect_uri=redirect_uri, code_challenge_method="S256")

    # -- tokens

    def _signed(self, raw: str) -> dict[str, Any]:
        """Its claims, if its signature is right. A key that is not known may be new."""
        for is_again in (False, True):
            try:
                return dict(jwt.decode(raw, self._key_set(is_again), algorithms=ALGORITHMS).claims)
            except (JoseError, ValueError) as error:
                if is_again:
                    raise OidcRefusedError("The token's signature is not the provider's "
                                           f"({type(error).__name__}).") from error
        raise AssertionError("unreachable")

    def _key_set(self, is_anew: bool) -> KeySet:
        with self._lock:
            since_s = time.monotonic() - self._keys_mono
            if self._keys is not None and (not is_anew or since_s < KEYS_EVERY_S):
                return self._keys
        url = self.metadata()["jwks_uri"]
        found = KeySet.import_key_set(self._get(url))  # type: ignore[arg-type]
        with self._lock:
            self._keys, self._keys_mono = found, time.monotonic()
        return found

    def logout_claims(self, raw: str) -> Claims:
        """Of a back-channel logout."""
        self.metadata()
        claims = checked(self._signed(raw), self.settings, time.time())
        events = claims.get("events")
        if "nonce" in claims or not isinstance(events, dict) or (
                "http://schemas.openid.net/event/backchannel-logout" not in events):
            raise OidcRefusedError("This is not a logout token.")
        return claims

    def end_session_url(self, id_token: str | None, back_to: str) -> str | None:
        """None: it offers none, or is not known yet."""
        at = self.known_metadata().get("end_session_endpoint")
        if not isinstance(at, str):
            return None
        query = {"client_id": self.settings.client_id, "post_logout_redirect_uri": back_to} | (
            {} if id_token is None else {"id_token_hint": id_token})
        return f"{at}{'&' if '?' in at else '?'}{urlencode(query)}"


def _checked_url(url: Any, name: str) -> str:
    try:
        return issuer(str(url).partition("?")[0]) and str(url)
    except ValueError as error:
        raise OidcRefusedError(f"The provider's {name} is not an https URL.") from error


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers {error.code}"
    return str(getattr(error, "reason", error))[:120]
