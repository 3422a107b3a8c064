"""Gains of a thief from each theft: a test for each row of the table in docs/actions.md."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dashboard.access.store import SessionStore
from dashboard.actions.commander import new_id
from dashboard.actions.hub_key import HubKey
from dashboard.actions.signer_client import SignerClient
from dashboard.actions.signing_policy import SigningBudget
from dashboard.errors import SignerUnavailableError
from gpudeck.contract.action_table import Action
from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    ActionParams,
    Command,
    CommandActor,
    Preview,
    ProcessIdentity,
    Refusal,
    Reply,
    Victim,
)
from gpudeck.contract.wire import command_statement, preview_statement
from gpudeck.network.keys import SigningKey, fingerprint, is_signed
from tests.integration.acting import ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import Visitor, add_person, open_state, signed_in


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        yield hub


@pytest.fixture(name="agent")
def _agent(hub: HubProcess) -> ActingAgent:
    """A separate node for each test, with the signer's budget for it."""
    return joined_agent(hub, f"n{os.urandom(4).hex()}")


def joined_agent(hub: HubProcess, name: str, count: int = 9) -> ActingAgent:
    agent = ActingAgent(name)
    agent.connect(hub)
    show(agent, hub, count)
    return agent


def show(agent: ActingAgent, hub: HubProcess, count: int = 9) -> None:
    tasks = several(count, boot=f"{agent.caller.said.host}")
    agent.show(tasks)
    last = tasks.began[-1].id
    wait_for(lambda: hub.ask(f"/api/v1/tasks/{last}").status == 200, why="its tasks")


def tasks_of(agent: ActingAgent) -> list[str]:
    return list(agent._tasks)


def thief(hub: HubProcess, role: str, groups: tuple[str, ...] = ("*",), fresh: bool = True
          ) -> Visitor:
    name = f"{role}-{os.urandom(4).hex()}"
    add_person(hub, name, role, groups)
    visitor = signed_in(hub, name)
    if not fresh:
        with open_state(hub) as state:
            for session in state.store(SessionStore).all(0.0):
                if session.user == name:
                    state.store(SessionStore).renew(replace(session, fresh_until=0.0))
        wait_for(lambda: visitor.get("/api/v1/me")["fresh_until"] == 0.0)
    return visitor


def test_a_viewer_s_session_reads_and_orders_nothing(hub: HubProcess, agent: ActingAgent) -> None:
    viewer, task = thief(hub, "viewer"), tasks_of(agent)[0]
    assert viewer.get(f"/api/v1/tasks/{task}")["id"] == task
    for action in ("notify", "pause", "resume", "end"):
        request = {"action": action, "targets": [task]}
        assert viewer.send("/api/v1/previews", request).status == 403
    assert viewer.send("/api/v1/commands", {"preview": "x", "reason": "y"}).status == 403
    assert (agent.looks, agent.commands) == ([], [])


def test_an_operator_s_session_without_the_password_stops_nobody_s_work(
        hub: HubProcess, agent: ActingAgent) -> None:
    stale, task = thief(hub, "operator", fresh=False), tasks_of(agent)[0]
    for action in ("pause", "end"):
        preview = previewed(stale, task, action=action)
        assert preview["needs"]["fresh"]
        answer = stale.send("/api/v1/commands", {"preview": preview["id"], "reason": "why"})
        assert (answer.status, answer.json["type"]) == (403, "urn:gpudeck:problem:stale")
    assert agent.commands == []
    [notice] = ordered(stale, previewed(stale, task, action="notify"))["items"]
    settled(stale, notice["id"])
    elsewhere = thief(hub, "operator", ("elsewhere",))
    assert elsewhere.send("/api/v1/previews", {"action": "end", "targets": [task]}).status == 404


def test_an_operator_with_the_password_has_a_budget_and_no_bulk(
        hub: HubProcess, agent: ActingAgent) -> None:
    fresh, tasks = thief(hub, "operator"), tasks_of(agent)
    assert ordered(fresh, previewed(fresh, *tasks[:4]))["plan"] is not None
    assert agent.commands == []
    states = []
    for task in tasks[:7]:
        [item] = ordered(fresh, previewed(fresh, task))["items"]
        states.append((item["refusal"] or {}).get("code"))
    # The default of signer_ends_per_node_hour.
    assert states == [None] * 6 + ["budget"]
    assert len(agent.executed) == 6


