"""The gate, request by request, without a server."""

import itertools
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from flask import Flask

from dashboard.access.events import CredentialEnded
from dashboard.access.gate import AccessGate, CookieNames, RequestAuthenticator, csrf_of, policy
from dashboard.access.passwords import PasswordService
from dashboard.access.policy import Role, Scope
from dashboard.access.services import AccessServices
from dashboard.access.store import AccountsStore, User, new_token
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.sign_in_notes import SignInWriter
from dashboard.audit.store import AuditStore
from dashboard.openapi.routes import PERMISSIONS
from dashboard.public_url import PublicOrigins
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from dashboard.trusted_networks import NOBODY, TrustedProxies, proxies

HOST = "127.0.0.1:8050"
ORIGIN = f"http://{HOST}"
EVERYWHERE = Scope(("*",))
QUICK = PasswordHasher(1, 8, 1)


def every_route() -> Flask:
    """Return an application with every route of the table and empty handlers."""
    server = Flask("gate")
    server.url_map._rules.clear()
    for row in PERMISSIONS:
        method, _, path = row.verb.partition(" ")
        if path != "/socket.io/":
            server.add_url_rule(path, row.verb, lambda **_: "", methods=[method],
                                provide_automatic_options=False)
    return server


def access_to(state: HubState, events: Dispatcher | None = None) -> AccessServices:
    events = events or Dispatcher()
    audit = AuditRecorder(state.store(AuditStore), None, events)
    return AccessServices(state, SignInWriter(state), PasswordService(QUICK), audit, events)


class GateClient:
    """Client of a gate whose application notes the actor it lets in."""

    def __init__(self, folder: Path, trusted: TrustedProxies = NOBODY,
                 user_header: str | None = None) -> None:
        folder.chmod(0o700)
        self.state = HubState.open(folder)
        self.state.store(AccountsStore).add_user(User("alice", Role.ADMIN, EVERYWHERE, None, 0.0))
        self.events = Dispatcher()
        self.access = access_to(self.state, self.events)
        self.accounts, self.sessions = self.access.accounts, self.access.sessions
        self.auth = RequestAuthenticator(self.accounts, CookieNames.of("8050", False), trusted,
                                         user_header)
        self.gate = AccessGate(self._app, self.auth, every_route().url_map,
                               lambda: PublicOrigins.at("127.0.0.1", 8050), policy)
        self.word, self.session = self.sessions.begin("alice", "link", "127.0.0.1")
        self.token, _ = self.access.admin.add_token(
            self.accounts.person(self.session), "ci", Role.VIEWER, EVERYWHERE, time.time() + 60)
        self.actor: Any = None

    def _app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.actor = environ.get("gpudeck.actor")
        start_response("200 OK", [])
        return [b"in"]

    def trust(self) -> None:
        self.is_trusted = True

    def __call__(self, path: str, method: str = "GET", **environ: str) -> int:
        request: dict[str, Any] = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": HOST,
            "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "8050", "wsgi.url_scheme": "http",
            "REMOTE_ADDR": "127.0.0.1", "gpudeck.connection": self, **environ}
        response: list[Any] = []
        self.actor, self.is_trusted = None, False
        list(self.gate(request, lambda status, headers: response.extend((status, headers))))
        self.headers = dict(response[1])
        return int(response[0].split()[0])

    @property
    def cookie(self) -> str:
        return f"gpudeck_session_8050={self.word}"

    @property
    def csrf(self) -> str:
        return csrf_of(self.word)


@pytest.fixture(name="client")
def _client(tmp_path: Path) -> GateClient:
    return GateClient(tmp_path)


CLOSED = ["/", "/gpu/x", "/_dash-layout", "/_dash-update-component", "/api/v1/gpus", "/api/v1/",
          "/socket.io/", "/anything", "//", "/healthz/", "/sign-in/x", "/sign-inx", "/metrics", "",
          "/../api/v1/gpus", "/api/v1/gpus/%2e%2e/x"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD",
                                    "TRACE", "BREW"])
