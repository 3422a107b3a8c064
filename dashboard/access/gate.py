"""The gate in front of every request: what it asks for, who sends it, whether it is allowed.

A WSGI middleware that looks at the request line and headers only, never at the body. The decision
is made in policy.py; what the gate found out travels in the environ, and nowhere else.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from http.cookies import CookieError, SimpleCookie
from typing import Any

from flask import Flask, abort, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map

from ..public_url import PublicOrigins
from ..trusted_networks import NOBODY, TrustedProxies
from ..web.answers import ApiError
from .policy import AccessDenial, Actor, CsrfProof, DenialReason, may, row_of
from .service import AccountService
from .store import Session

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]
Headers = list[tuple[str, str]]

MAX_BODY_BYTES = 1_000_000
MAX_STRANGERS_BODY_BYTES = 16_384
CSRF_HEADER = "HTTP_X_CSRFTOKEN"
SOCKETS = "/socket.io/"
NO_CALLBACK = "this is not a request for a callback of this hub"
CALLBACKS = "/_dash-update-component"
SAFE_METHODS = ("GET", "HEAD")
REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           411: "Length Required", 413: "Content Too Large", 421: "Misdirected Request"}
STATUSES = {DenialReason.UNKNOWN: 401, DenialReason.FORBIDDEN: 403, DenialReason.HIDDEN: 404,
            DenialReason.STALE: 403}
STALE = "urn:gpudeck:problem:stale"  # the `type` by which a page knows to ask for the password


def denial_error(refusal: AccessDenial) -> ApiError:
    return ApiError(STATUSES[refusal.why], refusal.sentence,
                    STALE if refusal.why is DenialReason.STALE else "about:blank")


@dataclass(frozen=True, slots=True)
class CookieNames:
    """Names of this hub's cookies. Browsers do not separate cookies by port, and two tunnels may
    lead to the same port of two machines, so each hub has its own names; over TLS the prefix makes
    browsers refuse them from any other host or path. `csrf` is for scripts: Dash's and ours send it
    back as CSRF_HEADER."""

    session: str
    csrf: str
    form: str
    device: str
    oidc: str
    is_secure: bool

    @classmethod
    def of(cls, hub_id: str, is_secure: bool) -> "CookieNames":
        start, end = "__Host-gpudeck_" if is_secure else "gpudeck_", f"_{hub_id[:8]}"
        return cls(f"{start}session{end}", f"{start}csrf{end}", f"{start}form{end}",
                   f"{start}device{end}",
                   f"{start}oidc{end}", is_secure)


class RequestAuthenticator:
    """Identifies the sender of a request by session, token or trusted proxy."""

    def __init__(self, accounts: AccountService, cookies: CookieNames,
                 proxies: TrustedProxies = NOBODY, proxy_user_header: str | None = None) -> None:
        self._accounts = accounts
        self.cookies = cookies
        self._proxies = proxies
        self._user_header = None if proxy_user_header is None else (
            "HTTP_" + proxy_user_header.upper().replace("-", "_"))

    def address(self, environ: Environ) -> str:
        return self._proxies.client(environ.get("REMOTE_ADDR", ""),
                                    environ.get("HTTP_X_FORWARDED_FOR", ""))

    def proxy_user(self, environ: Environ) -> str | None:
        """Return the user a trusted proxy names; the header is ignored from any other peer."""
        if self._user_header is None or not self._proxies.hold(environ.get("REMOTE_ADDR", "")):
            return None
        return environ.get(self._user_header) or None

    def by_token(self, header: str) -> Actor | None:
        scheme, _, word = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self._accounts.program(word.strip())

    def session(self, environ: Environ) -> Session | None:
        word = cookie_word(environ, self.cookies.session)
        session = None if word is None else self._accounts.session(word)
        if session is None:
            return None
        proxy_user = self.proxy_user(environ)
        if proxy_user is None and session.how != "proxy":
            return session
        # The proxy's header counts at every request: signing out there signs out here.
        same = proxy_user is not None and proxy_user.strip().casefold() == session.user
        return session if same else None

    def person(self, environ: Environ) -> Actor | None:
        session = self.session(environ)
        return None if session is None else self._accounts.person(session)

    def csrf(self, environ: Environ) -> str:
        return csrf_of(cookie_word(environ, self.cookies.session) or "")

    def is_csrf_right(self, environ: Environ, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.csrf(environ).encode())


def csrf_of(word: str) -> str:
    """Derive the CSRF token from the session's secret, so that nothing more has to be stored."""
    return hashlib.sha256(f"csrf {word}".encode()).hexdigest()[:43]