def test_one_agent_s_key_speaks_for_no_other_node(hub: HubProcess, agent: ActingAgent) -> None:
    stolen = joined_agent(hub, f"stolen{os.urandom(4).hex()}", 1)
    ops, task = thief(hub, "operator"), tasks_of(agent)[0]
    # It answers what was asked of another: as itself, and in the other's name.
    log: list[Any] = []
    agent.forges = lambda preview: log.append(preview) or preview  # type: ignore[func-returns-value]
    preview = previewed(ops, task)
    forged = stolen.sign(msgspec.structs.replace(log[0], key=stolen.caller.key.public))
    stolen.say(forged)
    # A preview that it makes of itself names no other node.
    stolen.forges = lambda mine: stolen.sign(
        msgspec.structs.replace(mine, node_id=agent.node_id))
    [item] = previewed(ops, tasks_of(stolen)[0])["items"]
    assert [one["code"] for one in item["refusals"]] == ["offline"]
    # What it says of another's command is not believed.
    agent.is_mute = True
    [command] = ordered(ops, preview)["items"]
    stolen.say(Reply(command["id"], 9, "done", time.time()))
    wait_for(lambda: (command["id"], 9) in stolen.noted_replies)
    assert ops.get(f"/api/v1/commands/{command['id']}")["state"] == "sent"
    assert stolen.commands == []
    # And with whatever epoch it has seen, it stops orders to nobody but itself.
    third = joined_agent(hub, f"third{os.urandom(4).hex()}", 1)
    stolen.close()
    stolen.epoch_seen(stolen.welcomes[-1].epoch + 5)
    stolen.forges = lambda preview: preview
    stolen.connect(hub)
    [refusal] = previewed(ops, tasks_of(stolen)[0])["items"][0]["refusals"]
    assert refusal["code"] == "fence"
    [fine] = ordered(ops, previewed(ops, tasks_of(third)[0]))["items"]
    settled(ops, fine["id"])


def test_a_recorded_stream_says_nothing_again(hub: HubProcess, agent: ActingAgent) -> None:
    ops, task = thief(hub, "operator"), tasks_of(agent)[0]
    recorded: list[Preview] = []

    def record(preview: Preview) -> Preview:
        recorded.append(preview)
        return preview

    agent.forges = record
    [command] = ordered(ops, previewed(ops, task))["items"]
    settled(ops, command["id"])
    agent.forges = lambda preview: recorded[0]
    [item] = previewed(ops, task)["items"]
    assert [one["code"] for one in item["refusals"]] == ["offline"]
    # The nonce inside is used up, for the signer too; the newer number of an old reply is late.
    agent.say(Reply(command["id"], 99, "not_effective", time.time()))
    wait_for(lambda: (command["id"], 99) in agent.noted_replies)
    assert ops.get(f"/api/v1/commands/{command['id']}")["state"] == "done"


# -- the hub's web process: the thief holds its end of the signer's socket


NODE_KEY = SigningKey(os.urandom(32))
VICTIM = Victim(ProcessIdentity(4_242, 7, 1_000, None, None, None), "python train.py", "alice")


@pytest.fixture(name="signer")
def _signer(tmp_path: Path) -> Iterator[SignerClient]:
    signer = SignerClient(tmp_path, SigningBudget(5, 3))
    signer.wait()
    signer.raise_epoch(9)
    yield signer
    signer.close()


def order(signer: SignerClient, key: SigningKey = NODE_KEY, action: Action = "end",
          forge: Callable[[Preview], Preview] = lambda preview: preview) -> Command:
    """Make a command as a hub does, of a preview as a node signs it."""
    now, nonce, node_id = time.time(), signer.nonce(), fingerprint(key.public)
    preview = None
    if action not in ("hold", "release"):
        draft = Preview("ask", nonce, node_id, "boot", now, action, ActionParams(), "t1",  # type: ignore[arg-type]
                        None,
                        "alice", 100.0, None, None, (VICTIM,), (), key=key.public)
        signed = msgspec.structs.replace(draft, signature=key.sign(preview_statement(draft)))
        preview = forge(signed)
    return Command(new_id(now), node_id, signer.epoch, now, now + COMMAND_LASTS_S, nonce, action,
                   CommandActor("person", "root"), "because", preview)


def refusal(signer: SignerClient, command: Command) -> str | None:
    reply = signer.sign(command)
    if isinstance(reply, Refusal):
        return reply.code
    public = HubKey(signer._folder).public
    assert is_signed(public, command_statement(reply.body), reply.signature)
    return None


def test_a_stolen_web_process_gets_no_order_beyond_the_policy(signer: SignerClient) -> None:
    assert refusal(signer, order(signer)) is None  # the control: what is right is signed
    changed = msgspec.structs.replace
    own = SigningKey(os.urandom(32))
    # A preview that no node has signed, or that was changed, or signed by another key.
    other = Victim(ProcessIdentity(1, 1, 0, None, None, None), "init", "root")
    for forge in (lambda one: changed(one, victims=(other,)),
                  lambda one: changed(one, signature=os.urandom(64)),
                  lambda one: changed(one, key=own.public,
                                      signature=own.sign(preview_statement(one))),
                  lambda one: changed(one, refusals=(Refusal("hold", "held"),))):
        assert refusal(signer, order(signer, forge=forge)) == "signer"
    for change in ({"preview": None}, {"action": "pause"}, {"epoch": 8}, {"epoch": 10},
                   {"node_id": fingerprint(own.public)},
                   {"expires_at": time.time() + 3_600}, {"issued_at": time.time() - 100}):
        assert refusal(signer, changed(order(signer), **change)) == "signer"
    assert refusal(signer, changed(order(signer), nonce=os.urandom(32))) == "stale_preview"


def test_it_gets_each_order_once(signer: SignerClient) -> None:
    command = order(signer)
    assert refusal(signer, command) is None
    assert refusal(signer, msgspec.structs.replace(command, command_id="c2")) == "stale_preview"


