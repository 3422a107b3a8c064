"""Client of the provider. It blocks, so it is called in native threads only."""

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

from .claims import Claims, OidcRefusedError, OidcSettings, issuer, validated_claims

TIMEOUT_S = 10.0
MOST_BYTES = 1_000_000
METADATA_LASTS_S = 3_600.0
KEYS_EVERY_S = 60.0
# Our own list, never what the token says: `none` and shared-secret algorithms mean a forgery.
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

    # -- metadata

    def metadata(self) -> dict[str, Any]:
        with self._lock:
            cached = self._metadata
            if cached is not None and time.monotonic() - cached[0] < METADATA_LASTS_S:
                return cached[1]
            url = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
            metadata = self._get(url)
            if metadata.get("issuer") != self.settings.issuer:
                raise OidcRefusedError(
                    f"The provider calls itself {str(metadata.get('issuer'))[:200]!r}, and the "
                    f"setting oidc_issuer says {self.settings.issuer!r}. They must be the same, to "
                    "the letter.")
            for name in NEEDED:
                _checked_url(metadata.get(name), name)
            self._metadata = time.monotonic(), metadata
            return metadata

    def known_metadata(self) -> dict[str, Any]:
        """Return the metadata read last, without a request; empty before the first."""
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
            parsed = json.loads(body) if len(body) <= MOST_BYTES else None
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise OidcRefusedError("The provider's answer cannot be read.")
        return parsed

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
        """Return the claims and the ID token; a name or groups missing there are fetched from
        userinfo."""
        token = self._token(code, verifier, redirect_uri)
        raw = token.get("id_token")
        if not isinstance(raw, str):
            raise OidcRefusedError("The provider gave no ID token.")
        claims = dict(validated_claims(self._signed(raw), self.settings, time.time()))
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
            token = self._session(redirect_uri).fetch_token(
                self.metadata()["token_endpoint"], grant_type="authorization_code", code=code,
                code_verifier=verifier, timeout=TIMEOUT_S, allow_redirects=False)
        except AuthlibBaseError as error:
            raise OidcRefusedError(f"The provider refuses this sign-in ({error.error}).") from error
        except (RequestException, ValueError) as error:
            raise OidcRefusedError("The provider cannot be reached for the token "
                                   f"({type(error).__name__}). Try again.") from error
        return dict(token)

    def _session(self, redirect_uri: str) -> Any:
        settings, secret = self.settings, self.settings.client_secret
        offered = self.known_metadata().get("token_endpoint_auth_methods_supported")
        by_post = isinstance(offered, list) and "client_secret_basic" not in offered
        how = "none" if secret is None else (
            "client_secret_post" if by_post else "client_secret_basic")
        return OAuth2Session(settings.client_id, secret, how, scope=settings.scopes,
                             redirect_uri=redirect_uri, code_challenge_method="S256")

    # -- tokens

    def _signed(self, raw: str) -> dict[str, Any]:
        """Verify the token's signature and return its claims. An unknown key may be new, so keys
        are fetched again once."""
        for is_retry in (False, True):
            try:
                return dict(jwt.decode(raw, self._key_set(is_retry), algorithms=ALGORITHMS).claims)
            except (JoseError, ValueError) as error:
                if is_retry:
                    raise OidcRefusedError("The token's signature is not the provider's "
                                           f"({type(error).__name__}).") from error
        raise AssertionError("unreachable")

    def _key_set(self, is_refresh: bool) -> KeySet:
        with self._lock:
            since_s = time.monotonic() - self._keys_mono
            if self._keys is not None and (not is_refresh or since_s < KEYS_EVERY_S):
                return self._keys
        url = self.metadata()["jwks_uri"]
        keys = KeySet.import_key_set(self._get(url))  # type: ignore[arg-type]
        with self._lock:
            self._keys, self._keys_mono = keys, time.monotonic()
        return keys

    def logout_claims(self, raw: str) -> Claims:
        """Return the claims of a back-channel logout token."""
        self.metadata()
        claims = validated_claims(self._signed(raw), self.settings, time.time())
        events = claims.get("events")
        if "nonce" in claims or not isinstance(events, dict) or (
                "http://schemas.openid.net/event/backchannel-logout" not in events):
            raise OidcRefusedError("This is not a logout token.")
        return claims

    def end_session_url(self, id_token: str | None, back_to: str) -> str | None:
        """Return the URL that signs out at the provider; None: it offers none, or its metadata has
        not been read yet."""
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