def cookie_word(environ: Environ, name: str) -> str | None:
    try:
        morsel = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def verb_of(url_map: Map, environ: Environ) -> str | None:
    """Return what Flask will run for this request, as the table names it; None: nothing."""
    if environ["PATH_INFO"].startswith(SOCKETS):
        return f"GET {SOCKETS}"
    try:
        rule, _ = url_map.bind_to_environ(environ).match(return_rule=True)
    except HTTPException:
        return None
    method = environ["REQUEST_METHOD"]
    return f"{'GET' if method == 'HEAD' else method} {rule.rule}"


def verbs_in(url_map: Map) -> set[str]:
    return {f"{method} {rule.rule}" for rule in url_map.iter_rules()
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}


class AccessGate:
    """The middleware. `policy` gives the Content-Security-Policy, which is known only once every
    page is registered."""

    def __init__(self, app: Wsgi, auth: RequestAuthenticator, url_map: Map,
                 site: Callable[[], PublicOrigins],
                 policy: Callable[[], str]) -> None:
        self._app = app
        self._auth = auth
        self._url_map = url_map
        self._site = site
        self._policy = policy

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start = self._with_headers(environ, start_response)
        for name in ("gpudeck.actor", "gpudeck.verb"):
            environ.pop(name, None)
        try:
            actor = self._actor(environ)
        except ApiError as error:
            return self._deny(environ, start, error)
        if actor is not None:
            environ["gpudeck.actor"] = replace(actor, address=environ["gpudeck.address"])
            # Here an agent only claims to be one; the agents' socket asks for the proof.
            if actor.kind != "agent":
                environ["gpudeck.connection"].trust()
        return self._app(environ, start)

    def _actor(self, environ: Environ) -> Actor | None:
        if not self._site().knows(environ):
            raise ApiError(421, "this hub does not answer under that host name")
        verb = environ["gpudeck.verb"] = verb_of(self._url_map, environ)
        environ["gpudeck.address"] = self._auth.address(environ)
        row = row_of(verb)
        if row is not None and row.is_open:
            _check_body(environ, MAX_STRANGERS_BODY_BYTES)
            if row.proof is CsrfProof.FORM:
                self._check_origin(environ)
            return None
        _check_body(environ, MAX_BODY_BYTES)
        actor = self._identify(environ)
        refusal = may(actor, verb, None, time.time())
        if refusal is not None:
            raise denial_error(refusal)
        return actor

    def _identify(self, environ: Environ) -> Actor | None:
        is_socket = environ["PATH_INFO"].startswith(SOCKETS)
        if "HTTP_AUTHORIZATION" in environ:
            # Never the cookie as well: a wrong token is a mistake that its sender must see.
            self._check_program(environ)
            actor = self._auth.by_token(environ["HTTP_AUTHORIZATION"])
            if actor is None:
                raise ApiError(401, "this token is not valid here")
            return actor
        if is_socket and may_be_agent(environ):
            return Actor("agent")
        person = self._auth.person(environ)
        if person is None:
            return None
        if is_socket and not self._site().is_own_origin(environ):
            raise ApiError(403, "the socket was opened by another site")
        # Methods that no row names need it as well: only safe methods go without.
        if not is_socket and environ["REQUEST_METHOD"] not in SAFE_METHODS:
            self._check_origin(environ)
            if not self._auth.is_csrf_right(environ, environ.get(CSRF_HEADER, "")):
                raise ApiError(403, "the CSRF token is missing or wrong; load the page again")
        return person

    def _check_origin(self, environ: Environ) -> None:
        if (not self._site().is_own_origin(environ)
                or environ.get("HTTP_SEC_FETCH_SITE", "same-origin") != "same-origin"):
            raise ApiError(403, "the request comes from another site")

    def _check_program(self, environ: Environ) -> None:
        """Refuse a token from another origin. Programs send no Origin, except websocket-client,
        which python-socketio uses: it sends the hub's own."""
        if "HTTP_ORIGIN" in environ and not self._site().is_own_origin(environ):
            raise ApiError(403, "a token is for programs, not for pages of another site")

    # -- answers

    def _with_headers(self, environ: Environ, start_response: StartResponse) -> StartResponse:
        def start(status: str, headers: Headers, *rest: Any) -> Any:
            present = {name.lower() for name, _ in headers}
            extra = [pair for pair in self._headers(environ) if pair[0].lower() not in present]
            return start_response(status, headers + extra, *rest)
        return start

    def _headers(self, environ: Environ) -> Headers:
        return [
            ("Content-Security-Policy", self._policy()),
            ("X-Content-Type-Options", "nosniff"),
            *([("Strict-Transport-Security", f"max-age={365 * 86_400}")]
              if self._site().is_secure else []),
            # With no-referrer, browsers send `Origin: null` with our own forms, too.
            ("Referrer-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store" if is_private(environ["PATH_INFO"]) else "no-cache"),
        ]

    def _deny(self, environ: Environ, start: StartResponse, error: ApiError) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        wants_page = environ["REQUEST_METHOD"] in SAFE_METHODS and not path.startswith(
            ("/api/", "/metrics", "/socket.io/", "/_dash"))
        if error.status == 401 and wants_page:
            start("303 See Other", [("Location", "/sign-in"), ("Content-Length", "0")])
            return [b""]
        body = json.dumps({"type": error.type, "title": REASONS[error.status],
                           "status": error.status, "detail": error.detail}).encode()
        headers = [("Content-Type", "application/problem+json"),
                   ("Content-Length", str(len(body))), ("Connection", "close")]
        if error.status == 401:
            headers.append(("WWW-Authenticate", 'Bearer realm="gpudeck"'))
        start(f"{error.status} {REASONS[error.status]}", headers)
        return [body if environ["REQUEST_METHOD"] != "HEAD" else b""]


