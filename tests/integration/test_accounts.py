"""Users are added, changed and removed: over HTTP and sockets, against a real hub."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.access.policy import TABLE
from dashboard.cli import access as cli_access
from dashboard.cli.access import TOKEN_VERBS, USER_VERBS
from dashboard.openapi import routes as routes
from gpudeck.errors import CommandError, ExitCode
from tests.integration.hubs import REPOSITORY, HubProcess, RawSocket, WireAgent, one_task, wait_for
from tests.integration.visitors import (
    PASSWORD,
    Visitor,
    add_person,
    add_program,
    link_for,
    signed_in,
)


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        add_person(hub, "root", "admin")
        wait_for(lambda: hub.get("/api/v1/users")["items"], why="the first admin")
        yield hub
        assert "Traceback" not in hub.log.read_text()


def gpudeck(hub: HubProcess, *words: str, say: str = "", code: int = 0) -> Any:
    run = subprocess.run(
        [sys.executable, "-m", "dashboard", *words, "--data", str(hub.folder), "--json"],
        cwd=REPOSITORY, input=say, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    return json.loads(run.stdout) if code == 0 else run.stderr


def live(hub: HubProcess, visitor: Visitor | str) -> RawSocket:
    if isinstance(visitor, str):
        viewer = RawSocket(hub, "/live", visitor)
    else:
        viewer = RawSocket(hub, "/live", cookie=visitor.cookie, origin=hub.url)
    viewer.emit("watch", {"metric": "util_pct", "filter": ""})
    viewer.event("filter")
    return viewer


def closes_within_a_second(viewer: RawSocket, act: Callable[[], Any]) -> None:
    act()
    started = time.monotonic()
    assert viewer.event("bye")["reason"] == "signed out"
    viewer.closed()
    assert time.monotonic() - started < 1.0


# -- sign-in


def test_signing_in_and_out(hub: HubProcess) -> None:
    add_person(hub, "ann", "operator", ["lab"], ["al"])
    wait_for(lambda: "ann" in str(hub.get("/api/v1/users")))
    visitor = Visitor(hub)
    assert visitor.sign_in(" ANN ").status == 303
    lines = visitor.set_cookies
    assert all("SameSite=Strict" in line and "Path=/" in line for line in lines)
    assert sum("HttpOnly" in line for line in lines) == 2  # all but the CSRF token
    me = visitor.get("/api/v1/me")
    assert (me["kind"], me["name"], me["role"]) == ("person", "ann", "operator")
    assert (me["groups"], me["unix_names"]) == (["lab"], ["al"])
    assert 290 < me["fresh_until"] - time.time() <= 300
    was = visitor.cookie
    assert visitor.ask("/sign-in").status == 303
    assert visitor.ask("/sign-out", "POST").status == 303
    assert visitor.ask("/api/v1/me", Cookie=was).status == 401


def test_no_answer_tells_who_exists(hub: HubProcess) -> None:
    add_person(hub, "has-none", password=None)
    wait_for(lambda: "has-none" in str(hub.get("/api/v1/users")))
    visitor = Visitor(hub)
    pages = {visitor.sign_in(name, "wrong wrong wrong").body.replace(name.encode(), b"NAME")
             for name in ("root", "nobody", "has-none")}
    assert len(pages) == 1
    assert b"The name or the password is not right." in pages.pop()


def test_a_new_secret_at_each_sign_in_and_step_up(hub: HubProcess) -> None:
    """T6: a secret that was known before opens nothing after."""
    visitor = signed_in(hub, "root")
    name = visitor.cookie_name("session")
    planted = Visitor(hub)
    planted.cookies = {name: "chosen-by-somebody-else"}
    assert planted.ask(link_for(hub, "root")).status == 303
    assert planted.cookies[name] != "chosen-by-somebody-else"
    former, viewer = visitor.cookie, live(hub, visitor)
    assert visitor.send("/api/v1/fresh", {"password": "not this one"}).status == 403
    assert visitor.send("/api/v1/fresh", {"password": PASSWORD}).status == 200
    assert visitor.cookie != former
    assert visitor.ask("/api/v1/me").status == 200
    assert visitor.ask("/api/v1/me", Cookie=former).status == 401
    viewer.emit("watch", {"metric": "temp_c", "filter": ""})  # the session goes on, sockets too
    assert viewer.event("filter")["ok"]
    viewer.close()


def test_links(hub: HubProcess) -> None:
    add_person(hub, "lin", password=None)
    link = link_for(hub, "lin")
    visitor = Visitor(hub)
    form = visitor.ask(link)
    assert b"Choose a password" in form.body
    assert visitor.form("/sign-in/password", form, password="short", again="short").status == 422
    assert visitor.form("/sign-in/password", form, password=PASSWORD, again="another").status == 422
    assert visitor.form("/sign-in/password", form, password=PASSWORD, again=PASSWORD).status == 303
    assert visitor.get("/api/v1/me")["name"] == "lin"
    assert Visitor(hub).ask(link).status == 410
    second = Visitor(hub)
    assert second.form("/sign-in/password", form, password=PASSWORD, again=PASSWORD).status == 403
    assert Visitor(hub).sign_in("lin").status == 303


def test_a_link_from_another_site_still_leads_in(hub: HubProcess) -> None:
    """Strict cookies do not travel along a redirect that another site began."""
    answer = Visitor(hub).ask(link_for(hub, "root"), Sec_Fetch_Site="cross-site")
    assert (answer.status, b'http-equiv="refresh"' in answer.body) == (200, True)


def test_there_is_only_one_first_admin(hub: HubProcess) -> None:
    visitor = Visitor(hub)
    assert visitor.ask(hub.sign_in_url).status == 410
    answer = visitor.form("/sign-in/first", code=hub.sign_in_url.partition("=")[2], name="mallory",
                          password=PASSWORD, again=PASSWORD)
    assert answer.status == 410
    assert "mallory" not in str(hub.get("/api/v1/users"))


def test_forms_are_ours_or_refused(hub: HubProcess) -> None:
    visitor = Visitor(hub)
    page = visitor.ask("/sign-in")
    good: dict[str, Any] = {"name": "root", "password": PASSWORD}
    for broken in ({"Origin": "http://evil.example"}, {"Origin": ""}, {"Cookie": ""},
                   {"Sec_Fetch_Site": "cross-site"}):
        body = b"csrf=x&name=root&password=" + PASSWORD.replace(" ", "+").encode()
        assert visitor.ask("/sign-in", "POST", body, **{
            "Content_Type": "application/x-www-form-urlencoded"} | broken).status == 403
    assert visitor.form("/sign-in", page, csrf="0" * 64, **good).status == 403
    other = Visitor(hub)
    other.ask("/sign-in")
    assert other.form("/sign-in", page, **good).status == 403  # another browser's token
    assert visitor.form("/sign-in", **good).status == 303


def test_every_change_needs_the_token_of_this_session(hub: HubProcess) -> None:
    """T4: no token, an old one, one of another session."""
    visitor, other = signed_in(hub, "root"), signed_in(hub, "root")
    old = visitor.csrf
    assert visitor.send("/api/v1/fresh", {"password": PASSWORD}).status == 200
    changes = [verb.split() for verb, row in TABLE.items()
               if row.kinds == ("person", "program") and not verb.startswith(("GET", "/"))]
    assert len(changes) > 6
    for method, path in changes:
        for token in ("", old, other.csrf, "x" * 43):
            answer = visitor.ask(path, method, b"{}", X_CSRFToken=token)
            assert (answer.status, "CSRF" in answer.json["detail"]) == (403, True), (method, path)


def test_hubs_under_one_name_leave_each_others_cookies_alone(hub: HubProcess, tmp_path: Path
                                                            ) -> None:
    """Browsers give all cookies of a host to each of its ports."""
    visitor = signed_in(hub, "root")
    with HubProcess(tmp_path / "other") as second:
        add_person(second, "root", "admin")
        there = Visitor(second)
        there.cookies = visitor.cookies
        assert there.ask(link_for(second, "root")).status == 303
        for browser in (visitor, there):
            assert browser.send("/api/v1/fresh", {"password": PASSWORD}).status == 200


def test_a_csrf_cookie_that_is_lost_comes_back_with_the_page(hub: HubProcess) -> None:
    visitor = signed_in(hub, "root")
    for spoil in (lambda name: visitor.cookies.pop(name),
                  lambda name: visitor.cookies.update({name: "another"})):
        right = visitor.csrf
        spoil(visitor.cookie_name("csrf"))
        assert visitor.send("/api/v1/fresh", {"password": PASSWORD}).status == 403
        assert visitor.ask("/tasks").status == 200
        assert visitor.csrf == right
    visitor.ask("/tasks")
    assert visitor.set_cookies == []


# -- revocation


@pytest.mark.parametrize("change", [
    {"role": "viewer"}, {"groups": ["lab"]}, {"unix_names": ["al"]}, {"password": PASSWORD + "!"},
    None], ids=str)
def test_a_change_closes_sockets_and_sessions(hub: HubProcess, change: Any) -> None:
    """T6, at once by REST; `None`: the user goes."""
    name = f"eve-{time.monotonic_ns()}"
    add_person(hub, name, "user")
    admin, eve = signed_in(hub, "root"), signed_in(hub, name)
    viewer = live(hub, eve)

    def act() -> None:
        answer = (admin.ask(f"/api/v1/users/{name}", "DELETE") if change is None
                  else admin.send(f"/api/v1/users/{name}", change, "PATCH"))
        assert answer.status in (200, 204), answer.body
    closes_within_a_second(viewer, act)
    assert eve.ask("/api/v1/me").status == 401
    assert admin.ask("/api/v1/me").status == 200


def test_the_command_line_reaches_a_running_hub_within_a_second(hub: HubProcess) -> None:
    carl = gpudeck(hub, "user", "add", "carl", "--role", "user", "--unix-name", "cc")
    assert (carl["role"], carl["unix_names"], carl["has_password"]) == ("user", ["cc"], False)
    assert Visitor(hub).ask(carl["link"]).status == 200
    secret = hub.folder.parent / "password"
    secret.write_text(PASSWORD + "\n")
    assert gpudeck(hub, "user", "set", "carl", "--password-file", str(secret))["has_password"]
    wait_for(lambda: next(user["has_password"] for user in hub.get("/api/v1/users")["items"]
                          if user["name"] == "carl"), 1.0, "the new password")
    visitor = Visitor(hub)
    entered = visitor.sign_in("carl")
    assert (entered.status, entered.headers["Location"]) == (303, "/work"), "their own tasks first"
    viewer = live(hub, visitor)
    closes_within_a_second(viewer, lambda: gpudeck(hub, "user", "set", "carl", "--role", "viewer"))
    assert visitor.sign_in("carl").headers["Location"] == "/", "a viewer has none"
    closes_within_a_second(live(hub, visitor), lambda: gpudeck(hub, "user", "remove", "carl"))
    assert visitor.sign_in("carl").status == 401
    assert "carl" not in str(gpudeck(hub, "user", "list"))


def test_tokens_come_are_used_and_go(hub: HubProcess) -> None:
    token = gpudeck(hub, "token", "create", "api", "nightly", "--role", "operator", "--days", "3")
    word = token["token"]
    wait_for(lambda: hub.ask("/api/v1/me", token=word).status == 200, 1.0, "the token")
    assert hub.ask("/api/v1/me", token=word).json["role"] == "operator"
    assert 2.9 < (token["expires_at"] - time.time()) / 86_400 <= 3
    row = wait_for(lambda: next(item for item in hub.get("/api/v1/tokens")["items"]
                                if item["id"] == token["id"] and item["last_used_at"]))
    assert "secret" not in row
    wait_for(lambda: next(item for item in gpudeck(hub, "token", "list")["items"]
                          if item["id"] == token["id"])["last_used_at"], why="written soon")
    closes_within_a_second(live(hub, word),
                           lambda: gpudeck(hub, "token", "revoke", token["id"]))
    assert hub.ask("/api/v1/me", token=word).status == 401


def test_a_revoked_token_closes_its_socket_at_once(hub: HubProcess) -> None:
    word = add_program(hub)
    token_id = hub.get("/api/v1/tokens")["items"][-1]["id"]
    closes_within_a_second(
        live(hub, word), lambda: hub.ask(f"/api/v1/tokens/{token_id}", "DELETE"))


def test_a_viewer_that_does_not_read_is_cut_too(hub: HubProcess) -> None:
    add_person(hub, "mute")
    viewer = live(hub, signed_in(hub, "mute"))
    signed_in(hub, "root").ask("/api/v1/users/mute", "DELETE")
    time.sleep(1.2)
    for _ in range(50):  # whatever it says now is heard by nobody
        try:
            viewer.emit("watch", {"metric": "util_pct", "filter": ""})
        except OSError:
            break
        time.sleep(0.01)
    else:
        pytest.fail("the connection is still open")


def test_sessions(hub: HubProcess) -> None:
    add_person(hub, "sam")
    one, two, admin = signed_in(hub, "sam"), signed_in(hub, "sam"), signed_in(hub, "root")
    listed = one.get("/api/v1/sessions")["items"]
    assert {item["user"] for item in listed} == {"sam"}
    [this] = [item["id"] for item in listed if item["is_this"]]
    [other] = [item["id"] for item in listed if not item["is_this"]]
    [admins] = [item["id"] for item in admin.get("/api/v1/sessions")["items"] if item["is_this"]]
    assert one.ask(f"/api/v1/sessions/{admins}", "DELETE").status == 404
    assert one.ask(f"/api/v1/sessions/{other}", "DELETE").status == 204
    assert (one.ask("/api/v1/me").status, two.ask("/api/v1/me").status) == (200, 401)
    assert admin.ask(f"/api/v1/sessions/{this}", "DELETE").status == 204
    assert one.ask("/api/v1/me").status == 401
    more = [signed_in(hub, "sam") for _ in range(3)]
    assert more[0].send("/api/v1/sign-out-everywhere", {}).status == 204
    assert {visitor.ask("/api/v1/me").status for visitor in more} == {401}


# -- users


def test_an_admin_is_never_the_last_to_go(hub: HubProcess) -> None:
    admin = signed_in(hub, "root")
    assert admin.ask("/api/v1/users/root", "DELETE").status == 409
    assert admin.send("/api/v1/users/root", {"role": "user"}, "PATCH").status == 409
    assert "last admin" in gpudeck(hub, "user", "remove", "root", code=1)


def test_ones_own_password(hub: HubProcess) -> None:
    add_person(hub, "pat", "viewer")
    pat = signed_in(hub, "pat")
    assert pat.send("/api/v1/users/root", {"password": PASSWORD}, "PATCH").status == 403
    assert pat.send("/api/v1/users/pat", {"role": "admin"}, "PATCH").status == 403
    assert pat.send("/api/v1/users/pat", {"groups": ["*"]}, "PATCH").status == 403
    assert pat.send("/api/v1/users/pat", {"password": "a b c d e f g h"}, "PATCH").status == 200
    assert Visitor(hub).sign_in("pat", "a b c d e f g h").status == 303


@pytest.mark.parametrize("content", [
    {"name": "Bad Name", "role": "viewer"}, {"name": "x", "role": "king"}, {"name": "x"}, [],
    {"name": "x", "role": "viewer", "password": "short"},
    {"name": "x", "role": "viewer", "password": "aaaaaaaaaaaaaaaaaa"},
    {"name": "x", "role": "viewer", "groups": []}, {"name": "x", "role": "viewer", "more": 1},
    {"name": "x", "role": "viewer", "unix_names": ["a b"]}])
def test_what_no_user_is(hub: HubProcess, content: Any) -> None:
    answer = signed_in(hub, "root").send("/api/v1/users", content)
    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/problem+json")


def test_users_by_rest(hub: HubProcess) -> None:
    admin = signed_in(hub, "root")
    reply = admin.send("/api/v1/users", {"name": "rae", "role": "user", "groups": ["lab"]})
    assert (reply.status, reply.json["groups"], reply.json["has_password"]) == (201, ["lab"], False)
    assert Visitor(hub).ask(reply.json["link"]).status == 200
    assert admin.send("/api/v1/users", {"name": "rae", "role": "user"}).status == 409
    user = next(item for item in admin.get("/api/v1/users")["items"] if item["name"] == "rae")
    assert "link" not in user


def test_attempts_are_listed(hub: HubProcess) -> None:
    visitor = Visitor(hub)
    visitor.sign_in("x" * 200, "wrong wrong wrong")
    [newest, *_] = signed_in(hub, "root").get("/api/v1/sign-ins")["items"]
    listed = hub.get("/api/v1/sign-ins")["items"]
    attempt = next(item for item in listed if item["outcome"] == "refused")
    assert (attempt["name"], attempt["from"], attempt["how"]) == ("x" * 64, "127.0.0.1", "password")
    assert newest["outcome"] == "let in"
    assert 0 < len(listed) <= 200


# -- scope


def test_a_scope_is_seen_through_everywhere(tmp_path: Path) -> None:
    """REST, counts, errors and the live socket; another group's nodes are not there at all."""
    with HubProcess(tmp_path / "data") as hub:
        agent = WireAgent("n1", gpus=3)
        agent.connect(hub)
        agent.tick(one_task(user="alice"))
        wait_for(lambda: hub.get("/api/v1/tasks")["items"], why="the task")
        word = add_program(hub, "operator", ["elsewhere"])
        for kind, known_id in (("nodes", agent.node_id), ("gpus", agent.facts[0].uuid),
                               ("tasks", "boot-1:100:5")):
            listing = hub.ask(f"/api/v1/{kind}", token=word).json
            assert (listing["items"], listing["next"], listing.get("total", 0)) == ([], None, 0)
            there = hub.ask(f"/api/v1/{kind}/{known_id}", token=word)
            absent = hub.ask(f"/api/v1/{kind}/no-such", token=word)
            assert (there.status, absent.status) == (404, 404)
            assert there.json["detail"].replace(known_id, "") == absent.json["detail"].replace(
                "no-such", "")
        viewer = RawSocket(hub, "/live", word)
        viewer.emit("tap", True)
        viewer.emit("watch", {"metric": "util_pct", "filter": "user:alice"})
        assert viewer.event("totals")["gpus"]["total"] == 0
        cells = viewer.event("cells")
        assert (cells["n"], cells["matched"], cells["cells"]) == (0, 0, b"")
        agent.tick()
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            packet = viewer.receive(3)
            assert packet["data"][0] != "applied"
            assert b"n1" not in json.dumps(packet, default=repr).encode()


