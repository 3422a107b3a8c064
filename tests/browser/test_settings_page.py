"""Sign-in and Settings against a hub that starts with nobody: every act by a page, and what it does
seen from outside."""

import json
import os
import random
import secrets
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from tests.demos import soon
from tests.patience import GIVE_UP_S

from .test_look import axe_source

pytestmark = pytest.mark.browser
BIN = Path(sys.executable).parent
HOSTILE = '<img src=x onerror="document.title=1">&<b>x'


class Hub:
    """A real one, without anybody; and agents for it."""

    def __init__(self, data: Path) -> None:
        if not (BIN / "gpudeck").exists():
            pytest.skip("the gpudeck command is not beside this python")
        self.data = data
        self._started: list[subprocess.Popen[bytes]] = []
        self._start([str(BIN / "gpudeck"), "hub", "--bind", "127.0.0.1:0", "--data", str(data)])
        assert soon((data / "hub.json").exists, 90), (data.parent / "log").read_text()
        info = json.loads((data / "hub.json").read_text())
        self.url: str = info["url"]
        self.sign_in_url: str = info["sign_in_url"]
        self.admin, self.password = f"root{random.randrange(1000)}", secrets.token_urlsafe(12)

    def _start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        with (self.data.parent / "log").open("ab") as log:
            started = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        self._started.append(started)
        return started

    def run_line(self, line: str, host: str) -> "subprocess.Popen[bytes]":
        """Run the pasted line, with options that make a node of this machine without a GPU."""
        more = ["--backend", "simulated", "--simulate", "gpus=2", "--host", host,
                "--data", str(self.data.parent / f"agent-{len(self._started)}")]
        return self._start(["sh", "-c", f"exec env {line} {shlex.join(more)}"])

    def ask(self, path: str, token: str) -> int:
        request = urllib.request.Request(self.url + path,
                                         headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=GIVE_UP_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def make_stale(self, user: str) -> None:
        """Change the user's sessions as if five minutes had passed since their last password."""
        with closing(sqlite3.connect(self.data / "state.db", timeout=GIVE_UP_S)) as db, db:
            db.execute("update sessions set fresh_until = 1 where user_name = ?", (user,))

    def stop(self) -> None:
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


class Person:
    """Somebody at a browser. `trouble` is all that must not happen: a CSP violation comes here."""

    def __init__(self, browser: Browser, hub: Hub, **look: Any) -> None:
        self.context: BrowserContext = browser.new_context(
            **{"viewport": {"width": 1440, "height": 900}, **look})
        self.hub = hub
        self.trouble: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.trouble.append(f"{error}"))
        self.page.on("console", self._on_console)

    def _on_console(self, message: Any) -> None:
        # The browser logs each refused request and closed socket by itself.
        by_browser = ("Failed to load resource", "WebSocket connection to")
        if message.type in ("error", "warning") and not message.text.startswith(by_browser):
            self.trouble.append(message.text)

    def sign_in(self, name: str, password: str) -> "Person":
        self.page.goto(f"{self.hub.url}/sign-in")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.hub.url}/")
        return self

    def settings(self, section: str) -> Locator:
        """Anew, so that no list is older than the question."""
        self.page.goto(f"{self.hub.url}/settings#{section}")
        self.page.reload()
        place = self.page.locator(f"#section-{section}")
        place.wait_for()
        return place

    def row(self, text: str) -> Locator:
        return self.page.locator("tbody tr:visible", has_text=text)

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]").last

    def titled(self, title: str) -> Locator:
        """The dialog of that name, once it is there."""
        dialog = self.page.get_by_role("dialog", name=title, exact=True)
        dialog.wait_for()
        return dialog

    def confirm(self, button: str) -> None:
        self.dialog.get_by_role("button", name=button, exact=True).click()

    def fill(self, **values: str) -> None:
        for name, value in values.items():
            field = self.dialog.locator(f"[name={name}]")
            if name in ("role", "days"):
                field.select_option(value)
            else:
                field.fill(value)

    def link_state(self) -> str:
        return str(self.page.evaluate("globalThis.gpudeck?.stats?.link ?? ''"))

    def api(self, path: str) -> int:
        return int(self.page.evaluate("path => fetch(path).then(answer => answer.status)", path))

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def violations(self) -> list[str]:
        self.page.evaluate(axe_source())
        rules: list[dict[str, Any]] = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
        return [f"{rule['id']}: {node['html'][:120]} {node.get('failureSummary', '')}"
                for rule in rules for node in rule["nodes"]]


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    hub = Hub(tmp_path_factory.mktemp("settings") / "hub")
    yield hub
    hub.stop()


