"""Hubs that are copied, restored and cut off, with commands in flight: real hubs, real sockets."""

import contextlib
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import socketio

from gpudeck.contract.actions import Command, Refusal, Reply
from gpudeck.contract.wire import (
    Call,
    FromAgent,
    Hello,
    SignedCommand,
    Welcome,
    decode_command,
    decode_from_hub,
)
from tests.integration.acting import DONE, ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import Visitor, add_person, signed_in

RECONNECTS = int(os.environ.get("GPUDECK_RECONNECTS") or ("100" if os.environ.get("CI") else "15"))
SOAK_RECONNECTS = int(os.environ.get("GPUDECK_SOAK_RECONNECTS", "1000"))
FINAL = {"done", "not_effective", "unkillable", "expired", "refused", "unknown"}
GENEROUS = ("--signer-ends-per-node-hour", "100000", "--signer-ends-per-hour", "100000")


@contextmanager
def a_hub(folder: Path) -> Iterator[HubProcess]:
    with HubProcess(folder, 0, *GENEROUS) as hub:
        yield hub


class Cut(ActingAgent):
    """Agent whose messages are lost while the connection is cut, as on a wire; and what a thread of
    the old connection still sends must not fall into the greeting of the new one."""

    is_greeting = True

    def connect(self, hub: HubProcess) -> None:
        self.is_greeting = True
        super().connect(hub)

    def _on_message(self, data: bytes) -> None:
        if isinstance(decode_from_hub(data), Welcome):
            self.is_greeting = False
        super()._on_message(data)

    def say(self, message: FromAgent) -> None:
        if self.is_greeting and not isinstance(message, Call | Hello):
            return
        with contextlib.suppress(socketio.exceptions.SocketIOError, AssertionError):
            super().say(message)

    def _take(self, message: SignedCommand) -> None:
        """Refuse commands of an older hub, as agent/actions/service.py does."""
        command = decode_command(message.body)
        if command.epoch < self.caller.said.epoch_seen:
            self.say(Reply(command.command_id, 1, "refused", time.time(), refusal=Refusal(
                "epoch", "another hub with its key has taken over")))
            return
        super()._take(message)


def connect_with_tasks(agent: ActingAgent, hub: HubProcess) -> list[str]:
    agent.connect(hub)
    tasks = several(2)
    agent.show(tasks)
    wait_for(lambda: len([task for task in hub.get("/api/v1/tasks?limit=10")["items"]
                          if task["id"] in {task.id for task in tasks.began}]) == 2)
    return [task.id for task in tasks.began]


def operator(hub: HubProcess) -> Visitor:
    add_person(hub, "ops", "operator", ["*"], [])
    return signed_in(hub, "ops")


def epochs(agent: ActingAgent) -> list[int]:
    return [decode_command(command.body).epoch for command in agent.commands]


def test_of_two_copies_the_one_that_was_left_gives_no_orders(tmp_path: Path) -> None:
    agent = Cut("n1")
    with a_hub(tmp_path / "one") as one:
        first, second = connect_with_tasks(agent, one)
        ops = operator(one)
        settled(ops, ordered(ops, previewed(ops, first))["items"][0]["id"])
        one.stop()
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        one.start()  # both have started equally often now
        with a_hub(tmp_path / "two") as two:
            agent.close()
            connect_with_tasks(agent, one)
            ops_one = signed_in(one, "ops")
            leftover = previewed(ops_one, first)
            agent.close()
            connect_with_tasks(agent, two)  # the node moves over
            ops_two = signed_in(two, "ops")
            [command] = ordered(ops_two, previewed(ops_two, second))["items"]
            settled(ops_two, command["id"])
            assert epochs(agent)[-1] > epochs(agent)[0] + 1
            # What the first hub still has in hand waits for the node, which does not obey it.
            before = len(agent.executed)
            [late] = ordered(ops_one, leftover)["items"]
            agent.close()
            connect_with_tasks(agent, one)
            outcome = settled(ops_one, late["id"], "refused", 10)
            assert outcome["refusal"]["code"] in ("epoch", "fence", "offline")
            preview = ops_one.send("/api/v1/previews", {"action": "end", "targets": [first]}).json
            if not preview["refused"]:
                [command] = ordered(ops_one, preview)["items"]
                outcome = settled(ops_one, command["id"], "refused", 10)
                assert outcome["refusal"]["code"] == "fence"
            assert len(agent.executed) == before


