"""Who asks, and may they: one gate in front of everything, closed where the table says nothing.

A WSGI middleware that looks at the request line and headers only, never at the body. What it
found out travels in the environ; socket edges read it there and nowhere else.
"""

import hmac
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from http.cookies import CookieError, SimpleCookie
from typing import Any, Literal

from .state import Session, State, digest

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]
Headers = list[tuple[str, str]]

MAX_BODY_BYTES = 1_000_000
CSRF_COOKIE = "_csrf_token"  # Dash's own default: its callbacks send it back as CSRF_HEADER
CSRF_HEADER = "HTTP_X_CSRFTOKEN"
SAFE_METHODS = ("GET", "HEAD")
REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 411: "Length Required",
           413: "Content Too Large", 421: "Misdirected Request"}


class Who(Enum):
    ANYONE = "anyone"
    PERSON = "a signed-in person"
    READER = "a signed-in person or a program with the API token"
    SOCKET = "an agent, a program or a signed-in person, each with its own proof"


@dataclass(frozen=True, slots=True)
class Row:
    methods: tuple[str, ...] | None  # None: any
    path: str  # ends with /: all below it
    who: Who

    def fits(self, method: str, path: str) -> bool:
        if self.methods is not None and method not in self.methods:
            return False
        return path.startswith(self.path) if self.path.endswith("/") else path == self.path


# The whole of it: the first row that fits decides. The last one closes everything else.
ROUTES: tuple[Row, ...] = (
    Row(SAFE_METHODS, "/healthz", Who.ANYONE),
    Row(SAFE_METHODS, "/readyz", Who.ANYONE),
    Row(SAFE_METHODS, "/sign-in", Who.ANYONE),
    Row(SAFE_METHODS, "/assets/", Who.ANYONE),
    Row(None, "/api/v1/", Who.READER),
    Row(None, "/socket.io/", Who.SOCKET),
    Row(None, "/", Who.PERSON),
)

Kind = Literal["agent", "program", "person"]

# Socket.IO: namespace and event -> which actors. An event without a row disconnects its sender.
EVENTS: dict[tuple[str, str], tuple[Kind, ...]] = {
    ("/agent", "connect"): ("agent",),
    ("/agent", "wire"): ("agent",),
    ("/live", "connect"): ("person", "program"),
    ("/live", "watch"): ("person", "program"),
    ("/live", "hide"): ("person", "program"),
    ("/live", "tap"): ("program",),
}


@dataclass(frozen=True, slots=True)
class Actor:
    kind: Kind
    session: bytes | None = None