@pytest.fixture(name="signed_in_admin", scope="module")
def _signed_in_admin(hub: Hub, browser: Browser) -> Iterator[Any]:
    """The first one, who came by the link that the hub printed."""
    person = Person(browser, hub)
    person.page.goto(hub.sign_in_url)
    assert person.page.locator("[autocomplete=new-password]").count() == 2
    assert person.page.get_by_label("Name").get_attribute("autocomplete") == "username"
    assert person.violations() == []
    person.page.get_by_label("Name").fill(hub.admin)
    person.page.get_by_label("Password", exact=True).fill(hub.password)
    person.page.get_by_label("Repeat the password").fill(hub.password)
    person.page.get_by_role("button", name="Become the admin").click()
    person.page.wait_for_url(f"{hub.url}/")
    assert person.trouble == []
    yield person.context.storage_state()
    person.context.close()


@pytest.fixture(name="new_person")
def _new_person(hub: Hub, browser: Browser) -> Iterator[Callable[..., Person]]:
    """More people, each in a browser profile of their own; none may meet trouble."""
    came: list[Person] = []

    def new_person(**look: Any) -> Person:
        came.append(Person(browser, hub, **look))
        return came[-1]

    yield new_person
    trouble = [line for person in came for line in person.trouble]
    for person in came:
        person.context.close()
    assert trouble == []


@pytest.fixture(name="admin")
def _admin(new_person: Callable[..., Person], signed_in_admin: Any) -> Person:
    return new_person(storage_state=signed_in_admin)


@pytest.fixture(name="name")
def _name() -> str:
    return f"u{secrets.token_hex(3)}"


def add_user(admin: Person, name: str, **values: str) -> None:
    admin.settings("users")
    admin.page.locator("#add-user").click()
    admin.fill(name=name, **values)
    admin.confirm("Add")


def test_the_first_link_makes_one_admin_and_no_second(
        admin: Person, new_person: Callable[..., Person]) -> None:
    admin.page.goto(admin.hub.url)
    assert admin.page.locator("#notice h2").inner_text() == "No node yet"
    assert soon(admin.page.get_by_role("link", name="Connect a node").is_visible)
    late = new_person()
    late.page.goto(admin.hub.sign_in_url)
    assert "used already" in late.page.get_by_role("alert").inner_text()
    assert late.page.get_by_role("button").all_inner_texts() == ["Sign in"]


def test_one_who_is_added_comes_in_by_the_link_and_sees_less(
        admin: Person, new_person: Callable[..., Person], name: str) -> None:
    add_user(admin, name, role="viewer")
    other = new_person()
    other.page.goto(admin.titled(f"A link for {name}").locator("code").inner_text())
    assert other.page.get_by_label("Name").input_value() == name
    other.page.get_by_label("Password", exact=True).fill("correct horse battery")
    other.page.get_by_label("Repeat the password").fill("another horse battery")
    other.page.get_by_role("button", name="Save").click()
    assert "do not match" in other.page.get_by_role("alert").inner_text()
    assert other.page.get_by_label("Name").input_value() == name
    other.page.get_by_label("Password", exact=True).fill("correct horse battery")
    other.page.get_by_label("Repeat the password").fill("correct horse battery")
    other.page.get_by_role("button", name="Save").click()
    other.page.wait_for_url(f"{admin.hub.url}/")

    other.settings("you")
    assert other.page.locator("[data-section]:visible").all_inner_texts() == ["Sign-ins", "You"]
    other.page.goto(f"{admin.hub.url}/settings#users")
    refusal = other.page.locator("#settings-refused")
    assert soon(lambda: refusal.inner_text() == (
        f"This section is for admins. You are signed in as {name}, whose role is viewer."))
    assert not other.page.locator("#section-users").is_visible()
    assert (other.api("/api/v1/me"), other.api("/api/v1/users")) == (200, 403)
    assert other.settings("sign-ins").locator("h3").count() == 0
    admin.settings("users")
    assert soon(lambda: "never" not in admin.row(name).inner_text())


