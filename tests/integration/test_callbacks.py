"""T2: what the body of a Dash callback claims to be opens nothing."""

import io
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dash
import pytest
from flask import Flask

from dashboard.access import policy
from dashboard.access.gate import (
    AccessGate,
    CookieNames,
    RequestAuthenticator,
    add_second_check,
    csrf_of,
    guard_callbacks,
)
from dashboard.access.passwords import PasswordService
from dashboard.access.policy import Permission, Role, Scope
from dashboard.access.services import AccessServices
from dashboard.access.store import AccountsStore, User, new_token
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.sign_in_notes import SignInWriter
from dashboard.audit.store import AuditStore
from dashboard.public_url import PublicOrigins
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from tests.integration.visitors import QUICK

HOST = "127.0.0.1:8050"
EVERYWHERE = Scope(("*",))


class Trusting:
    def trust(self) -> None:
        pass


class Guarded:
    """A Dash app behind the real gate, with one callback for admins and one for all."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[str] = []
        self.server = Flask("guarded")
        self.server.url_map._rules.clear()
        add_second_check(self.server)
        app = self._app()
        app._setup_server()
        self.verbs = guard_callbacks(self.server, app.callback_map)
        for output, role in (("secret.children", Role.ADMIN), ("open.children", Role.VIEWER)):
            verb = f"callback {output}"
            monkeypatch.setitem(policy.TABLE, verb, Permission(verb, ("person",), role))
        self._admit(folder)

    def _app(self) -> dash.Dash:
        app = dash.Dash("guarded", server=self.server)  # type: ignore[arg-type]
        app.layout = dash.html.Div([dash.html.Div(id="secret"), dash.html.Div(id="open"),
                                    dash.dcc.Input(id="asked")])

        @app.callback(dash.Output("secret", "children"), dash.Input("asked", "value"))
        def secret(value: Any) -> str:
            self.ran.append("secret")
            return "the secret"

        @app.callback(dash.Output("open", "children"), dash.Input("asked", "value"))
        def everyone(value: Any) -> str:
            self.ran.append("open")
            return "hello"
        return app

    def _admit(self, folder: Path) -> None:
        self.state = HubState.open(folder)
        for name, role in (("root", Role.ADMIN), ("vic", Role.VIEWER)):
            self.state.store(AccountsStore).add_user(User(name, role, EVERYWHERE, None, 0.0))
        events = Dispatcher()
        access = AccessServices(self.state, SignInWriter(self.state), PasswordService(QUICK),
                                AuditRecorder(self.state.store(AuditStore), None, events), events)
        auth = RequestAuthenticator(access.accounts, CookieNames.of("8050", False))
        self.gate = AccessGate(self.server.wsgi_app, auth, self.server.url_map,
                               lambda: PublicOrigins.at("127.0.0.1", 8050), lambda: "")
        self.words = {name: access.sessions.begin(name, "link", "")[0] for name in ("root", "vic")}
        word, token = new_token("ci", Role.ADMIN, EVERYWHERE, "", time.time(), time.time() + 60)
        self.state.store(AccountsStore).add_token(replace(token, used_at=time.time()))
        access.accounts.reload()
        self.token = word

    def post(self, body: bytes, user: str | None = None, **environ: str) -> int:
        wsgi: dict[str, Any] = {
            "REQUEST_METHOD": "POST", "PATH_INFO": "/_dash-update-component", "HTTP_HOST": HOST,
            "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "8050", "wsgi.url_scheme": "http",
            "REMOTE_ADDR": "127.0.0.1", "CONTENT_LENGTH": str(len(body)), "QUERY_STRING": "",
            "CONTENT_TYPE": "application/json", "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(), "gpudeck.connection": Trusting(), **environ}
        if user is not None:
            wsgi |= {"HTTP_COOKIE": f"gpudeck_session_8050={self.words[user]}",
                     "HTTP_ORIGIN": f"http://{HOST}", "HTTP_X_CSRFTOKEN": csrf_of(self.words[user])}
        statuses: list[str] = []
        list(self.gate(wsgi, lambda status, headers, *_: statuses.append(status)))
        return int(statuses[0].split()[0])


@pytest.fixture(name="guarded")
def _guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, monkeypatch)
    yield guarded
    guarded.state.close()


def body(output: str, prop: str = "value", value: Any = 1, **more: Any) -> dict[str, Any]:
    ident, _, name = output.partition(".")
    return {"output": output, "outputs": {"id": ident, "property": name},
            "inputs": [{"id": "asked", "property": prop, "value": value}],
            "changedPropIds": [f"asked.{prop}"], "state": [], **more}


def test_an_honest_call_runs(guarded: Guarded) -> None:
    assert guarded.verbs == ["callback secret.children", "callback open.children"]
    assert guarded.post(json.dumps(body("secret.children")).encode(), "root") == 200
    assert guarded.post(json.dumps(body("open.children")).encode(), "vic") == 200
    assert guarded.ran == ["secret", "open"]


def test_the_request_that_opened_dash_auth(guarded: Guarded) -> None:
    """An input that claims the property `pathname`, with a public path."""
    forged = body("secret.children", "pathname", "/public")
    for headers in ({}, {"HTTP_ORIGIN": f"http://{HOST}"}, {"HTTP_AUTHORIZATION": "Bearer x"}):
        assert guarded.post(json.dumps(forged).encode(), **headers) == 401
    assert guarded.post(json.dumps(forged).encode(),
                        HTTP_AUTHORIZATION=f"Bearer {guarded.token}") == 403
    assert guarded.ran == []


def test_a_role_is_asked_for_by_the_callback_itself(guarded: Guarded) -> None:
    assert guarded.post(json.dumps(body("secret.children")).encode(), "vic") == 403
    assert guarded.ran == []


@pytest.mark.parametrize("payload", [
    {"output": "open.children"}, {"output": "open.children", "inputs": []},
    {"output": "open.children", "inputs": {"id": "asked"}}, [], None, "open.children"])
def test_a_call_without_inputs_is_the_senders_mistake(guarded: Guarded, payload: Any) -> None:
    """Found by examiners: 500, and a traceback in the log."""
    assert guarded.post(json.dumps(payload).encode(), "vic") == 400
    assert guarded.ran == []


PARTS = ("output", "outputs", "inputs", "changedPropIds", "state", "public_callback", "background")
PIECES: tuple[Any, ...] = (
    None, True, 0, -1, 1e308, "", "secret.children", "open.children", "..secret.children..",
    "..secret.children...open.children..", "pathname", "/", "/public", "secret", "x" * 5_000,
    {"id": "secret", "property": "children"}, {"id": {"type": "secret"}, "property": "children"},
    [{"id": "asked", "property": "pathname", "value": "/public"}], [], {}, [[[]]], "\u202e", "\x00")


def mutated_body(chance: random.Random) -> bytes:
    forged = body(chance.choice(("secret.children", "open.children")))
    for _ in range(chance.randrange(1, 4)):
        part = chance.choice(PARTS)
        if chance.random() < 0.3:
            forged.pop(part, None)
        else:
            forged[part] = chance.choice(PIECES)
    encoded = json.dumps(forged).encode()
    if chance.random() < 0.2:
        at = chance.randrange(len(encoded))
        encoded = encoded[:at] + chance.randbytes(chance.randrange(9)) + encoded[at + 1:]
    return encoded


def test_ten_thousand_mutated_bodies(guarded: Guarded) -> None:
    chance = random.Random(random.random())
    for _ in range(8_000):
        assert guarded.post(mutated_body(chance)) == 401
    assert guarded.ran == []
    statuses = {guarded.post(mutated_body(chance), "vic") for _ in range(2_000)}
    assert "secret" not in guarded.ran
    # 500: Dash breaks on what surrounds a callback that this viewer may run.
    assert statuses <= {200, 204, 400, 403, 500}