def test_closed_to_strangers(client: GateClient, method: str) -> None:
    for path in CLOSED:
        assert client(path, method) in (303, 401), path
        assert client.actor is None


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/sign-in", "/assets/css/deck.css"])
def test_open_to_all_for_looking_only(client: GateClient, path: str) -> None:
    assert client(path) == 200
    assert client(path, "DELETE") == 401


def test_a_page_leads_to_sign_in_and_the_api_says_no(client: GateClient) -> None:
    assert client("/fleet") == 303
    assert client.headers["Location"] == "/sign-in"
    assert client("/api/v1/gpus") == 401
    assert client.headers["Content-Type"] == "application/problem+json"


def test_tokens(client: GateClient) -> None:
    program = f"Bearer {client.token}"
    assert client("/api/v1/gpus", HTTP_AUTHORIZATION=program) == 200
    assert (client.actor.kind, client.actor.name, client.actor.role) == ("program", "ci", "viewer")
    assert client("/", HTTP_AUTHORIZATION=program) == 403
    assert client("/api/v1/users", HTTP_AUTHORIZATION=program) == 403
    for wrong in (program[:-1], program + "x", "Bearer", f"Basic {client.token}", client.token,
                  "Bearer  "):
        assert client("/api/v1/gpus", HTTP_AUTHORIZATION=wrong) == 401
        assert client("/socket.io/", HTTP_AUTHORIZATION=wrong) == 401


def test_an_agents_socket_is_one_without_origin_and_cookie(client: GateClient) -> None:
    """The agent edge, which such a socket cannot pass, asks for the proof."""
    upgrade = {"HTTP_UPGRADE": "websocket"}
    assert client("/socket.io/", **upgrade) == 200
    assert client.actor.kind == "agent"
    assert not client.is_trusted
    for path, more in (("/", {}), ("/api/v1/gpus", {}), ("/socket.io/", {"HTTP_ORIGIN": ORIGIN}),
                       ("/socket.io/", {"HTTP_ORIGIN": ""}), ("/socket.io/", {"HTTP_COOKIE": ""}),
                       ("/socket.io/", {"HTTP_AUTHORIZATION": "Bearer x"})):
        assert client(path, **upgrade, **more) in (303, 401), (path, more)
    assert client("/socket.io/", "POST", **upgrade) == 401


def test_an_expired_token_opens_nothing(client: GateClient) -> None:
    word, token = new_token("old", Role.ADMIN, EVERYWHERE, "x", 0.0, time.time() - 1)
    client.state.store(AccountsStore).add_token(replace(token, expires_at=time.time() - 1))
    client.accounts.reload()
    assert client("/api/v1/gpus", HTTP_AUTHORIZATION=f"Bearer {word}") == 401


def test_a_wrong_token_does_not_fall_back_to_the_cookie(client: GateClient) -> None:
    assert client("/api/v1/gpus", HTTP_AUTHORIZATION="Bearer x", HTTP_COOKIE=client.cookie) == 401


# None of them is the hub's own, though each is close to it in somebody's parser.
ORIGINS = [
    "http://good.com.evil.com", "null", "http://127.0.0.1:8051", "HTTP://127.0.0.1:8050",
    "http://127.0.0.1:8050.", "http://127.0.0.1:8050/", "http://user@127.0.0.1:8050",
    "https://127.0.0.1:8050", "http://127.0.0.1", "http://localhost:8050", "",
    "http://127.0.0.1:8050 http://evil", "file://", "http://xn--127-0-0-1:8050",
    "http://127.0.0.1:8050.evil.com", "http://evil.com:8050", "http://127.0.0.1.:8050",
    "http://127.0.0.1:08050", "http://127.0.0.1:8050?", "http://127.0.0.1:8050#",
    "http://127.0.0.1:8050,http://evil", "//127.0.0.1:8050", "127.0.0.1:8050",
    "ws://127.0.0.1:8050",
    "http://2130706433:8050", "http://0x7f.1:8050", "http://127.1:8050", "http://[::1]:8050",
    "http://[::ffff:127.0.0.1]:8050", "http://127.0.0.1:8050\\@evil.com", "http://127.0.0.1\t:8050",
    " http://127.0.0.1:8050", "http://127.0.0.1:8050 ", "http://\u0661\u0662\u0667.0.0.1:8050",
    "chrome-extension://abc", "data:text/html,x"]