def test_commands_are_cut_for_who_may_not_read_them(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        agent.tick(one_task(user="alice"))
        wait_for(lambda: hub.get("/api/v1/tasks")["items"], why="the task")
        for role, own, command in (
                ("viewer", [], "python"), ("user", ["bob"], "python"),
                ("user", ["alice"], "python train.py"), ("operator", [], "python train.py")):
            word = add_program(hub, role, unix_names=own)
            [task] = hub.ask("/api/v1/tasks", token=word).json["items"]
            assert task["command"] == command
            gpus = hub.ask("/api/v1/gpus?filter=task:train.py", token=word).json["items"]
            assert len(gpus) == (1 if command != "python" else 0)


# -- the command line


def test_every_verb_is_in_the_table() -> None:
    assert {f"gpudeck user {verb}" for verb in USER_VERBS} <= set(TABLE)
    assert {f"gpudeck token {verb}" for verb in TOKEN_VERBS} <= set(TABLE)


@pytest.mark.parametrize("words", [
    ["user", "list"], ["user", "add", "x"], ["user", "set", "x"], ["user", "remove", "x"],
    ["user", "link", "x"], ["token", "list"], ["token", "revoke", "x"],
    ["token", "create", "api", "x"], ["link"]])
def test_without_the_folder_nothing(tmp_path: Path, words: list[str]) -> None:
    commands = {"user": cli_access.user, "token": cli_access.token, "link": cli_access.link}
    with pytest.raises(CommandError, match="there is no hub state") as error:
        commands[words[0]]([*words[1:], "--data", str(tmp_path)])
    assert error.value.code == ExitCode.CANNOT_START
