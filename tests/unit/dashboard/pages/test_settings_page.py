"""The Settings page: what each section shows, to whom, and what its buttons send."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dashboard.access.policy import Role
from dashboard.pages import ASSETS
from dashboard.pages.element_tree import trees
from dashboard.pages.item_lists import ViewContext
from dashboard.pages.parts import literal
from dashboard.pages.pool_orders import request
from dashboard.pages.reading import Parts, Viewer, view_from
from dashboard.pages.settings import (
    addresses,
    enrolment,
    nodes,
    receivers,
    sign_ins,
    teams,
    tokens,
    users,
    you,
)
from dashboard.pages.settings.page import (
    PAGE,
    SECTIONS,
    Content,
    Section,
    SettingsView,
    answer,
    page_parts,
    section_named,
)
from dashboard.pages.silence_table import lasts_field
from gpudeck.client.hub import Client, HubConnection
from gpudeck.markup import make

from .read_parts import elements, wire_parts, words

NOW = 1_796_000_000.0
HOSTILE = '<img src=x onerror="document.title=1">&<b>x'


def context_of(role: str = "admin", name: str = "root", **facts: Any) -> ViewContext:
    person = {"name": name, "role": role, "groups": ["*"], "unix_names": [], **facts}
    return ViewContext(person, NOW, "UTC")


def rows(part: Any) -> list[list[str]]:
    """Return the texts of the cells of each row."""
    return [[words([cell]) for cell in inside] for tag, traits, inside in elements(trees(part))
            if tag == "tr" and "data-key" in traits]


def orders(part: Any) -> dict[str, Any]:
    """Return the orders of the buttons, by label."""
    return {traits.get("aria-label", words(inside)): json.loads(traits["data-form"])
            for _, traits, inside in elements(trees(part)) if "data-form" in traits}


def links(parts: Parts) -> list[tuple[str, str]]:
    """Return the names of the sections that are offered, and whether each is the current one."""
    return [(words(inside), traits["aria-current"]) for tag, traits, inside
            in elements(wire_parts(PAGE, parts)["settings-links"]) if tag == "a"]


def user(name: str, role: str = "user", **facts: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "groups": ["*"], "unix_names": [], "created_at": NOW,
            "last_sign_in_at": None, "has_password": True, **facts}


def node(host: str, access: str = "approved", **facts: Any) -> dict[str, Any]:
    return {"id": f"id-{host}", "host": host, "fingerprint": f"ff:{host}", "group": "default",
            "access": access, "state": "live", "last_heard_at": NOW - 2, "reader": None,
            "driver_version": None, "agent_version": "1.0", "gpus": 2, "cost": None,
            "pending": None, "dropped": None, "unknown_types": [], "refused": None,
            "imported": False, "link": None, "successor": None, **facts}


FREE: dict[str, Any] = {"fleet": None, "nodes": []}


# -- who sees what


def test_who_is_no_admin_sees_two_sections_and_no_list_of_another() -> None:
    for role in ("viewer", "user", "operator"):
        person = context_of(role, "ann").person
        section = section_named("users", person)
        parts = page_parts(section, None, person)
        assert links(parts) == [("Sign-ins", "false"), ("You", "false")]
        assert parts["settings-refused"] == (
            f"This section is for admins. You are signed in as ann, whose role is {role}.")
        assert [key for key, part in parts.items() if key.startswith("section-") and part] == []


def test_without_a_name_the_first_section_is_shown_that_the_person_may_open() -> None:
    for name in ("", "nothing", "main"):
        assert section_named(name, context_of("viewer").person).key == "sign-ins"
        assert section_named(name, context_of().person).key == "users"


def test_one_section_is_shown_and_marked() -> None:
    person = context_of().person
    for section in SECTIONS:
        parts = page_parts(section_named(section.key, person), Content(make("button"), []),
                           person)
        assert [key for key, part in parts.items() if key.startswith("section-") and part] == [
            f"section-{section.key}"]
        assert links(parts) == [(other.name, str(other is section).lower())
                                for other in SECTIONS]


class EmptyHub(HubConnection):
    """A hub without anything, for a person of a role. `paths`: what was asked of it."""

    def __init__(self, role: str) -> None:
        self.paths: list[str] = []
        self._role = role

    @contextmanager
    def opened(self, method: str, path: str, body: Any = None, timeout_s: float | None = None,
               accept: str = "application/json", key: str | None = None) -> Iterator[Any]:
        self.paths.append(path.partition("?")[0])
        yield io.BytesIO(json.dumps({
            "items": [], "next": None, "total": 0, "muted": 0, "has_mail": False, "kinds": KINDS,
            "fleet": None, "nodes": [], "state": "none", **context_of(self._role).person,
            **(place() if path.startswith("enrolments/") else {})}).encode())


ASKED = {
    "users": ["sessions", "users"], "tokens": ["tokens"], "nodes": ["nodes", "enrolments", "hold"],
    "addresses": ["addresses"], "teams": ["teams"], "notices": ["receivers", "notices", "rules"],
    "history": ["archive"], "sign-ins": ["sign-ins", "sessions"], "you": []}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.key)
def test_of_a_hub_without_anything_each_section_says_so(section: Section) -> None:
    hub = EmptyHub("admin")
    parts = answer(Client.over(hub), view_from(SettingsView, {"section": section.key}), NOW)
    assert hub.paths == ["me", *ASKED[section.key]]
    nodes_on_wire = wire_parts(PAGE, parts)[f"section-{section.key}"]
    assert words(nodes_on_wire).startswith(section.name + section.about)
    assert rows(parts[f"section-{section.key}"]) == []


@pytest.mark.parametrize("role", ["viewer", "user", "operator"])
def test_for_who_is_no_admin_no_list_of_admins_is_even_read(role: str) -> None:
    for section in SECTIONS:
        hub = EmptyHub(role)
        answer(Client.over(hub), view_from(SettingsView, {"section": section.key}), NOW)
        assert {*hub.paths} <= {"me", "sessions"}


# -- users


def test_no_users() -> None:
    part = users.users_list([], {}, context_of())
    assert rows(part) == []
    assert "No users yet" in words(trees(part))


def test_nobody_is_offered_to_remove_or_lock_out_themselves() -> None:
    """The last admin, who sees only themselves as one, has no such button."""
    part = users.users_list([user("root", "admin"), user("ann")], {}, context_of())
    assert [[cell[-1] for cell in rows(part)][at] for at in (0, 1)] == [
        "Edit", "EditPasswordSign outRemove"]
    assert rows(part)[0][0] == "rootyou"
    assert not any("root" in label and not label.startswith("Edit") for label in orders(part))


def test_a_sign_out_ends_each_session_of_this_user_alone() -> None:
    part = users.users_list([user("ann"), user("bob")], {"ann": ["s1", "s2"], "bob": ["s3"]},
                            context_of())
    order = orders(part)["Sign out everywhere ann"]
    assert [(one["method"], one["path"]) for one in order["sends"]] == [
        ("DELETE", "sessions/s1"), ("DELETE", "sessions/s2")]


def test_a_change_of_a_user_is_undone_with_what_it_was() -> None:
    ann = user("ann", groups=["lab", "b"], unix_names=["a1"])
    order = orders(users.users_list([ann], {}, context_of()))["Edit ann"]
    assert order["undo"]["body"] == {"role": "user", "groups": ["lab", "b"], "unix_names": ["a1"]}
    assert [(field["name"], field["value"]) for field in order["fields"]] == [
        ("role", "user"), ("groups", "lab, b"), ("unix_names", "a1")]


def test_passwords_go_from_the_dialog_to_the_hub() -> None:
    """Their fields have no value, and only the order that is sent has a place for it."""
    for part in (users.users_list([user("ann")], {}, context_of()), users.add_button(),
                 you.password_button(context_of())):
        for order in orders(part).values():
            for field in order.get("fields", []):
                if field["name"] == "password":
                    assert field["type"] in ("password", "new_password")
                    assert field.get("value", "") == ""
                    assert order["body"]["password"] == "$password"


# -- hostile texts


def test_names_stay_texts_and_paths_stay_whole() -> None:
    context = context_of()
    token = {"id": "../users", "name": HOSTILE, "role": "viewer", "groups": [HOSTILE],
             "created_at": NOW, "created_by": HOSTILE, "expires_at": NOW + 9, "last_used_at": None}
    attempt = {"at": NOW, "name": HOSTILE, "from": "::1", "how": HOSTILE, "outcome": HOSTILE}
    lists = {
        "tokens": tokens.tokens_list([token], context),
        "sign-ins": sign_ins.sessions_list([], [attempt], context),
        "users": users.users_list([user(HOSTILE)], {}, context),
        "nodes": nodes.nodes_lists([node(HOSTILE, "waiting", group=HOSTILE)], [], FREE, "",
                                   context),
        "teams": teams.teams_list([{"name": HOSTILE, "users": [HOSTILE]}]),
        "addresses": addresses.addresses_list([{"unix_name": HOSTILE, "address": HOSTILE}])}
    for name, part in lists.items():
        tags = {tag for tag, *_ in elements(trees(part))}
        assert not tags & {"img", "b"}, name
        assert HOSTILE in words(trees(part)), name
        for order in orders(part).values():
            assert re.fullmatch(r"[\w%./-]+(\?[\w=%+]+)?", order.get("path", "x")), order
    assert orders(lists["tokens"])[f"Revoke {HOSTILE}"]["path"] == "tokens/..%2Fusers"


def test_a_name_with_a_dollar_is_no_field() -> None:
    team = {"name": "$users", "users": ["ann"]}
    order = orders(teams.teams_list([team]))["Edit the team $users"]
    assert order["body"]["name"] == "$$users"
    assert order["body"]["users"] == "$users"
    assert literal("a$b") == "a$b"


# -- tokens, sessions, account


def test_a_token_that_has_expired_says_so_and_no_secret_is_listed() -> None:
    token = {"id": "t1", "name": "grafana", "role": "viewer", "groups": ["lab"],
             "created_at": NOW - 7_200, "created_by": "root", "expires_at": NOW - 600,
             "last_used_at": None, "secret": "gpdk_x"}
    part = tokens.tokens_list([token], context_of())
    assert rows(part)[0][:-1] == ["grafanaexpired", "viewer", "lab", "2 h ago by root",
                                  "10 min ago", "never"]
    assert "gpdk_x" not in json.dumps(trees(part))


def test_attempts_are_for_admins_and_this_session_is_not_ended_here() -> None:
    sessions = [{"id": f"s{at}", "user": "ann", "from": "10.0.0.1", "how": "password",
                 "created_at": NOW - 60, "last_used_at": NOW - at, "is_this": at == 2}
                for at in range(3)]
    own = sign_ins.sessions_list(sessions, None, context_of("viewer", "ann"))
    assert "Sign-in attempts" not in json.dumps(trees(own))
    assert [row[-1] for row in rows(own)] == ["", "End", "End"]
    assert rows(own)[0][0] == "10.0.0.1this session"
    everybody = sign_ins.sessions_list(sessions, [], context_of())
    assert "No sign-in attempts yet." in json.dumps(trees(everybody))


@pytest.mark.parametrize(("outcome", "word", "tone"), [
    ("let in", "signed in", "pill ok"), ("refused", "refused", "pill lost"),
    ("throttled", "throttled", "pill stale"), ("new", "new", "pill")])
def test_an_attempt_says_what_became_of_it(outcome: str, word: str, tone: str) -> None:
    attempt = {"at": NOW, "name": "ann", "from": "::1", "how": "link", "outcome": outcome}
    part = sign_ins.sessions_list([], [attempt], context_of())
    assert [(words(inside), traits["class"]) for _, traits, inside in elements(trees(part))
            if traits.get("class", "").startswith("pill")] == [(word, tone)]


def test_an_account_without_a_unix_name_says_what_to_do() -> None:
    assert "an admin can add one" in json.dumps(trees(you.account(context_of("user"))))
    part = you.account(context_of("user", unix_names=["a1", "a2"]))
    assert "those of a1, a2" in json.dumps(trees(part))


# -- nodes


def test_nodes_that_wait_come_first_and_numbers_count_as_numbers() -> None:
    some = [node("gpu10"), node("gpu2"), node("old", "revoked"), node("gpu9", "waiting"),
            node("other", link="https://other")]
    part = nodes.nodes_lists(some, [], FREE, "", context_of())
    assert [row[0].partition("ff:")[0] for row in rows(part)] == ["gpu9", "gpu2", "gpu10", "old"]
    labels = orders(part)
    assert [label for label in labels if label.startswith("Approve g")] == ["Approve gpu9"]
    assert "4 nodes; 1 waiting for approval" in json.dumps(trees(part))


def test_a_machine_that_was_installed_again_is_said_at_both_of_its_nodes() -> None:
    why = "Silent: another node called gpu1 reports its GPUs now"
    old = node("gpu1", state="silent", successor="id-new", last_heard_at=NOW - 3_600,
               health={"word": "silent", "why": why})
    part = nodes.nodes_lists([old, node("new")], [], FREE, "", context_of())
    text = json.dumps(trees(part))
    assert why in text
    assert "Reports the GPUs of gpu1, silent since" in text
    assert text.count("revoke that node?") == 1


def test_a_node_is_found_by_group_state_and_key() -> None:
    some = [node("a", group="lab"), node("b", "waiting"), node("c")]
    for text, hosts in (("lab", ["a"]), (" WAITING ", ["b"]), ("ff:c", ["c"]), ("zzz", [])):
        part = nodes.nodes_lists(some, [], FREE, text, context_of())
        assert [row[0].partition("ff:")[0] for row in rows(part)] == hosts
        assert f"{len(hosts)} of 3 nodes" in json.dumps(trees(part))


def test_of_many_nodes_the_first_are_shown() -> None:
    some = [node(f"n{at}") for at in range(nodes.MOST_ROWS + 1)]
    part = nodes.nodes_lists(some, [], FREE, "", context_of())
    assert len(rows(part)) == nodes.MOST_ROWS
    assert f"{len(some)} nodes, the first {nodes.MOST_ROWS} shown" in json.dumps(trees(part))


def test_actions_are_resumed_only_where_this_hub_stopped_them() -> None:
    hold = {"fleet": None, "nodes": [{"node": "id-a", "wanted": True, "holds": []},
                                     {"node": "id-b", "wanted": False, "holds": ["/etc/hold"]},
                                     {"node": "id-c", "wanted": False, "holds": []}]}
    part = nodes.nodes_lists([node("a"), node("b"), node("c")], [], hold, "", context_of())
    assert {label for label in orders(part) if "actions" in label} == {
        "Resume actions on a", "Stop actions on c"}
    assert [("actions stopped" in row[1]) for row in rows(part)] == [True, True, False]
    assert orders(part)["Resume actions on a"]["path"] == "hold?node=id-a"
    stopped = nodes.nodes_lists([node("a")], [], {"fleet": {"by": "x"}, "nodes": []}, "",
                                context_of())
    assert not any("actions" in label for label in orders(stopped))


def place(**facts: Any) -> dict[str, Any]:
    return {"id": "e1", "host": None, "group": "lab", "created_at": NOW, "created_by": "root",
            "expires_at": NOW + 600, "used_by": None, "uses": 1, "used": 0, "networks": "", **facts}


def test_a_command_that_is_used_up_or_expired_is_not_pending() -> None:
    one = place(uses=3, used=1, networks="10.0.0.0/8")
    for fields, count in (({}, 1), ({"used_by": "n1"}, 0), ({"expires_at": NOW - 1}, 0)):
        part = nodes.nodes_lists([], [one | fields], FREE, "", context_of())
        assert len(rows(part)) == count
    assert rows(nodes.nodes_lists([], [one], FREE, "", context_of()))[0][:3] == [
        "any node, from 10.0.0.0/8", "1 of 3", "lab"]


# -- receivers


def kind(name: str, destination: str, **facts: Any) -> dict[str, Any]:
    return {"kind": name, "title": name.title(), "destination": destination, "needs_mail": False,
            "has_template": False, "to_words": "", "wants_words": "", **facts}


KINDS = [kind("hook", "url"), kind("own", "url", has_template=True),
         kind("post", "addresses", needs_mail=True),
         kind("beat", "url", wants_words="a heartbeat")]
LISTED: dict[str, Any] = {"items": [], "has_mail": False, "muted": 0, "kinds": KINDS}
NONE_WAITING: dict[str, Any] = {"items": [], "total": 0}


def receiver(name: str = "ops", **facts: Any) -> dict[str, Any]:
    return {"id": "r1", "name": name, "kind": "hook", "to": "https://x/…", "least": "warn",
            "rules": [], "has_token": False, "token_file": "", "is_on": True, "template": "",
            "headers": {}, "waiting": 0, "parked": 0, "sent": 0, "failed": 0, "unreached": 0,
            "dropped": 0, "told_at": None, "error": "", "error_at": None, "test": None,
            "tested_at": None, **facts}


def test_a_new_receiver_has_the_fields_of_its_kind() -> None:
    order, = orders(receivers.add_button(LISTED, ["hot"])).values()
    only = {(field.get("name", field["type"]), field["label"]): field.get("only", {}).get("kind")
            for field in order["fields"]}
    assert only["to", "URL"] == ["hook", "own", "beat"]
    assert only["to", "Addresses"] == ["post"]
    assert only["template", "Template"] == ["own"]
    assert only["least", "Severity"] == ["hook", "own", "post"]
    assert only["problem", receivers.NO_MAIL] == ["post"]
    assert only["name", "Name"] is None


def test_a_receiver_that_is_changed_has_only_its_own_fields() -> None:
    part = receivers.receivers_list(LISTED | {"items": [receiver()]}, NONE_WAITING, [],
                                    context_of())
    order = orders(part)["Edit ops"]
    assert [field["name"] for field in order["fields"]] == [
        "name", "to", "least", "rules", "token", "token_file", "is_on"]
    assert order["body"]["kind"] == "hook"
    url = next(field for field in order["fields"] if field["name"] == "to")
    assert url["value"] == ""
    assert "required" not in url["traits"]


@pytest.mark.parametrize(("facts", "state"), [
    ({}, "idlenothing delivered yet"),
    ({"is_on": False}, "offnothing delivered yet"),
    ({"told_at": NOW - 180, "waiting": 2}, "welllast delivered 3 min ago, 2 waiting"),
    ({"error": "it answered 503", "error_at": NOW - 60, "parked": 1},
     "not deliverednothing delivered yet, 1 set asideit answered 503, 60 s ago"),
    ({"test": {"is_taken": True, "words": "it answered 200 OK"}, "tested_at": NOW},
     "idlenothing delivered yetTest delivered: it answered 200 OK, just now"),
    ({"test": {"is_taken": False, "words": "it answered 503"}, "tested_at": NOW},
     "idlenothing delivered yetTest not delivered: it answered 503, just now")])
def test_a_receiver_says_how_it_has_been_doing(facts: dict[str, Any], state: str) -> None:
    part = receivers.receivers_list(LISTED | {"items": [receiver(**facts)]}, NONE_WAITING, [],
                                    context_of())
    assert rows(part)[0][2] == state


def test_what_waits_names_its_receiver_and_what_is_not_listed_is_counted() -> None:
    one = {"id": "n1", "receiver": "gone", "title": "Hot GPU", "at": NOW - 60, "attempts": 1,
           "next_at": NOW + 60, "error": "it answered 503", "parked_at": None, "state": "waiting"}
    part = receivers.receivers_list(LISTED | {"muted": 2}, {"items": [one], "total": 4}, [],
                                    context_of())
    assert rows(part)[0][:2] == ["Hot GPUfor a removed receiver, 60 s ago",
                                 "waits1 attempt, next try in 60 sit answered 503"]
    assert "3 more waiting. 2 alerts were silenced" in json.dumps(trees(part))


# -- the browser's side


def test_the_browser_reads_each_kind_of_field() -> None:
    text = (ASSETS / "reading/orders.mjs").read_text()
    every = [users.add_button(), tokens.add_button(), teams.add_button(), addresses.add_button(),
             receivers.add_button(LISTED, []), enrolment.connect_button(),
             make("button", data_form=enrolment.APPROVE)]
    fields = [field for part in every for order in orders(part).values()
              for field in order["fields"]]
    fields += [*request([], [], Viewer(Role.OPERATOR), "UTC", NOW)["fields"], lasts_field()]
    assert {field["as"] for field in fields if "as" in field} == set(
        re.findall(r"^  (\w+)(?:: \(text\)|: headersOf|: secondsIn)", text, re.M))
    for field in fields:
        assert field["type"] in ("text", "url") or f'"{field["type"]}"' in text


@pytest.mark.parametrize(("command", "of", "text", "is_good", "labels"), [
    (place(), None, "Waiting for the node …", False, ["Withdraw"]),
    (place(expires_at=NOW - 1), None, "Expired; create a new one.", False, ["Withdraw"]),
    (place(uses=3, used=1), None, "1 of 3 nodes are enrolled.", False, ["Withdraw"]),
    (place(uses=3, used=3), None, "3 of 3 nodes are enrolled.", True, []),
    (place(used=1, used_by="id-a"), node("a", "waiting"), "Compare the fingerprint shown by its "
     "agent: ff:a", False, ["Approve"]),
    (place(used=1, used_by="id-a"), node("a", gpus=0), "a is connected; reading its GPUs …", True,
     []),
    (place(used=1, used_by="id-a"), node("a", state="silent"),
     "a is enrolled; waiting for its data …", False, []),
    (place(used=1, used_by="id-a"), node("a"), "a is connected, with 2 GPUs.", True, []),
    (place(used=1, used_by="id-a"), node("a", "revoked"), "a was revoked.", False, []),
    (None, None, "Withdrawn: the command no longer works.", False, [])])
def test_what_becomes_of_a_command_stands_below_it(
        command: Any, of: Any, text: str, is_good: bool, labels: list[str]) -> None:
    part = enrolment.progress(command, of, NOW)
    assert text in words(trees(part))
    assert ("good" in json.dumps(trees(part))) == is_good
    assert [*orders(part)] == labels


def test_while_a_command_is_shown_only_that_command_is_read() -> None:
    hub = EmptyHub("admin")
    parts = answer(Client.over(hub), SettingsView(section="nodes", enrolment="e/1"), NOW)
    assert hub.paths == ["me", "enrolments/e%2F1"]
    assert set(parts) == {enrolment.PROGRESS, "@every"}
    for role in ("viewer", "user", "operator"):
        visitor = EmptyHub(role)
        answer(Client.over(visitor), SettingsView(section="nodes", enrolment="e1"), NOW)
        assert visitor.paths == ["me"]


def test_a_list_of_fingerprints_says_once_which_were_not_approved() -> None:
    items = [{"fingerprint": outcome, "host": None, "outcome": outcome}
             for outcome in ("approved", "already", "revoked", "unknown")]
    view = SettingsView(section="nodes", approvals=json.dumps({"items": items}))
    parts = answer(Client.over(EmptyHub("admin")), view, NOW)
    assert words(trees(parts["@dialog"])) == (
        "Not all were approved1 node approved.revoked is revoked.unknown has not connected.")
    assert view.approvals == ""
    assert "@dialog" not in answer(Client.over(EmptyHub("admin")), view, NOW)
    [title, *_] = enrolment.approval_dialog(json.dumps({"items": items[:2]}))
    assert title == "Approved by fingerprint"