def test_a_role_that_changes_ends_the_others_socket_within_a_second(
        admin: Person, new_person: Callable[..., Person], name: str) -> None:
    add_user(admin, name, role="viewer", password="correct horse battery")
    admin.row(name).wait_for()
    other = new_person().sign_in(name, "correct horse battery")
    assert soon(lambda: other.link_state() == "live")
    admin.row(name).get_by_role("button", name=f"Edit {name}").click()
    admin.fill(role="operator")
    admin.confirm("Save")
    assert soon(lambda: other.link_state() in ("lost", "signed_out"), 1.0), other.link_state()
    assert soon(lambda: other.page.locator("#banner").inner_text().startswith("You are signed out"))
    assert soon(lambda: "operator" in admin.row(name).inner_text())
    admin.page.get_by_role("button", name="Undo").click()
    assert soon(lambda: "viewer" in admin.row(name).inner_text())
    admin.row(name).get_by_role("button", name=f"Remove {name}").click()
    admin.confirm("Remove")
    admin.row(name).wait_for(state="detached")
    other.page.goto(f"{admin.hub.url}/sign-in")
    other.page.get_by_label("Name").fill(name)
    other.page.get_by_label("Password", exact=True).fill("correct horse battery")
    other.page.get_by_role("button", name="Sign in").click()
    assert "not right" in other.page.get_by_role("alert").inner_text()


def test_a_token_opens_until_it_is_revoked(admin: Person) -> None:
    admin.settings("tokens")
    admin.page.locator("#add-token").click()
    admin.fill(name=HOSTILE, role="viewer", days="7")
    admin.confirm("Create")
    secret = admin.titled(f"Token “{HOSTILE}”").locator("code").first.inner_text()
    assert admin.hub.ask("/api/v1/gpus", secret) == 200
    assert admin.hub.ask("/api/v1/users", secret) == 403
    admin.context.grant_permissions(["clipboard-read", "clipboard-write"])
    admin.dialog.get_by_role("button", name="Copy the token").click()
    assert soon(lambda: admin.page.evaluate("navigator.clipboard.readText()") == secret)
    admin.confirm("Done")
    row = admin.row(HOSTILE)
    assert "in 6 d" in row.inner_text() or "in 7 d" in row.inner_text()
    assert soon(lambda: secret not in admin.page.content())
    row.get_by_role("button", name="Revoke").click()
    admin.confirm("Revoke")
    row.wait_for(state="detached")
    assert admin.hub.ask("/api/v1/gpus", secret) == 401


def test_a_node_comes_by_the_shown_line_and_goes_when_it_is_revoked(admin: Person) -> None:
    admin.page.goto(f"{admin.hub.url}/settings#nodes/connect")
    admin.fill(group="lab")
    admin.confirm("Create command")
    line = admin.dialog.locator("code").inner_text()
    assert line.startswith("GPUDECK_TOKEN=")
    agent = admin.hub.run_line(line, "node-a")
    words = admin.dialog.locator(".waiting-words")
    assert soon(lambda: words.inner_text() == "node-a is connected, with 2 GPUs."), (
        words.inner_text())
    admin.confirm("Done")
    assert soon(lambda: "live" in admin.row("node-a").inner_text())
    assert "lab" in admin.row("node-a").inner_text()

    watcher = admin.context.new_page()
    watcher.goto(admin.hub.url)
    live = watcher.locator("#summary")
    assert soon(lambda: "1 of 1 node healthy" in live.inner_text()), live.inner_text()
    admin.row("node-a").get_by_role("button", name="Revoke").click()
    admin.confirm("Revoke")
    assert soon(lambda: "revoked" in admin.row("node-a").inner_text())
    assert soon(lambda: "0 of 0 nodes healthy" in live.inner_text()), live.inner_text()
    watcher.close()
    assert agent.poll() is None, "a revoked agent says so and stays, in case it is enrolled anew"