class Denied(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(slots=True)
class Site:
    """Under which names this hub answers. `Host` must be one of them exactly: a page elsewhere
    that rebinds its own name to us has another."""

    hosts: frozenset[str]
    scheme: str = "http"

    @classmethod
    def at(cls, host: str, port: int) -> "Site":
        bound = f"[{host}]" if ":" in host else host
        names = {"127.0.0.1", "localhost", "[::1]", bound}
        ports = ("", ":80") if port == 80 else (f":{port}",)
        return cls(frozenset(name + end for name in names for end in ports))

    def is_own_origin(self, environ: Environ) -> bool:
        host = environ.get("HTTP_HOST", "")
        return host in self.hosts and environ.get("HTTP_ORIGIN") == f"{self.scheme}://{host}"


class Auth:
    """Sessions, codes and tokens. Sessions are read once and then held: a look-up per request
    must not touch the disk."""

    def __init__(self, state: State, agent_token: str, api_token: str, cookie: str) -> None:
        self._state = state
        self._agent = digest(agent_token)
        self._api = digest(api_token)
        self.cookie = cookie
        self._sessions = {session.key: session for session in state.sessions(time.time())}
        self.on_end: list[Callable[[bytes], None]] = []

    def by_token(self, header: str) -> Actor | None:
        scheme, _, word = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        given = digest(word.strip())
        is_agent = hmac.compare_digest(given, self._agent)
        is_program = hmac.compare_digest(given, self._api)
        return Actor("agent") if is_agent else Actor("program") if is_program else None

    def session(self, environ: Environ) -> Session | None:
        word = cookie_word(environ, self.cookie)
        if word is None:
            return None
        session = self._sessions.get(digest(word))
        return session if session is not None and time.time() < session.ends_at else None

    def holds(self, key: bytes) -> bool:
        session = self._sessions.get(key)
        return session is not None and time.time() < session.ends_at

    def sign_in(self, code: str) -> tuple[str, Session] | None:
        if not self._state.use_code(code, time.time()):
            return None
        word, session = self._state.add_session(time.time())
        self._sessions[session.key] = session
        return word, session

    def sign_out(self, key: bytes) -> None:
        self._sessions.pop(key, None)
        self._state.end_session(key)
        for tell in self.on_end:
            tell(key)


def cookie_word(environ: Environ, name: str) -> str | None:
    try:
        morsel = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


class Gate:
    """The middleware. `policy` gives the Content-Security-Policy, which is known only once every
    page is registered."""

    def __init__(self, app: Wsgi, auth: Auth, site: Callable[[], Site],
                 policy: Callable[[], str]) -> None:
        self._app = app
        self._auth = auth
        self._site = site
        self._policy = policy

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start = self._with_headers(environ, start_response)
        environ.pop("gpudeck.actor", None)
        try:
            actor = self._actor(environ)
        except Denied as denied:
            return self._deny(environ, start, denied)
        if actor is not None:
            environ["gpudeck.actor"] = actor
            environ["gpudeck.connection"].trust()
        return self._app(environ, start)

    def _actor(self, environ: Environ) -> Actor | None:
        if environ.get("HTTP_HOST", "") not in self._site().hosts:
            raise Denied(421, "this hub does not answer under that host name")
        _check_body(environ)
        who = who_may(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if who is Who.ANYONE:
            return None
        if who is Who.SOCKET:
            return self._socket_actor(environ)
        if "HTTP_AUTHORIZATION" in environ:
            return self._token_actor(environ, who)
        return self._session_actor(environ)

    def _token_actor(self, environ: Environ, who: Who) -> Actor:
        actor = self._auth.by_token(environ["HTTP_AUTHORIZATION"])
        if actor is None or actor.kind != "program" or who is not Who.READER:
            raise Denied(401, "this token does not open this")
        self._check_program(environ)
        return actor

    def _session_actor(self, environ: Environ) -> Actor:
        session = self._auth.session(environ)
        if session is None:
            raise Denied(401, "sign in, or send the API token as a Bearer token")
        if environ["REQUEST_METHOD"] not in SAFE_METHODS:
            if not self._site().is_own_origin(environ):
                raise Denied(403, "the request comes from another site")
            if not hmac.compare_digest(environ.get(CSRF_HEADER, "").encode(),
                                       session.csrf.encode()):
                raise Denied(403, "the CSRF token is missing or wrong; load the page again")
        return Actor("person", session.key)

    def _socket_actor(self, environ: Environ) -> Actor:
        if "HTTP_AUTHORIZATION" in environ:
            self._check_program(environ)
            actor = self._auth.by_token(environ["HTTP_AUTHORIZATION"])
            if actor is None:
                raise Denied(401, "this token is not known here")
            return actor
        session = self._auth.session(environ)
        if session is None:
            raise Denied(401, "sign in, or send a Bearer token")
        if not self._site().is_own_origin(environ):
            raise Denied(403, "the socket was opened by another site")
        return Actor("person", session.key)

    def _check_program(self, environ: Environ) -> None:
        """Programs send no Origin, save for websocket-client, on which python-socketio stands: it
        sends the hub's own."""
        if "HTTP_ORIGIN" in environ and not self._site().is_own_origin(environ):
            raise Denied(403, "a token is for programs, not for pages of another site")

    # -- answers

    def _with_headers(self, environ: Environ, start_response: StartResponse) -> StartResponse:
        def start(status: str, headers: Headers, *rest: Any) -> Any:
            given = {name.lower() for name, _ in headers}
            extra = [pair for pair in self._headers(environ) if pair[0].lower() not in given]
            return start_response(status, headers + extra, *rest)
        return start

    def _headers(self, environ: Environ) -> Headers:
        return [
            ("Content-Security-Policy", self._policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store" if is_private(environ["PATH_INFO"]) else "no-cache"),
        ]

    def _deny(self, environ: Environ, start: StartResponse, denied: Denied) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        wants_page = environ["REQUEST_METHOD"] in SAFE_METHODS and not path.startswith(
            ("/api/", "/socket.io/", "/_dash"))
        if denied.status == 401 and wants_page:
            start("303 See Other", [("Location", "/sign-in"), ("Content-Length", "0")])
            return [b""]
        body = json.dumps({"type": "about:blank", "title": REASONS[denied.status],
                           "status": denied.status, "detail": denied.detail}).encode()
        headers = [("Content-Type", "application/problem+json"),
                   ("Content-Length", str(len(body))), ("Connection", "close")]
        if denied.status == 401:
            headers.append(("WWW-Authenticate", 'Bearer realm="gpudeck"'))
        start(f"{denied.status} {REASONS[denied.status]}", headers)
        return [body if environ["REQUEST_METHOD"] != "HEAD" else b""]


def who_may(method: str, path: str) -> Who:
    return next((row.who for row in ROUTES if row.fits(method, path)), Who.PERSON)


def is_private(path: str) -> bool:
    return not path.startswith(("/assets/", "/_dash-component-suites/"))


def _check_body(environ: Environ) -> None:
    if "HTTP_TRANSFER_ENCODING" in environ:
        raise Denied(411, "say the body's length instead of sending it in chunks")
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isascii() or not length.isdigit():
        raise Denied(400, "the body's length is not a number")
    if int(length) > MAX_BODY_BYTES:
        raise Denied(413, f"a body of more than {MAX_BODY_BYTES} bytes is not taken")


def may(actor: Actor | None, namespace: str, event: str) -> bool:
    return actor is not None and actor.kind in EVENTS.get((namespace, event), ())


def policy(script_hashes: Iterable[str] = ()) -> str:
    """mantine and ag-grid set styles from scripts; Dash's own inline scripts go by their hash."""
    scripts = " ".join(["'self'", *(f"'{word.strip(chr(39))}'" for word in script_hashes)])
    return "; ".join([
        "default-src 'none'", f"script-src {scripts}", "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:", "font-src 'self' data:", "connect-src 'self'",
        "manifest-src 'self'", "worker-src 'self'", "form-action 'self'", "frame-ancestors 'none'",
        "object-src 'none'", "base-uri 'none'"])