def test_the_socket_takes_its_own_origin_only(client: GateClient) -> None:
    """T3."""
    assert len(set(ORIGINS)) >= 30
    for origin in ORIGINS:
        for proof in ({"HTTP_COOKIE": client.cookie},
                      {"HTTP_AUTHORIZATION": f"Bearer {client.token}"}):
            assert client("/socket.io/", HTTP_ORIGIN=origin, **proof) == 403, origin
        assert client("/sign-in", "POST", HTTP_ORIGIN=origin) == 403, origin


def test_a_browser_socket_needs_cookie_and_origin(client: GateClient) -> None:
    assert client("/socket.io/", HTTP_COOKIE=client.cookie) == 403
    assert client("/socket.io/", HTTP_ORIGIN=ORIGIN) == 401
    assert client("/socket.io/", HTTP_COOKIE=client.cookie, HTTP_ORIGIN=ORIGIN) == 200
    assert (client.actor.kind, client.actor.credential) == ("person", client.session.id)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:8051", "",
                                  "127.0.0.1:8050.evil.example", "localhost:8050,evil"])
def test_another_host_name_is_not_answered(client: GateClient, host: str) -> None:
    assert client("/healthz", HTTP_HOST=host) == 421
    assert client("/", HTTP_HOST=host, HTTP_COOKIE=client.cookie) == 421


def test_forwarded_headers_widen_nothing(client: GateClient) -> None:
    """T5."""
    assert client("/socket.io/", HTTP_COOKIE=client.cookie, HTTP_ORIGIN="http://evil.example",
                  HTTP_X_FORWARDED_HOST="evil.example", HTTP_X_FORWARDED_PROTO="http") == 403


def test_a_change_needs_token_and_origin(client: GateClient) -> None:
    good = {"HTTP_COOKIE": client.cookie, "HTTP_ORIGIN": ORIGIN,
            "HTTP_X_CSRFTOKEN": client.csrf}
    for path in ("/sign-out", "/_dash-update-component", "/api/v1/fresh", "/no/such/place"):
        assert client(path, "POST", **good) == 200
        assert client(path, "POST", **good, HTTP_SEC_FETCH_SITE="cross-site") == 403
        for lacking, worse in itertools.product(good, (None, "x")):
            broken = {name: value for name, value in good.items() if name != lacking}
            if worse is not None:
                broken[lacking] = worse
            assert client(path, "POST", **broken) in (401, 403)


def test_bodies_are_bounded_before_they_are_read(client: GateClient) -> None:
    signed_in = {"HTTP_COOKIE": client.cookie, "HTTP_ORIGIN": ORIGIN,
                 "HTTP_X_CSRFTOKEN": client.csrf}
    assert client("/sign-out", "POST", CONTENT_LENGTH="1000001", **signed_in) == 413
    assert client("/sign-out", "POST", HTTP_TRANSFER_ENCODING="chunked", **signed_in) == 411
    assert client("/sign-out", "POST", CONTENT_LENGTH="-1", **signed_in) == 400