def may_be_agent(environ: Environ) -> bool:
    """Tell whether this is a websocket that no browser opened: browsers always send Origin."""
    return (environ["REQUEST_METHOD"] == "GET"
            and environ.get("HTTP_UPGRADE", "").lower() == "websocket"
            and "HTTP_ORIGIN" not in environ and "HTTP_COOKIE" not in environ)


def is_private(path: str) -> bool:
    return not path.startswith(("/assets/", "/_dash-component-suites/"))


def _check_body(environ: Environ, max_bytes: int) -> None:
    if "HTTP_TRANSFER_ENCODING" in environ:
        raise ApiError(411, "send a Content-Length instead of a chunked body")
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isascii() or not length.isdigit():
        raise ApiError(400, "the body's length is not a number")
    if len(length) > 12 or int(length) > max_bytes:
        raise ApiError(413, f"a body of more than {max_bytes} bytes is not accepted")


# -- behind the gate, checked again


def add_second_check(server: Flask) -> None:
    """Abort with 403 unless Flask runs what the gate was asked about: a request that reached Flask
    another way was not checked at all."""
    @server.before_request
    def second_check() -> None:
        if request.url_rule is None:
            return
        method = "GET" if request.method == "HEAD" else request.method
        if request.environ.get("gpudeck.verb") != f"{method} {request.url_rule.rule}":
            abort(403)


def guard_callbacks(server: Flask, callbacks: dict[str, dict[str, Any]]) -> list[str]:
    """Wrap each Dash callback itself in `may`, so that what a request's body claims to be cannot
    matter there; return the verbs for the table."""
    for endpoint in {rule.endpoint for rule in server.url_map.iter_rules()
                     if rule.rule == CALLBACKS}:
        server.view_functions[endpoint] = _readable(server.view_functions[endpoint])
    on_server = [output for output, entry in callbacks.items() if "callback" in entry]
    for output in on_server:
        callbacks[output]["callback"] = _guarded(f"callback {output}",
                                                 callbacks[output]["callback"])
    return [f"callback {output}" for output in on_server]


def _readable(view: Callable[..., Any]) -> Callable[..., Any]:
    """Answer 400 where a body breaks Dash's parser, which checks nothing: what fails before any
    callback runs is the sender's mistake."""
    @wraps(view)
    def guarded_view(*arguments: Any, **options: Any) -> Any:
        if not _has_inputs(request.get_json(silent=True)):
            abort(400, NO_CALLBACK)
        try:
            return view(*arguments, **options)
        except HTTPException:
            raise
        except Exception:
            if g.get("callback_runs", False):
                raise
            abort(400, NO_CALLBACK)
    return guarded_view


def _has_inputs(body: Any) -> bool:
    """Tell whether the body has inputs: without any, a callback would fail as if by our fault."""
    inputs = body.get("inputs") if isinstance(body, dict) else None
    return isinstance(inputs, list) and bool(inputs) and all(
        isinstance(entry, dict | list) for entry in inputs)


def _guarded(verb: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def guarded(*arguments: Any, **options: Any) -> Any:
        if may(request.environ.get("gpudeck.actor"), verb, None, time.time()) is not None:
            abort(403)
        g.callback_runs = True
        return callback(*arguments, **options)
    return guarded


def policy(script_hashes: Iterable[str] = ()) -> str:
    """Return the Content-Security-Policy. Mantine and ag-grid set styles from scripts; Dash's own
    inline scripts are allowed by their hash."""
    scripts = " ".join(["'self'", *(f"'{word.strip(chr(39))}'" for word in script_hashes)])
    return "; ".join([
        "default-src 'none'", f"script-src {scripts}", "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:", "font-src 'self' data:", "connect-src 'self'",
        "manifest-src 'self'", "worker-src 'self'", "form-action 'self'", "frame-ancestors 'none'",
        "object-src 'none'", "base-uri 'none'"])
