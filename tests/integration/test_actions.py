"""Acts through a real hub: preview, order, what becomes of it; agents over real sockets."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket

from dashboard.audit.store import AuditFilter, AuditStore
from gpudeck.contract.actions import ActionVerification, Command, Refusal, Reply
from tests.integration.acting import ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import HubProcess, RawSocket, wait_for
from tests.integration.visitors import Visitor, add_person, open_state, signed_in


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "data", 0, "--signer-ends-per-node-hour", "100") as hub:
        yield hub


HURRIED = {"gpudeck.contract.actions.COMMAND_LASTS_S": 4.0,
           "dashboard.actions.lifecycle.ANSWER_WITHIN_S": 1.0,
           "dashboard.actions.lifecycle.ASK_EVERY_S": 1.0}


def show_tasks(agent: ActingAgent, hub: HubProcess, count: int = 2, user: str | None = "alice"
               ) -> list[str]:
    agent.connect(hub)
    tasks = several(count, user)
    agent.show(tasks)
    wait_for(lambda: len(hub.get(f"/api/v1/tasks?limit={count + 1}")["items"]) == count)
    return [task.id for task in tasks.began]


def person(hub: HubProcess, name: str, role: str = "operator", **scope: list[str]) -> Visitor:
    add_person(hub, name, role, scope.get("groups", ["*"]), scope.get("unix_names", []))
    return signed_in(hub, name)


def test_a_task_is_previewed_ended_and_recorded(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, other = show_tasks(agent, hub)
    ops = person(hub, "ops")
    preview = previewed(ops, first)
    [item] = preview["items"]
    assert item["task_ids"] == [first]
    assert [one["task_id"] for one in item["bystanders"]] == [other]
    assert item["mem_used_bytes"] == 2e9
    assert item["gpus"] == [
        {"uuid": "GPU-n1-0", "index": 0, "place": "0", "mem_used_bytes": 2e9}]
    assert preview["needs"] == {"fresh": False, "second_person": False, "maintenance": False}
    [command] = ordered(ops, preview)["items"]
    outcome = settled(ops, command["id"])
    assert [one["state"] for one in outcome["history"]] == [
        "requested", "queued", "sent", "accepted", "acting", "done"]
    assert outcome["sentence"].startswith("Ended: its processes are gone. Its memory was freed")
    assert outcome["by"] == {"kind": "person", "name": "ops", "approved_by": None}
    assert agent.executed == [command["id"]]
    wait_for(lambda: (command["id"], 3) in agent.noted_replies)
    with open_state(hub) as state:
        rows = [link.body for link in state.store(AuditStore).newest(
            AuditFilter(kind="command"), None, 50)]
    assert len(rows) == 5  # signed and sent are one
    assert all(command["id"] in row and "it hangs" in row for row in rows)
    # The record of what was asked holds what was shown.
    assert '"bystanders"' in rows[-1]


def test_a_preview_serves_once_and_whom_it_was_shown(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)
    ops, other = person(hub, "ops"), person(hub, "other")
    preview = previewed(ops, first)
    order = {"preview": preview["id"], "reason": "why"}
    assert other.send("/api/v1/commands", order).status == 409
    assert signed_in(hub, "ops").send("/api/v1/commands", order).status == 409
    assert ops.send("/api/v1/commands", order | {"reason": "  "}).status == 400
    assert ops.send("/api/v1/commands", order).status == 202
    repeat = ops.send("/api/v1/commands", order)
    assert (repeat.status, repeat.json["type"]) == (409, "urn:gpudeck:problem:stale_preview")
    wait_for(lambda: agent.commands, why="the one command")
    assert len(agent.commands) == 1


def test_what_the_node_refuses_is_recorded_and_never_sent(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)
    agent.refusals = (Refusal("protected", "this is sshd"),)
    ops = person(hub, "ops")
    preview = previewed(ops, first)
    assert preview["refused"]
    assert preview["items"][0]["refusals"] == [{"code": "protected", "sentence": "this is sshd"}]
    [command] = ordered(ops, preview)["items"]
    assert (command["state"], command["refusal"]["code"]) == ("refused", "protected")
    assert agent.commands == []


def test_a_silent_node_is_said_to_be(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)
    agent.close()
    ops = person(hub, "ops")
    wait_for(lambda: previewed(ops, first)["items"][0]["refusals"][0]["code"] == "offline")


def test_users_act_on_their_own_tasks_and_on_no_others(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, second = show_tasks(agent, hub)
    alice = person(hub, "al", "user", unix_names=["alice"])
    bob = person(hub, "bob", "user", unix_names=["bob"])
    looker = person(hub, "v", "viewer")
    elsewhere = person(hub, "else", "operator", groups=["elsewhere"])
    request = {"action": "end", "targets": [first]}
    assert bob.send("/api/v1/previews", request).status == 403
    assert looker.send("/api/v1/previews", request).status == 403
    assert elsewhere.send("/api/v1/previews", request).status == 404
    assert agent.looks == []
    # The task is hers, and a process of its job is not.
    agent.users[second] = "root"
    refusals = previewed(alice, second)["items"][0]["refusals"]
    assert [one["code"] for one in refusals] == ["scope"]
    [command] = ordered(alice, previewed(alice, first))["items"]
    settled(alice, command["id"])
    assert elsewhere.ask(f"/api/v1/commands/{command['id']}").status == 404
    assert elsewhere.get("/api/v1/commands")["items"] == []
    # What others ran is cut to the program's name for who does not operate.
    assert bob.get("/api/v1/commands")["items"][0]["command"] == "python"
    of_alice = bob.get("/api/v1/commands?owner=alice&since=1")["items"]
    assert [one["id"] for one in of_alice] == [command["id"]]
    assert bob.get("/api/v1/commands?owner=bob")["items"] == []
    later = f"/api/v1/commands?owner=alice&since={time.time() + 60:.0f}"
    assert bob.get(later)["items"] == []
    assert bob.ask("/api/v1/commands?since=soon").status == 400


def test_more_than_three_jobs_wait_for_a_second_person(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    tasks = show_tasks(agent, hub, 5)
    ops, second = person(hub, "ops"), person(hub, "second")
    preview = previewed(ops, *tasks[:4])
    assert preview["needs"]["second_person"]
    answer = ordered(ops, preview)
    plan = answer["plan"]
    assert answer["items"] == []
    assert (plan["state"], len(plan["items"])) == ("waiting", 4)
    assert agent.commands == []
    path = f"/api/v1/plans/{plan['id']}/approve"
    assert ops.send(path, {}).status == 403
    # One is another process by now, under the same task.
    agent.ticks[tasks[2]] = 77
    approved = second.send(path, {})
    assert approved.status == 202, approved.body
    states = {one["task_id"]: one for one in approved.json["items"]}
    assert states[tasks[2]]["refusal"]["code"] == "changed"
    for task_id in (tasks[0], tasks[1], tasks[3]):
        outcome = settled(ops, states[task_id]["id"])
        assert outcome["by"] == {"kind": "person", "name": "ops", "approved_by": "second"}
    assert second.send(path, {}).status == 409
    assert len(agent.executed) == 3


def test_a_plan_can_be_withdrawn(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    tasks = show_tasks(agent, hub, 5)
    ops, second = person(hub, "ops"), person(hub, "second")
    plan = ordered(ops, previewed(ops, *tasks))["plan"]
    assert second.get("/api/v1/plans")["items"][0]["id"] == plan["id"]
    assert ops.ask(f"/api/v1/plans/{plan['id']}", "DELETE").status == 204
    assert second.send(f"/api/v1/plans/{plan['id']}/approve", {}).status == 409
    assert agent.commands == []


def test_more_than_ten_jobs_need_a_plan_of_the_terminal(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    tasks = show_tasks(agent, hub, 11)
    ops = person(hub, "ops")
    for plan in (False, True):
        answer = ops.send("/api/v1/previews", {"action": "end", "targets": tasks, "plan": plan})
        assert answer.status == 400
        assert "--plan" in answer.json["detail"]
    assert len(previewed(ops, *tasks[:10])["items"]) == 10


def test_no_answer_is_unknown_and_a_late_one_settles_it(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data", constants=HURRIED) as hub:
        _settle_late(hub)


def _settle_late(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)
    agent.is_mute = True
    ops = person(hub, "ops")
    [command] = ordered(ops, previewed(ops, first))["items"]
    wait_for(lambda: len(agent.commands) == 1)
    outcome = settled(ops, command["id"], "unknown", 15)
    assert "may or may not have been done" in outcome["sentence"]
    agent.is_mute = False
    settled(ops, command["id"], "done", 10)
    assert len(agent.commands) == 1
    assert agent.inquiries


def test_after_a_reconnect_and_after_a_restart_it_is_asked_and_never_sent_again(
        hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, second = show_tasks(agent, hub)
    agent.is_mute = True
    ops = person(hub, "ops")
    [one] = ordered(ops, previewed(ops, first))["items"]
    [two] = ordered(ops, previewed(ops, second))["items"]
    wait_for(lambda: len(agent.commands) == 2)
    hub.kill()
    hub.start()
    agent.is_mute = False
    # Of the second it never heard, says the node: then it is never run.
    del agent._replies[two["id"]]
    agent.connect(hub)
    visitor = signed_in(hub, "ops")
    settled(visitor, one["id"], "done", 10)
    settled(visitor, two["id"], "expired", 10)
    assert len(agent.commands) == 2
    assert set(agent.inquiries) == {one["id"], two["id"]}


def test_a_killed_signer_refuses_and_comes_back(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)
    ops = person(hub, "ops")
    preview = previewed(ops, first)
    [signer] = signers(hub)
    os.kill(signer, signal.SIGKILL)
    [command] = ordered(ops, preview)["items"]
    assert (command["state"], command["refusal"]["code"]) in (
        ("refused", "signer"), ("refused", "stale_preview"))
    assert agent.commands == []
    wait_for(lambda: signers(hub) not in ([], [signer]))
    wait_for(lambda: not previewed(ops, first)["refused"])
    [command] = ordered(ops, previewed(ops, first))["items"]
    settled(ops, command["id"])


def signers(hub: HubProcess) -> list[int]:
    return hub.children("signer")


def test_the_live_socket_tells_each_step(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)
    ops = person(hub, "ops")
    socket = RawSocket(hub, "/live", cookie=ops.cookie, origin=hub.url)
    outside = person(hub, "else", "operator", groups=["elsewhere"])
    deaf = RawSocket(hub, "/live", cookie=outside.cookie, origin=hub.url)
    [command] = ordered(ops, previewed(ops, first))["items"]
    event = socket.event("command")
    while event["state"] != "done":
        event = socket.event("command")
    assert event["id"] == command["id"]
    with pytest.raises(websocket.WebSocketTimeoutException):
        deaf.event("command", 0.5)


def test_progress_is_shown_and_a_memory_that_stays_is_said(hub: HubProcess) -> None:
    agent = ActingAgent("n1")
    first, _ = show_tasks(agent, hub)

    def stays(command: Command) -> list[Reply]:
        return [Reply(command.command_id, 1, "acting", 1.0, "SIGTERM sent"),
                Reply(command.command_id, 2, "not_effective", 2.0,
                      verified=ActionVerification(True, False, True, 2e9, 2e9))]
    agent.does = stays
    ops = person(hub, "ops")
    [command] = ordered(ops, previewed(ops, first))["items"]
    outcome = settled(ops, command["id"], "not_effective")
    assert "memory has not been freed" in outcome["sentence"]
    assert "Other tasks on its GPUs are unaffected" in outcome["sentence"]