def test_an_ended_session_is_none(client: GateClient) -> None:
    ended_credentials: list[str] = []
    client.events.listen(CredentialEnded, lambda event: ended_credentials.append(event.credential))
    assert client("/", HTTP_COOKIE=client.cookie) == 200
    client.sessions.sign_out(client.accounts.person(client.session))
    assert client("/", HTTP_COOKIE=client.cookie) == 303
    assert ended_credentials == [client.session.id]
    assert not access_to(client.state).accounts.holds(client.session.id)


def test_sessions_outlive_a_restart_and_secrets_are_not_kept(client: GateClient,
                                                             tmp_path: Path) -> None:
    assert access_to(client.state).accounts.holds(client.session.id)
    code = client.state.store(AccountsStore).add_code("alice", 2e9)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    for word in (client.word, client.csrf, client.token, code):
        assert word.encode() not in stored


def test_a_code_works_once_and_for_ten_minutes(client: GateClient) -> None:
    accounts = client.state.store(AccountsStore)
    code = accounts.add_code(None, 1_000.0)
    assert accounts.use_code("x" + code, 1_001.0) is None
    assert accounts.use_code(code, 1_599.0) is not None
    assert accounts.use_code(code, 1_599.0) is None
    late = accounts.add_code(None, 1_000.0)
    assert accounts.use_code(late, 1_600.0) is None


# -- a proxy that vouches


def test_only_a_trusted_proxy_vouches(tmp_path: Path) -> None:
    client = GateClient(tmp_path, proxies("10.0.0.0/24"), "X-Forwarded-User")
    user_header = {"HTTP_X_FORWARDED_USER": "alice"}
    for address, user in (("10.0.0.7", "alice"), ("10.0.1.7", None), ("127.0.0.1", None)):
        assert client.auth.proxy_user({"REMOTE_ADDR": address, **user_header}) == user


def test_a_vouched_session_lives_by_the_proxys_word(tmp_path: Path) -> None:
    client = GateClient(tmp_path, proxies("10.0.0.7"), "X-Forwarded-User")
    client.word, client.session = client.sessions.begin("alice", "proxy", "192.0.2.1")
    by_proxy = {"REMOTE_ADDR": "10.0.0.7", "HTTP_COOKIE": client.cookie}
    assert client("/", HTTP_X_FORWARDED_USER="alice", **by_proxy) == 200
    assert client("/", HTTP_X_FORWARDED_USER="bob", **by_proxy) == 303
    assert client("/", **by_proxy) == 303
    assert client("/", HTTP_COOKIE=client.cookie, HTTP_X_FORWARDED_USER="alice") == 303


def test_off_by_default(client: GateClient) -> None:
    assert client.auth.proxy_user({"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_USER": "a",
                                   "HTTP_REMOTE_USER": "a"}) is None


@pytest.mark.parametrize(("peer", "forwarded", "client"), [
    ("192.0.2.9", "10.0.0.1", "192.0.2.9"),  # no proxy of ours: not believed
    ("10.0.0.7", "203.0.113.5", "203.0.113.5"),
    ("10.0.0.7", "1.2.3.4, 203.0.113.5", "203.0.113.5"),  # the left one it wrote itself
    ("10.0.0.7", "203.0.113.5, 10.0.0.8", "203.0.113.5"),
    ("10.0.0.7", "<script>, 10.0.0.8", "10.0.0.8"),
    ("10.0.0.7", "", "10.0.0.7"),
    ("unix", "1.2.3.4", "unix"),
])
def test_who_asks_from_where(peer: str, forwarded: str, client: str) -> None:
    assert proxies("10.0.0.0/24").client(peer, forwarded) == client


def test_every_answer_carries_the_headers(client: GateClient) -> None:
    for path in ("/healthz", "/", "/api/v1/gpus", "/assets/x.css"):
        client(path)
        assert "script-src 'self'" in client.headers["Content-Security-Policy"]
        assert "unsafe-eval" not in client.headers["Content-Security-Policy"]
        assert client.headers["X-Content-Type-Options"] == "nosniff"
        assert client.headers["Referrer-Policy"] == "same-origin"