def connect_waiting(admin: Person, host: str) -> Locator:
    """Connect a node that must be approved, and return what the dialog then says of it."""
    admin.settings("nodes")
    admin.page.locator("#connect-node").click()
    admin.dialog.get_by_label("Require approval by fingerprint").check()
    admin.confirm("Create command")
    admin.hub.run_line(admin.dialog.locator("code").inner_text(), host)
    words = admin.dialog.locator(".waiting-words")
    assert soon(lambda: words.inner_text().startswith(f"{host} is waiting for approval"))
    return words


def waiting_node(admin: Person, host: str) -> Locator:
    """Connect a node, and return its row once it waits for approval."""
    connect_waiting(admin, host)
    admin.page.keyboard.press("Escape")
    assert soon(lambda: "waiting" in admin.row(host).inner_text())
    return admin.row(host)


def test_a_node_waits_until_its_fingerprint_is_approved(admin: Person) -> None:
    host = f"<i>{secrets.token_hex(3)}"
    row = waiting_node(admin, host)
    assert "1 waiting for approval" in admin.page.locator("#section-nodes .count").inner_text()
    row.get_by_role("button", name="Approve").click()
    assert row.locator("code").inner_text() == admin.dialog.locator("code").inner_text()
    assert row.locator("code").evaluate("code => code.offsetWidth") < 180  # two equal lines
    admin.confirm("Approve")
    assert soon(lambda: "live" in row.inner_text()), row.inner_text()
    assert admin.page.locator("#section-nodes i").count() == 0


def test_nodes_are_approved_by_a_list_that_says_what_it_did_not_find(admin: Person) -> None:
    rows = [waiting_node(admin, f"many-{turn}-{secrets.token_hex(3)}") for turn in range(2)]
    fingerprints = [row.locator("code").inner_text() for row in rows]
    nobody = fingerprints[0][:-4] + ("0000" if fingerprints[0][-4:] != "0000" else "1111")
    admin.page.get_by_role("button", name="Approve a list …").click()
    admin.fill(fingerprints="\n".join(
        [f"{fingerprints[0]}  # the first", "", fingerprints[1], nobody]))
    admin.confirm("Approve")
    report = admin.titled("Not all were approved").inner_text()
    assert f"{nobody} has not connected." in report
    assert all(fingerprint not in report for fingerprint in fingerprints)
    admin.page.keyboard.press("Escape")
    assert soon(lambda: all("live" in row.inner_text() for row in rows))
    assert admin.page.get_by_role("button", name="Approve a list …").is_hidden()


def test_a_node_is_approved_where_its_command_is_shown(admin: Person) -> None:
    words = connect_waiting(admin, f"h-{secrets.token_hex(3)}")
    admin.confirm("Approve")
    assert soon(lambda: "is connected, with 2 GPUs." in words.inner_text()), words.inner_text()
    assert admin.dialog.get_by_role("button", name="Approve").count() == 0


def test_a_command_that_is_shown_is_withdrawn(admin: Person) -> None:
    admin.settings("nodes")
    admin.page.locator("#connect-node").click()
    admin.confirm("Create command")
    assert soon(lambda: "another 60 min" in admin.dialog.inner_text())
    admin.dialog.get_by_role("button", name="Withdraw").click()
    assert soon(lambda: "Withdrawn: the command no longer works." in admin.dialog.inner_text())


def test_a_place_that_is_withdrawn_is_gone(admin: Person) -> None:
    admin.settings("nodes")
    admin.page.locator("#connect-node").click()
    host = f"h{secrets.token_hex(3)}"
    admin.fill(host=host)
    admin.confirm("Create command")
    admin.dialog.locator("code").wait_for()
    admin.page.keyboard.press("Escape")
    admin.row(host).get_by_role("button", name="Withdraw").click()
    admin.row(host).wait_for(state="detached")