def test_a_restored_backup_goes_ahead_and_repeats_nothing(tmp_path: Path) -> None:
    agent = Cut("n1")
    with a_hub(tmp_path / "data") as hub:
        first, second = connect_with_tasks(agent, hub)
        ops = operator(hub)
        agent.is_mute = True
        [open_one] = ordered(ops, previewed(ops, first))["items"]
        wait_for(lambda: len(agent.commands) == 1)
        hub.stop()
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        for _ in range(random.randint(2, 3)):
            hub.start()
            connect_with_tasks(agent, hub)
            agent.close()
            hub.stop()
        newest = agent.caller.said.epoch_seen
        shutil.rmtree(tmp_path / "data")
        shutil.move(tmp_path / "backup", tmp_path / "data")
        hub.start()
        agent.is_mute = False
        first, second = connect_with_tasks(agent, hub)
        ops = signed_in(hub, "ops")
        # The hub inquires about the open command of the backup and never sends it again.
        settled(ops, open_one["id"], "done", 10)
        assert len(agent.commands) == 1
        [command] = ordered(ops, previewed(ops, second))["items"]
        settled(ops, command["id"])
        assert epochs(agent)[-1] > newest
        assert Counter(agent.executed) == Counter(dict.fromkeys(agent.executed, 1))


def reconnects(folder: Path, count: int) -> None:
    """The connection is cut at any moment of a command; each has one outcome, and was done at most
    once."""
    agent = Cut("n1")
    with a_hub(folder) as hub:
        tasks = connect_with_tasks(agent, hub)
        ops = operator(hub)

        def slowly(command: Command) -> list[Reply]:
            time.sleep(random.choice((0.0, 0.0, 0.01)))
            now = time.time()
            return [Reply(command.command_id, number, state, now,  # type: ignore[arg-type]
                          verified=DONE if state == "done" else None)
                    for number, state in enumerate(("accepted", "acting", "done"), 1)]

        agent.does = slowly
        ids = []
        for _ in range(count):
            if preview := preview_again(agent, ops, random.choice(tasks)):
                ids += [command["id"] for command in ordered(ops, preview)["items"]]
            time.sleep(random.choice((0.0, 0.001, 0.005, 0.02)))
            agent.close()
            agent.connect(hub)
        wait_for(lambda: all(state(ops, command_id) in FINAL - {"unknown"} for command_id in ids),
                 why="an outcome of each")
        states = Counter(state(ops, command_id) for command_id in ids)
        print(f"{count} reconnects with {len(ids)} commands in flight: {dict(states)}")
        assert len(ids) > count / 2
        assert set(states) <= {"done", "expired", "refused"}
        done_ids = {command_id for command_id in ids if state(ops, command_id) == "done"}
        assert set(agent.executed) >= done_ids
        assert max(Counter(agent.executed).values()) == 1
        counts = Counter(decode_command(message.body).command_id for message in agent.commands)
        assert max(counts.values()) == 1  # inquired about, never sent twice
        assert hub.get("/api/v1/audit/verify")["broken"] is None


def preview_again(agent: ActingAgent, visitor: Visitor, task_id: str) -> Any:
    """Preview an action; None: the hub has not listed the node's tasks again so quickly."""
    agent.show(several(2))
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        answer = visitor.send("/api/v1/previews", {
            "action": "notify", "targets": [task_id], "params": {"text": "please save"}})
        if answer.status == 201 and not answer.json["refused"]:
            return answer.json
        time.sleep(0.05)
    return None


def state(visitor: Visitor, command_id: str) -> Any:
    return visitor.get(f"/api/v1/commands/{command_id}")["state"]


def test_reconnects_with_commands_in_flight(tmp_path: Path) -> None:
    reconnects(tmp_path / "data", RECONNECTS)


@pytest.mark.soak
def test_a_thousand_reconnects(tmp_path: Path) -> None:
    reconnects(tmp_path / "data", SOAK_RECONNECTS)
