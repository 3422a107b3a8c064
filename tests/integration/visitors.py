"""People and programs before a real hub: a browser by hand, and tokens as the CLI makes them."""

import contextlib
import http.client
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from argon2 import PasswordHasher

from dashboard.access.passwords import hash_password
from dashboard.access.policy import Role, Scope
from dashboard.access.store import AccountsStore, User, new_token
from dashboard.state import HubState
from tests.integration.hubs import Answer, HubProcess, wait_for

# The parameters stand in the hash, so the hub checks it as any other, only sooner.
QUICK = PasswordHasher(1, 8, 1)
PASSWORD = "correct horse battery staple"


class Visitor:
    """A browser by hand: keeps cookies, and sends its Origin where a browser would."""

    def __init__(self, hub: HubProcess, address: str = "127.0.0.1") -> None:
        self.hub = hub
        self.cookies: dict[str, str] = {}
        self._own: dict[str, None] = {}  # names that this hub set
        self._address = address

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
            ) -> Answer:
        words = {name.replace("_", "-"): value for name, value in headers.items()}
        words.setdefault("Cookie", self.cookie)
        if method not in ("GET", "HEAD"):
            words.setdefault("Origin", self.hub.url)
            words.setdefault("X-CSRFToken", self.csrf)
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path.removeprefix(self.hub.url), body, words)
            reply = connection.getresponse()
            answer = Answer(reply.status, dict(reply.getheaders()), reply.read())
            self.set_cookies = [value for name, value in reply.getheaders()
                                if name == "Set-Cookie"]
        for line in self.set_cookies:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
            self._own[name] = None
        return answer

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.hub.port, timeout=30,
                                          source_address=(self._address, 0))

    @property
    def cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def cookie_name(self, what: str) -> str:
        """Return the name of this hub's cookie for `what`: session, csrf, form or device."""
        return next((name for name in self._own if f"gpudeck_{what}_" in name), "")

    @property
    def csrf(self) -> str:
        return self.cookies.get(self.cookie_name("csrf"), "")

    def send(self, path: str, content: Any, method: str = "POST", **headers: str) -> Answer:
        return self.ask(path, method, json.dumps(content).encode(),
                        **{"Content_Type": "application/json"} | headers)

    def get(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json

    def form(self, path: str, page: Answer | None = None, **fields: str) -> Answer:
        """Submit the form as filled in on the page; without a page, on the sign-in page."""
        html = (page or self.ask("/sign-in")).body.decode()
        hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', html))
        return self.ask(path, "POST", urlencode(hidden | fields).encode(),
                        Content_Type="application/x-www-form-urlencoded")

    def sign_in(self, name: str, password: str = PASSWORD) -> Answer:
        return self.form("/sign-in", name=name, password=password)


def open_state(hub: HubProcess) -> "contextlib.closing[HubState]":
    return contextlib.closing(HubState.open(hub.folder))


def add_person(hub: HubProcess, name: str, role: str = "viewer", groups: Sequence[str] = ("*",),
               unix_names: Sequence[str] = (), password: str | None = PASSWORD) -> None:
    hashed = None if password is None else hash_password(password, QUICK)
    scope = Scope(tuple(groups), tuple(unix_names))
    with open_state(hub) as state:
        state.store(AccountsStore).add_user(User(name, Role(role), scope, hashed, time.time()))


def link_for(hub: HubProcess, name: str) -> str:
    with open_state(hub) as state:
        return f"/sign-in?code={state.store(AccountsStore).add_code(name, time.time())}"


def signed_in(hub: HubProcess, name: str) -> Visitor:
    """Sign in by a link, so that no guess is spent. The hub may have to notice the user first."""
    visitor, link = Visitor(hub), link_for(hub, name)
    wait_for(lambda: visitor.ask(link).status == 303, why=f"{name} is let in")
    return visitor


def add_program(hub: HubProcess, role: str = "viewer", groups: Sequence[str] = ("*",),
                unix_names: Sequence[str] = (), lasts_s: float = 600.0) -> str:
    now = time.time()
    word, token = new_token(f"a {role}", Role(role), Scope(tuple(groups), tuple(unix_names)),
                            "the tests", now, now + 600)
    with open_state(hub) as state:
        state.store(AccountsStore).add_token(replace(token, expires_at=now + lasts_s))
    if lasts_s > 0:
        wait_for(lambda: hub.ask("/api/v1/me", token=word).status == 200, why="the token holds")
    return word
