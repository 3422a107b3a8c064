"""Access to a hub: every request from every kind of client. tests/access.csv is kept by hand.

A cell is the HTTP status of a request, or what becomes of a socket; `a|b` is a for a person and b
for a program with the same role and scope. Where only the gate is in question, the target does not
exist or the body is empty: 400 and 404 then mean that the gate let it through.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import websocket
from flask import Flask

from dashboard.access.coverage import verbs
from dashboard.access.policy import CALLBACKS, EVENTS, TABLE, VERBS, Role
from dashboard.access.store import SessionStore, new_session
from dashboard.app import Hub
from dashboard.openapi.routes import PERMISSIONS
from dashboard.settings import HubSettings
from dashboard.state import HubState
from dashboard.web.bounded_socket import BoundedSocketIO
from tests.integration.hubs import HubProcess, RawSocket, WireAgent, one_task, wait_for
from tests.integration.visitors import Visitor, add_person, add_program, open_state, signed_in

ROWS = {row.pop("handler"): row for row in csv.DictReader(
    (Path(__file__).resolve().parents[1] / "access.csv").read_text().splitlines())}
STRANGERS = ("none", "agent")
BAD = ("bad", "expired")
KNOWN = {"viewer": ("viewer", "*"), "user": ("user", "*"), "operator": ("operator", "*"),
         "admin": ("admin", "*"), "stale admin": ("admin", "*"),
         "wrong scope": ("operator", "elsewhere")}
COLUMNS = (*STRANGERS, *BAD, *KNOWN)

FILLED = {
    "<path:filename>": "css/tokens.css", "<file>": "none.mjs", "<path:path>": "nothing/here",
    "<name>": "nobody-at-all", "<path:name>": "nobody-at-all",
    "<unix_name>": "nobody-at-all",
    "<token_id>": "t00", "<enrolment_id>": "e00", "<node_id>": "n00", "<session_id>": "s00",
    "<rule_id>": "r00", "<backtest_id>": "b00", "<quota_id>": "q00", "<silence_id>": "z00",
    "<receiver_id>": "r00", "<notice_id>": "n00", "<command_id>": "c00", "<plan_id>": "p00",
    "<path:uuid>": "GPU-n1-0",
    "<path:task_id>": "boot-1:100:5", "<path:job_id>": "boot-1:100:6",
    "<string:package_name>/<path:fingerprinted_path>": "dash/html/dash_html_components.min.js",
}
ENDS_SESSIONS = ("POST /sign-out", "POST /api/v1/sign-out-everywhere")


class Crowd:
    """Clients of one hub, one of each kind."""

    def __init__(self, hub: HubProcess, agent: WireAgent) -> None:
        self.hub = hub
        self.agent = agent
        self._visitors: dict[str, Visitor] = {}
        self._tokens: dict[str, str] = {}
        for column, (role, group) in KNOWN.items():
            add_person(hub, column.replace(" ", "-"), role, [group])
            self._tokens[column] = add_program(hub, role, [group])
        self._tokens |= {"bad": "gpdk_" + "x" * 43,
                         "expired": add_program(hub, "admin", lasts_s=-1)}
        self.expired = self._old_session()

    def _old_session(self) -> Visitor:
        visitor = signed_in(self.hub, "admin")
        name = self.session_name = visitor.cookie_name("session")
        with open_state(self.hub) as state:
            word, session = new_session("admin", "link", "", 0.0)
            state.store(SessionStore).add(session)
        visitor.cookies[name] = word
        return visitor

    def person(self, column: str) -> Visitor:
        if column in STRANGERS:
            return Visitor(self.hub)
        if column == "expired":
            return self.expired
        if column == "bad":
            visitor = Visitor(self.hub)
            visitor.cookies = {self.session_name: "x" * 43,
                               self.session_name.replace("session", "csrf"): "x"}
            return visitor
        if column not in self._visitors:
            self._visitors[column] = signed_in(self.hub, column.replace(" ", "-"))
            if column == "stale admin":
                self._grow_stale()
        return self._visitors[column]

    def _grow_stale(self) -> None:
        with open_state(self.hub) as state:
            for session in state.store(SessionStore).all(0.0):
                if session.user == "stale-admin":
                    state.store(SessionStore).renew(replace(session, fresh_until=0.0))
        wait_for(lambda: self._visitors["stale admin"].get("/api/v1/me")["fresh_until"] == 0.0)

    def forget(self, column: str) -> None:
        self._visitors.pop(column, None)

    def token(self, column: str) -> str | None:
        return self._tokens.get(column)


@pytest.fixture(name="crowd", scope="module")
def _crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        agent.tick(one_task())
        wait_for(lambda: len(hub.get("/api/v1/tasks")["items"]) == 1, why="the task")
        yield Crowd(hub, agent)


def request(crowd: Crowd, handler: str) -> tuple[str, str, dict[str, str], bytes | None]:
    method, _, path = handler.partition(" ")
    if method == "GET":
        path = path.replace("<node_id>", crowd.agent.node_id)
    for rule, value in FILLED.items():
        path = path.replace(rule, value)
    headers = {"Content_Type": "application/json"} if method in ("POST", "PATCH", "PUT") else {}
    return method, path, headers, b"{}" if headers else None


def status_of(crowd: Crowd, handler: str, column: str) -> str:
    """Return the statuses for a person and for a program; one word where both get the same."""
    method, path, headers, body = request(crowd, handler)
    by_person = str(crowd.person(column).ask(path, method, body, **headers).status)
    if handler in ENDS_SESSIONS:
        crowd.forget(column)
    token = crowd.token(column)
    if token is None:
        return by_person
    by_program = str(crowd.hub.ask(path, method, token, body, **headers).status)
    return by_person if by_person == by_program else f"{by_person}|{by_program}"


def differences(handler: str, statuses: dict[str, str]) -> list[str]:
    return [f"{handler}, {column}: {ROWS[handler][column]} expected, {word} found"
            for column, word in statuses.items() if ROWS[handler][column] != word]


@pytest.mark.parametrize(
    "handler", [row.verb for row in PERMISSIONS if "/socket.io/" not in row.verb])
def test_routes(crowd: Crowd, handler: str) -> None:
    statuses = {column: status_of(crowd, handler, column) for column in COLUMNS}
    assert differences(handler, statuses) == []


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "watch": ({"metric": "util_pct", "filter": ""},), "hide": (), "tap": (True,),
    "lines": ({"gpus": ["GPU-1"]},), "numbers": (True,), "wire": (b"",)}


@pytest.mark.parametrize("handler", [row.verb for row in CALLBACKS])
def test_callbacks(crowd: Crowd, handler: str) -> None:
    """Call each callback by its first input; ours have one."""
    output = handler.removeprefix("callback ")
    [callback] = [entry for entry in crowd.person("viewer").get("/_dash-dependencies")
                  if entry["output"] == output]
    parts = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True))
             for name in output.strip(".").split("...")]
    body = {"output": output, "outputs": parts if output.startswith("..") else parts[0],
            "inputs": [row | {"value": "/"} for row in callback["inputs"]], "changedPropIds": []}
    statuses = {}
    for column in COLUMNS:
        words = [crowd.person(column).send("/_dash-update-component", body).status]
        if (token := crowd.token(column)) is not None:
            words.append(crowd.hub.ask("/_dash-update-component", "POST", token,
                                       json.dumps(body).encode(),
                                       Content_Type="application/json").status)
        statuses[column] = "|".join(dict.fromkeys(map(str, words)))
    assert differences(handler, statuses) == []


def connect(crowd: Crowd, namespace: str, column: str, is_program: bool) -> RawSocket | str:
    """The socket within the namespace, or why there is none."""
    hub = crowd.hub
    try:
        if column == "agent":
            socket = RawSocket(hub, namespace)
        elif is_program:
            socket = RawSocket(hub, namespace, crowd.token(column))
        else:
            socket = RawSocket(hub, namespace, cookie=crowd.person(column).cookie, origin=hub.url)
    except websocket.WebSocketBadStatusException as error:
        return str(error.status_code)
    if socket.joined is None or socket.joined["type"] != 0:
        socket.close()
        return "refused"
    return socket


def socket_outcome(crowd: Crowd, handler: str, column: str, is_program: bool) -> str:
    namespace, event = handler.split()
    socket = connect(crowd, namespace, column, is_program)
    if isinstance(socket, str) or event == "connect":
        if not isinstance(socket, str):
            socket.close()
            return "in"
        return socket
    try:
        socket.emit(event, *ARGUMENTS[event])
        socket.emit("watch", *ARGUMENTS["watch"])
        packet = socket.receive()
        while packet is not None and packet["data"][0] not in ("filter", "wire"):
            packet = socket.receive()
    except OSError:  # it was closed before all was said
        packet = None
    socket.close()
    return "closed" if packet is None else "in"


@pytest.mark.parametrize("handler", [row.verb for row in EVENTS])
def test_events(crowd: Crowd, handler: str) -> None:
    outcomes = {}
    for column in COLUMNS:
        words = [socket_outcome(crowd, handler, column, False)]
        if crowd.token(column) is not None:
            words.append(socket_outcome(crowd, handler, column, True))
        outcomes[column] = "|".join(dict.fromkeys(words))
    assert differences(handler, outcomes) == []


def test_commands_ask_for_nothing_but_the_folder() -> None:
    """Write access to the folder is access to all of it; a credential alone opens nothing."""
    for row in VERBS:
        assert row.is_local
        assert set(ROWS[row.verb].values()) == {"folder"}


# -- that nothing is missing


@pytest.fixture(name="real", scope="module")
def _real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """Handlers that the hub really has, read from the hub itself."""
    folder = tmp_path_factory.mktemp("hub")
    folder.chmod(0o700)
    state = HubState.open(folder)
    hub = Hub(HubSettings(("127.0.0.1", 8050), folder), state, 8050)
    yield verbs(hub.core.get(Flask), hub.core.get(BoundedSocketIO).server.handlers)
    hub.core.close()
    state.close()


def test_every_handler_has_its_row_in_the_table_and_in_the_file(real: set[str]) -> None:
    assert real - set(TABLE) == set()
    assert real - set(ROWS) == set()


def test_no_row_is_left_of_what_is_gone(real: set[str]) -> None:
    # The websocket's way in is no Flask route; and Flask's own OPTIONS are not listed by it.
    elsewhere = {"GET /socket.io/", "OPTIONS /api/<path:path>"}
    assert {row.verb for row in (*PERMISSIONS, *EVENTS)} - real == elsewhere
    assert set(ROWS) - set(TABLE) == set()
    assert set(TABLE) - set(ROWS) == {"GET /socket.io/"}


def test_every_role_and_every_kind_has_its_column() -> None:
    assert {*Role} <= set(COLUMNS)
    assert all(set(row) == set(COLUMNS) for row in ROWS.values())


def test_whatever_changes_something_asks_for_proof() -> None:
    for row in PERMISSIONS:
        if row.verb == "POST /sign-in/oidc/logout":  # the provider's signature is the proof
            assert row.is_open
        elif not row.verb.startswith("GET "):
            assert row.proof.name in ("HEADER", "FORM"), row.verb
        assert row.is_open or row.kinds, row.verb
    assert {row.verb for row in PERMISSIONS if row.is_open} == {
        "GET /healthz", "GET /readyz", "GET /sign-in", "GET /assets/<path:filename>",
        "GET /sign-in/oidc", "GET /sign-in/oidc/callback", "POST /sign-in/oidc/logout",
        "GET /assets/bundle/<file>",
        "POST /sign-in", "POST /sign-in/first", "POST /sign-in/password"}