def test_the_budget_outlives_the_signer(signer: SignerClient, tmp_path: Path) -> None:
    assert [refusal(signer, order(signer)) for _ in range(4)] == [None, None, None, "budget"]
    signer.close()
    second = SignerClient(tmp_path, SigningBudget(5, 3))
    second.wait()
    try:
        assert second.epoch == 9
        assert refusal(second, order(second)) == "budget"
        other = SigningKey(os.urandom(32))
        assert [refusal(second, order(second, other)) for _ in range(3)] == [None, None, "budget"]
        # To stop is never too much.
        assert refusal(second, order(second, action="hold")) is None
    finally:
        second.close()


def test_an_epoch_goes_up_alone_and_by_steps(signer: SignerClient) -> None:
    assert signer.raise_epoch(3) == 9
    assert signer.raise_epoch(2**50) == 9
    assert signer.raise_epoch(12) == 12


def test_what_is_no_message_ends_the_signer_and_yields_nothing(signer: SignerClient) -> None:
    assert signer._link is not None
    signer._link.sendall(b"\0\0\0\x03abc")
    with pytest.raises(SignerUnavailableError):
        signer.nonce()


def test_the_signer_has_no_network_and_one_socket(signer: SignerClient) -> None:
    links = [os.readlink(link) for link in Path(f"/proc/{signer.pid}/fd").iterdir()]
    assert len([link for link in links if link.startswith("socket:")]) == 1
    limits = Path(f"/proc/{signer.pid}/limits").read_text()
    assert limits.split("Max core file size")[1].split()[:2] == ["0", "0"]


def test_the_web_process_never_holds_the_key(hub: HubProcess) -> None:
    """Neither open nor in its memory: only the signer has read the file."""
    [signer] = hub.children("signer")
    seed = (hub.folder / "hub.key").read_bytes()
    # The control: the signer does hold it, or does not let us look, which is as good.
    assert _memory_holds(signer, seed) is not False
    assert not _memory_holds(hub.process.pid, seed)


def _memory_holds(pid: int, needle: bytes) -> bool | None:
    """Return whether the process has it in memory; None: only root may look."""
    if not os.access(f"/proc/{pid}/mem", os.R_OK):
        return None
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            start, end = (int(number, 16) for number in span.split("-"))
            try:
                memory.seek(start)
                if needle in memory.read(end - start):
                    return True
            except OSError:
                continue
    return False


# -- a backup of the hub's disk


def test_a_restored_backup_sends_nothing_and_goes_ahead(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as hub:
        agent = joined_agent(hub, "n1", 3)
        agent.is_mute = True
        add_person(hub, "ops", "operator")
        ops = signed_in(hub, "ops")
        [old] = ordered(ops, previewed(ops, tasks_of(agent)[0]))["items"]
        wait_for(lambda: len(agent.commands) == 1)
        hub.kill()
        agent.close()
        shutil.copytree(hub.folder, tmp_path / "backup")
        for _ in range(2):
            hub.start()
            agent.connect(hub)
            hub.kill()
            agent.close()
        seen_epoch = agent.caller.said.epoch_seen
    # Without what the signer has written since, too.
    with HubProcess(tmp_path / "backup") as restored:
        agent.is_mute = False
        agent._replies.clear()
        agent.connect(restored)
        show(agent, restored, 3)
        assert agent.welcomes[-1].epoch > seen_epoch
        ops = signed_in(restored, "ops")
        settled(ops, old["id"], "expired", 20)
        assert len(agent.commands) == 1
        [new] = ordered(ops, previewed(ops, tasks_of(agent)[1]))["items"]
        settled(ops, new["id"])


def test_a_backup_without_the_key_signs_nothing(hub: HubProcess) -> None:
    seed = (hub.folder / "hub.key").read_bytes()
    for file in hub.folder.rglob("*"):
        if file.is_file() and file.name != "hub.key":
            assert seed not in file.read_bytes(), file.name


def test_of_two_hubs_with_one_key_the_older_gives_no_orders(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "data") as first:
        agent = joined_agent(first, "n1", 3)
        add_person(first, "ops", "operator")
        ops = signed_in(first, "ops")
        [command] = ordered(ops, previewed(ops, tasks_of(agent)[0]))["items"]
        settled(ops, command["id"])
        shutil.copytree(first.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
        with HubProcess(tmp_path / "copy") as second:
            agent.close()
            agent.connect(second)
            assert agent.welcomes[-1].epoch > agent.welcomes[0].epoch
            agent.close()
        agent.connect(first)
        [item] = previewed(ops, tasks_of(agent)[1])["items"]
        assert [one["code"] for one in item["refusals"]] == ["fence"]
        assert "another hub" in item["refusals"][0]["sentence"]
        # Started anew, it takes over.
        first.kill()
        first.start()
        agent.close()
        agent.connect(first)
        show(agent, first, 3)
        fresh_ops = signed_in(first, "ops")
        [new] = ordered(fresh_ops, previewed(fresh_ops, tasks_of(agent)[1]))["items"]
        settled(fresh_ops, new["id"])
