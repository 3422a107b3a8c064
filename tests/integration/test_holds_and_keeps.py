"""Holds, keeps, addresses and the audit of a real hub, over real sockets."""

import json
import resource
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.audit import audit as audit_command
from gpudeck.contract.actions import HELD_BY_HUB
from gpudeck.contract.wire import decode_command
from tests.integration.acting import ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import HubProcess, RawSocket, wait_for
from tests.integration.visitors import Visitor, add_person, add_program, signed_in

TASK = "boot-1-100-5"


class Node(ActingAgent):
    """A node that obeys holds as an agent does."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.holds: tuple[str, ...] = ()

    def _take(self, message: Any) -> None:
        command = decode_command(message.body)
        if command.action in ("hold", "release"):
            by = f"{HELD_BY_HUB}{command.asker.name}, {command.reason}"
            self.holds = (by,) if command.action == "hold" else ()
        super()._take(message)
        self.beat(*self.holds)

    def orders(self, action: str) -> int:
        return sum(decode_command(command.body).action == action for command in self.commands)


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data") as hub:
        yield hub


def joined_node(hub: HubProcess, name: str) -> Node:
    node = Node(name)
    node.connect(hub)
    node.show(several(2))
    node.beat()
    wait_for(lambda: hub.get(f"/api/v1/nodes/{node.node_id}")["reader"], why="its Beat")
    return node


def hold(visitor: Visitor, node: str | None, reason: str = "") -> Any:
    return visitor.send("/api/v1/hold", {"node": node, "reason": reason})


def test_a_hold_is_in_force_at_once_and_until_it_is_released(hub: HubProcess) -> None:
    one, other = joined_node(hub, "n1"), joined_node(hub, "n2")
    task = f"{one.node_id}/{TASK}"
    add_person(hub, "carol", "operator")
    carol = signed_in(hub, "carol")
    before = previewed(carol, task)
    viewer = RawSocket(hub, "/live", hub.api_token)
    reason = f"driver update {secrets.token_hex(3)}"
    assert hold(carol, one.node_id, reason).status == 200
    event = viewer.event("hold")
    assert [node["node"] for node in event["nodes"]] == [one.node_id]
    wait_for(lambda: one.holds, why="the order")
    assert reason in one.holds[0]
    state = wait_for(lambda: next((node for node in carol.get("/api/v1/hold")["nodes"]
                                   if node["holds"]), None), why="the Beat")
    assert (state["wanted"], state["by"], state["reason"]) == (True, "carol", reason)
    assert carol.get(f"/api/v1/nodes/{one.node_id}")["holds"] == [*one.holds]
    # What was previewed before is refused too, and said so.
    [item] = ordered(carol, before)["items"]
    assert (item["state"], item["refusal"]["code"]) == ("refused", "hold")
    [preview] = previewed(carol, task)["items"]
    assert preview["refusals"][0]["code"] == "hold"
    assert "carol" in preview["refusals"][0]["sentence"]
    assert other.holds == ()
    assert carol.ask(f"/api/v1/hold?node={one.node_id}", "DELETE").status == 200
    wait_for(lambda: not one.holds, why="the release")
    wait_for(lambda: not carol.get("/api/v1/hold")["nodes"], why="nothing held")
    [item] = ordered(carol, previewed(carol, task))["items"]
    settled(carol, item["id"])  # the control: now it is done
    kinds = [(record["action"], record["actor"]) for record in hub.get(
        "/api/v1/audit?kind=hold")["items"]]
    assert kinds == [("release", "carol"), ("hold", "carol")]
    assert hub.get("/api/v1/audit/verify")["broken"] is None


def test_the_fleets_hold_outlives_the_hub_and_reaches_who_comes_later(hub: HubProcess) -> None:
    hub.ask("/api/v1/hold", "POST", body=b'{"node":null,"reason":"fire"}',
            Content_Type="application/json")
    one = joined_node(hub, "n1")
    wait_for(lambda: one.holds, why="it is told when it comes")
    one.close()
    one.holds = ()  # it forgot
    hub.stop()
    hub.start()
    assert hub.get("/api/v1/hold")["fleet"]["reason"] == "fire"
    one.connect(hub)
    one.beat()
    wait_for(lambda: one.holds, why="it is told again")
    assert hub.ask("/api/v1/hold", "DELETE").status == 200
    wait_for(lambda: not one.holds, why="the release")
    assert hub.ask("/api/v1/hold", "DELETE").status == 404


def test_a_hold_of_the_nodes_own_stops_the_hub_and_is_not_the_hubs_to_release(
    hub: HubProcess
) -> None:
    one = joined_node(hub, "n1")
    add_person(hub, "carol", "operator")
    carol = signed_in(hub, "carol")
    one.holds = ("the file /run/gpudeck/hold says: mine",)
    one.beat(*one.holds)
    wait_for(lambda: carol.get("/api/v1/hold")["nodes"], why="it is seen")
    [preview] = previewed(carol, TASK)["items"]
    assert preview["refusals"][0]["code"] == "hold"
    assert carol.ask(f"/api/v1/hold?node={one.node_id}", "DELETE").status == 404
    assert one.orders("release") == 0
    assert carol.get("/api/v1/hold")["nodes"][0]["wanted"] is False


def test_who_may_hold_what(hub: HubProcess) -> None:
    one = joined_node(hub, "n1")
    for name, role, group in (("vera", "viewer", "*"), ("uma", "user", "*"),
                              ("otto", "operator", "elsewhere"), ("olga", "operator", "*")):
        add_person(hub, name, role, [group])
    for name, of_node, of_all in (("vera", 403, 403), ("uma", 403, 403), ("otto", 404, 403)):
        visitor = signed_in(hub, name)
        assert hold(visitor, one.node_id).status == of_node, name
        assert hold(visitor, None).status == of_all, name
    assert one.holds == ()
    assert hold(signed_in(hub, "olga"), None).status == 200
    wait_for(lambda: one.holds, why="the control")


# -- keeps


def test_the_owner_has_a_say(hub: HubProcess) -> None:
    one = joined_node(hub, "n1")
    for name, role, unix in (("alice", "user", ["alice"]), ("bob", "user", ["bob"]),
                             ("vera", "viewer", ["alice"]), ("olga", "operator", [])):
        add_person(hub, name, role, unix_names=unix)
    path, until = f"/api/v1/tasks/{TASK}/keep", time.time() + 3_600
    request = {"until": until, "because": "the last epoch\nof three weeks"}
    assert signed_in(hub, "bob").send(path, request, "PUT").status == 403
    assert signed_in(hub, "vera").send(path, request, "PUT").status == 403
    alice = signed_in(hub, "alice")
    assert alice.send(path, {"until": time.time() + 8 * 86_400}, "PUT").status == 409
    assert alice.send(path, {"until": time.time() - 1}, "PUT").status == 409
    assert alice.send(path, request, "PUT").status == 200
    keep = hub.get(f"/api/v1/tasks/{TASK}")["keep"]
    assert keep == {"until": until, "because": "the last epoch of three weeks", "by": "alice"}
    olga = signed_in(hub, "olga")
    [item] = previewed(olga, TASK)["items"]
    assert item["keep"] == keep
    assert previewed(olga, "boot-1-101-5")["items"][0]["keep"] is None
    assert olga.ask(path, "DELETE").status == 204
    assert hub.get(f"/api/v1/tasks/{TASK}")["keep"] is None
    assert alice.send(path, {"until": time.time() + 1.5, "because": ""}, "PUT").status == 200
    wait_for(lambda: hub.get(f"/api/v1/tasks/{TASK}")["keep"] is None, why="it ends by itself")
    records = hub.get(f"/api/v1/audit?task={TASK}&kind=keep")["items"]
    assert [record["actor"] for record in records] == ["alice", "olga", "alice"]
    one.close()


def test_addresses_are_an_admins(hub: HubProcess) -> None:
    admin = {"Content_Type": "application/json"}
    good = {"items": [{"unix_name": "alice", "address": "alice@example.org"}]}
    put = hub.ask("/api/v1/addresses", "PUT", body=json.dumps(good).encode(), **admin)
    assert put.status == 200
    for bad in ({"items": [{"unix_name": "bob", "address": "no"}]},
                {"items": good["items"] * 2}):
        answer = hub.ask("/api/v1/addresses", "PUT", body=json.dumps(bad).encode(), **admin)
        assert answer.status in (400, 409)
    assert hub.get("/api/v1/addresses") == good
    word = add_program(hub, "operator")
    assert hub.ask("/api/v1/addresses", token=word).status == 403


def test_addresses_and_teams_change_one_by_one_and_others_stay(hub: HubProcess) -> None:
    def post(path: str, row: dict[str, Any]) -> int:
        return hub.ask(f"/api/v1/{path}", "POST", body=json.dumps(row).encode(),
                       Content_Type="application/json").status

    for unix_name in ("carl", "dora"):
        assert post("addresses", {"unix_name": unix_name, "address": "x@example.org"}) == 200
    assert post("addresses", {"unix_name": "carl", "address": "no"}) in (400, 409)
    assert post("addresses", {"unix_name": "carl", "address": "carl@example.org"}) == 200
    assert hub.ask("/api/v1/addresses/dora", "DELETE").status == 204
    assert hub.ask("/api/v1/addresses/dora", "DELETE").status == 404
    addresses = {row["unix_name"]: row["address"]
                 for row in hub.get("/api/v1/addresses")["items"]}
    assert "dora" not in addresses
    assert addresses["carl"] == "carl@example.org"

    for name in ("a/b", "c", "d"):
        assert post("teams", {"name": name, "users": [f"u-{name}"]}) == 200
    assert post("teams", {"name": "c", "users": ["u-d"]}) == 409, "in two teams"
    assert post("teams", {"name": "c", "users": ["u-e"]}) == 200
    assert hub.ask("/api/v1/teams/a%2Fb", "DELETE").status == 204
    assert hub.ask("/api/v1/teams/a%2Fb", "DELETE").status == 404
    assert [(team["name"], team["users"]) for team in hub.get("/api/v1/teams")["items"]] == [
        ("c", ["u-e"]), ("d", ["u-d"])]


# -- the audit


def test_what_people_do_is_recorded_and_who_may_read_it(
    hub: HubProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = joined_node(hub, "n1")
    add_person(hub, "carol", "operator")
    carol = signed_in(hub, "carol")
    assert hub.ask("/api/v1/users", "POST", body=json.dumps(
        {"name": "dora", "role": "viewer", "groups": ["*"]}).encode(),
        Content_Type="application/json").status == 201
    Visitor(hub).sign_in("carol", "not her password")
    [item] = ordered(carol, previewed(carol, TASK))["items"]
    settled(carol, item["id"])

    def kinds() -> set[tuple[str, str | None]]:
        return {(record["kind"], record["outcome"]) for record in hub.get("/api/v1/audit")["items"]}

    wait_for(lambda: {("hub", "done"), ("node", "done"), ("user", "done"), ("sign_in", "let in"),
                      ("sign_in", "refused"), ("command", "sent"), ("command", "done"),
                      } <= kinds(), why="the records")
    people = {record["kind"] for record in hub.get("/api/v1/audit?system=false")["items"]}
    assert "user" in people
    assert not people & {"hub", "heads"}
    assert hub.ask("/api/v1/audit?system=perhaps").status == 400
    acts = hub.get(f"/api/v1/audit?kind=command&node={one.node_id}")["items"]
    assert all(record["actor"] == "carol" and record["task_id"] == TASK for record in acts)
    assert acts[0]["address"] is None or acts[0]["address"] == "127.0.0.1"
    assert {record["kind"] for record in carol.get("/api/v1/audit")["items"]} <= {
        "command", "node", "hold", "keep", "anchor"}
    # Pages, and the terminal through the hub.
    first = hub.get("/api/v1/audit?limit=2")
    second = hub.get(f"/api/v1/audit?limit=2&cursor={first['next']}")
    assert [record["seq"] for record in first["items"] + second["items"]] == list(
        range(first["items"][0]["seq"], first["items"][0]["seq"] - 4, -1))
    assert hub.ask("/api/v1/audit?limit=x").status == 400
    token = tmp_path / "token"
    token.write_text(hub.api_token)
    through = ["--hub", hub.url, "--token-file", str(token)]
    assert audit_command(["tail", "--kind", "command", *through]) == 0
    assert f"of task {TASK}" in capsys.readouterr().out
    assert audit_command(["verify", *through]) == 0
    assert "records hold" in capsys.readouterr().out
    lines = hub.ask("/api/v1/audit/export").body.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))


def test_where_the_record_cannot_be_written_nothing_is_sent(hub: HubProcess) -> None:
    one = joined_node(hub, "n1")
    add_person(hub, "carol", "operator")
    carol = signed_in(hub, "carol")
    preview = previewed(carol, TASK)
    usual = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (1, usual[1]))
    answer = carol.send("/api/v1/commands", {"preview": preview["id"], "reason": "it hangs"})
    assert answer.status == 503, answer.body
    assert b"are refused" in answer.body
    assert hub.ask("/api/v1/users", "POST", body=json.dumps(
        {"name": "dora", "role": "viewer", "groups": ["*"]}).encode(),
        Content_Type="application/json").status == 503
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, usual)
    assert one.executed == []
    assert "dora" not in [user["name"] for user in hub.get("/api/v1/users")["items"]]
    [item] = ordered(carol, previewed(carol, TASK))["items"]
    settled(carol, item["id"])  # the control: with room it is sent
    assert len(one.executed) == 1