def test_what_concerns_others_asks_for_the_password_once_it_is_old(
        admin: Person, new_person: Callable[..., Person], name: str) -> None:
    password = secrets.token_urlsafe(12)
    add_user(admin, name, role="admin", password=password)
    admin.row(name).wait_for()
    second = new_person().sign_in(name, password)
    second.settings("users")
    second.hub.make_stale(name)
    time.sleep(0.6)  # the hub looks four times a second what others have written
    second.page.locator("#add-user").click()
    second.fill(name=f"{name}-2", password="correct horse battery")
    second.confirm("Add")
    dialog = second.titled("Confirm your password")
    second.fill(password="not it at all")
    second.confirm("Continue")
    assert soon(lambda: "not your password" in dialog.inner_text())
    assert second.row(f"{name}-2").count() == 0
    second.fill(password=password)
    second.confirm("Continue")
    second.row(f"{name}-2").wait_for()
    assert second.link_state() == "live", "the session is the same one"


def test_sessions_are_ended_one_by_one_and_hostile_names_are_text(
        admin: Person, new_person: Callable[..., Person]) -> None:
    other = new_person().sign_in(admin.hub.admin, admin.hub.password)
    stranger = new_person()
    stranger.page.goto(f"{admin.hub.url}/sign-in")
    stranger.page.get_by_label("Name").fill(HOSTILE)
    stranger.page.get_by_label("Password", exact=True).fill("whatever it may be")
    stranger.page.get_by_role("button", name="Sign in").click()
    assert "not right" in stranger.page.get_by_role("alert").inner_text()
    assert stranger.page.get_by_label("Name").input_value() == HOSTILE
    assert soon(lambda: other.link_state() == "live")
    admin.settings("sign-ins")
    assert soon(lambda: admin.row(HOSTILE).count() == 1)
    assert "refused" in admin.row(HOSTILE).inner_text()
    assert admin.page.locator("main img, main b").count() == 0
    ends = admin.page.locator("#section-sign-ins").get_by_role("button", name="End the session")
    while ends.count():
        before = ends.count()
        ends.first.click()
        assert soon(lambda before=before: ends.count() < before)  # type: ignore[misc]
    assert soon(lambda: other.link_state() == "signed_out")
    assert admin.api("/api/v1/me") == 200


def test_the_menu_says_who_and_signs_out(admin: Person, new_person: Callable[..., Person], name: str
                                         ) -> None:
    add_user(admin, name, role="user", password="correct horse battery")
    admin.row(name).wait_for()
    other = new_person().sign_in(name, "correct horse battery")
    assert soon(lambda: other.page.locator("#account").get_attribute("aria-label")
                == f"Account of {name}")
    other.page.keyboard.press("g")
    other.page.keyboard.press("s")
    other.page.wait_for_url("**/settings")
    other.page.locator("#account").click()
    assert soon(lambda: other.page.locator("#account-menu p").inner_text().split()
                == [name, "user"])
    other.page.locator("#sign-out-everywhere").click()
    other.page.wait_for_url("**/sign-in")
    assert other.api("/api/v1/me") == 401


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing_and_a_phone_is_wide_enough(
        new_person: Callable[..., Person], signed_in_admin: Any, theme: str) -> None:
    person = new_person(storage_state=signed_in_admin, color_scheme=theme,
                        viewport={"width": 390, "height": 844})
    for section in ("users", "tokens", "nodes", "sign-ins", "you"):
        place = person.settings(section)
        assert soon(lambda place=place: "Loading" not in place.inner_text())  # type: ignore[misc]
        assert person.violations() == [], section
        assert person.overflow() <= 0, section
    person.settings("users")
    for button in ("#add-user", "#account"):
        person.page.locator(button).click()
        assert person.violations() == [], button
        assert person.overflow() <= 0
        person.page.keyboard.press("Escape")
    person.page.set_viewport_size({"width": 1440, "height": 900})
    assert person.violations() == []
    person.page.keyboard.press("?")
    assert "go to the settings" in person.page.locator("#help-dialog").inner_text()


def test_the_sign_in_page_is_accessible(new_person: Callable[..., Person], admin: Person) -> None:
    for theme in ("dark", "light"):
        person = new_person(color_scheme=theme, viewport={"width": 390, "height": 844})
        person.page.goto(f"{person.hub.url}/sign-in")
        person.page.locator("summary").click()
        assert person.violations() == []
        assert person.overflow() <= 0
