"""The gate, request by request, without a server."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dashboard.auth import EVENTS, ROUTES, Actor, Auth, Gate, Site, Who, may, policy, who_may
from dashboard.state import State

HOST = "127.0.0.1:8050"
ORIGIN = f"http://{HOST}"


class Trusting:
    def trust(self) -> None:
        pass


class Asked:
    """The gate in front of an application that says who came in."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.state = State(folder)
        self.auth = Auth(self.state, "agent-word", "api-word", "gpudeck_session_8050")
        self.gate = Gate(self._app, self.auth, lambda: Site.at("127.0.0.1", 8050), policy)
        signed_in = self.auth.sign_in(self.state.add_code(2e9))
        assert signed_in is not None
        self.word, self.session = signed_in
        self.actor: Actor | None = None

    def _app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.actor = environ.get("gpudeck.actor")
        start_response("200 OK", [])
        return [b"in"]

    def __call__(self, path: str, method: str = "GET", **environ: str) -> int:
        asked: dict[str, Any] = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": HOST,
            "gpudeck.connection": Trusting(), **environ}
        told: list[Any] = []
        self.actor = None
        list(self.gate(asked, lambda status, headers: told.extend((status, headers))))
        self.headers = dict(told[1])
        return int(told[0].split()[0])

    @property
    def cookie(self) -> str:
        return f"gpudeck_session_8050={self.word}"


@pytest.fixture(name="asked")
def _asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


@pytest.mark.parametrize("path", ["/", "/gpu/x", "/_dash-layout", "/_dash-update-component",
                                  "/api/v1/gpus", "/api/v1/", "/socket.io/", "/anything", "//",
                                  "/healthz/", "/sign-in/x", "/sign-inx", "/metrics", ""])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_closed_to_strangers(asked: Asked, path: str, method: str) -> None:
    assert asked(path, method) in (303, 401)
    assert asked.actor is None


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/sign-in", "/assets/deck.css"])
def test_open_to_all_for_looking_only(asked: Asked, path: str) -> None:
    assert asked(path) == 200
    assert asked(path, "POST") == 401


def test_a_page_leads_to_sign_in_and_the_api_says_no(asked: Asked) -> None:
    assert asked("/fleet") == 303
    assert asked.headers["Location"] == "/sign-in"
    assert asked("/api/v1/gpus") == 401
    assert asked.headers["Content-Type"] == "application/problem+json"


def test_tokens(asked: Asked) -> None:
    program, agent = "Bearer api-word", "Bearer agent-word"
    assert asked("/api/v1/gpus", HTTP_AUTHORIZATION=program) == 200
    assert asked.actor == Actor("program")
    assert asked("/api/v1/gpus", HTTP_AUTHORIZATION=agent) == 401
    assert asked("/", HTTP_AUTHORIZATION=program) in (303, 401)
    assert asked("/socket.io/", HTTP_AUTHORIZATION=agent) == 200
    assert asked.actor == Actor("agent")
    for wrong in ("Bearer api-wor", "Bearer", "Basic api-word", "api-word", "Bearer  "):
        assert asked("/api/v1/gpus", HTTP_AUTHORIZATION=wrong) == 401
        assert asked("/socket.io/", HTTP_AUTHORIZATION=wrong) == 401


def test_a_wrong_token_does_not_fall_back_to_the_cookie(asked: Asked) -> None:
    assert asked("/api/v1/gpus", HTTP_AUTHORIZATION="Bearer x", HTTP_COOKIE=asked.cookie) == 401


ORIGINS = ["http://good.com.evil.com", "null", "http://127.0.0.1:8051", "HTTP://127.0.0.1:8050",
           "http://127.0.0.1:8050.", "http://127.0.0.1:8050/", "http://user@127.0.0.1:8050",
           "https://127.0.0.1:8050", "http://127.0.0.1", "http://localhost:8050", "",
           "http://127.0.0.1:8050 http://evil", "file://", "http://xn--127-0-0-1:8050"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_socket_takes_its_own_origin_only(asked: Asked, origin: str) -> None:
    assert asked("/socket.io/", HTTP_COOKIE=asked.cookie, HTTP_ORIGIN=origin) == 403
    assert asked("/socket.io/", HTTP_AUTHORIZATION="Bearer agent-word", HTTP_ORIGIN=origin) == 403


def test_a_browser_socket_needs_cookie_and_origin(asked: Asked) -> None:
    assert asked("/socket.io/", HTTP_COOKIE=asked.cookie) == 403
    assert asked("/socket.io/", HTTP_ORIGIN=ORIGIN) == 401
    assert asked("/socket.io/", HTTP_COOKIE=asked.cookie, HTTP_ORIGIN=ORIGIN) == 200
    assert asked.actor == Actor("person", asked.session.key)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:8051", "",
                                  "127.0.0.1:8050.evil.example", "localhost:8050,evil"])
def test_another_host_name_is_not_answered(asked: Asked, host: str) -> None:
    assert asked("/healthz", HTTP_HOST=host) == 421
    assert asked("/", HTTP_HOST=host, HTTP_COOKIE=asked.cookie) == 421


def test_forwarded_headers_widen_nothing(asked: Asked) -> None:
    assert asked("/socket.io/", HTTP_COOKIE=asked.cookie, HTTP_ORIGIN="http://evil.example",
                 HTTP_X_FORWARDED_HOST="evil.example", HTTP_X_FORWARDED_PROTO="http") == 403


def test_a_change_needs_token_and_origin(asked: Asked) -> None:
    good = {"HTTP_COOKIE": asked.cookie, "HTTP_ORIGIN": ORIGIN,
            "HTTP_X_CSRFTOKEN": asked.session.csrf}
    for path in ("/sign-out", "/_dash-update-component", "/api/v1/commands"):
        assert asked(path, "POST", **good) == 200
        for lacking, worse in itertools.product(good, (None, "x")):
            broken = {name: value for name, value in good.items() if name != lacking}
            if worse is not None:
                broken[lacking] = worse
            assert asked(path, "POST", **broken) in (401, 403)


def test_bodies_are_bounded_before_they_are_read(asked: Asked) -> None:
    signed_in = {"HTTP_COOKIE": asked.cookie, "HTTP_ORIGIN": ORIGIN,
                 "HTTP_X_CSRFTOKEN": asked.session.csrf}
    assert asked("/sign-out", "POST", CONTENT_LENGTH="1000001", **signed_in) == 413
    assert asked("/sign-out", "POST", HTTP_TRANSFER_ENCODING="chunked", **signed_in) == 411
    assert asked("/sign-out", "POST", CONTENT_LENGTH="-1", **signed_in) == 400


def test_an_ended_session_is_none(asked: Asked) -> None:
    told: list[bytes] = []
    asked.auth.on_end.append(told.append)
    assert asked("/", HTTP_COOKIE=asked.cookie) == 200
    asked.auth.sign_out(asked.session.key)
    assert asked("/", HTTP_COOKIE=asked.cookie) == 303
    assert told == [asked.session.key]
    anew = Auth(asked.state, "a", "b", "gpudeck_session_8050")
    assert not anew.holds(asked.session.key)


def test_sessions_outlive_a_restart_and_secrets_are_not_kept(asked: Asked, tmp_path: Path) -> None:
    anew = Auth(asked.state, "a", "b", "gpudeck_session_8050")
    assert anew.holds(asked.session.key)
    code = asked.state.add_code(2e9)
    held = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert asked.word.encode() not in held
    assert code.encode() not in held


def test_a_code_works_once_and_for_ten_minutes(asked: Asked) -> None:
    code = asked.state.add_code(1_000.0)
    assert not asked.state.use_code("x" + code, 1_001.0)
    assert asked.state.use_code(code, 1_599.0)
    assert not asked.state.use_code(code, 1_599.0)
    late = asked.state.add_code(1_000.0)
    assert not asked.state.use_code(late, 1_600.0)


def test_every_answer_carries_the_headers(asked: Asked) -> None:
    for path in ("/healthz", "/", "/api/v1/gpus", "/assets/x.css"):
        asked(path)
        assert "script-src 'self'" in asked.headers["Content-Security-Policy"]
        assert "unsafe-eval" not in asked.headers["Content-Security-Policy"]
        assert asked.headers["X-Content-Type-Options"] == "nosniff"
        assert asked.headers["Referrer-Policy"] == "no-referrer"


def test_the_last_row_closes_everything_else() -> None:
    assert ROUTES[-1].methods is None
    assert ROUTES[-1].who is Who.PERSON
    assert {row.path for row in ROUTES if row.who is Who.ANYONE} == {
        "/healthz", "/readyz", "/sign-in", "/assets/"}
    assert who_may("BREW", "/healthz") is Who.PERSON


@pytest.mark.parametrize("namespace", ["/agent", "/live", "/", "/admin"])
def test_events_by_actor(namespace: str) -> None:
    for event, kind in itertools.product(("connect", "wire", "watch", "hide", "tap", "message"),
                                         ("agent", "program", "person")):
        allowed = kind in EVENTS.get((namespace, event), ())
        assert may(Actor(kind), namespace, event) == allowed  # type: ignore[arg-type]
        assert not may(None, namespace, event)
    assert not may(Actor("agent"), "/live", "connect")
    assert not may(Actor("program"), "/agent", "connect")
    assert not may(Actor("person"), "/agent", "wire")
