"""Commands of a real hub, through a real agent, to a real CUDA task, and back."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.contract.actions import YOUNGEST_S
from tests.fakes.children import a_ceiling, is_alive, state_of
from tests.gpu.conftest import MIB, ROOT, Busy
from tests.integration.hubs import StartedHub, wait_for

FINAL = ("done", "not_effective", "unkillable", "expired", "refused", "unknown")


class Whole:
    """Hub of this machine, with an agent connected to it."""

    def __init__(self, hub: StartedHub) -> None:
        self.hub = hub

    def task(self, pid: int) -> Any:
        return next((task for task in self.hub.get("/api/v1/tasks?limit=1000")["items"]
                     if task["pid"] == pid), None)

    def act(self, action: str, pid: int, **params: Any) -> Any:
        task = wait_for(lambda: self.task(pid), why="the task at the hub")
        preview = self._post("previews", {"action": action, "targets": [task["id"]],
                                          "params": params}, 201)
        assert not preview["refused"], [item["refusals"] for item in preview["items"]]
        [command] = self._post("commands", {"preview": preview["id"], "reason": "a test"},
                               202)["items"]

        def outcome() -> Any:
            state = self.hub.get(f"/api/v1/commands/{command['id']}")
            return state if state["state"] in FINAL else None

        settled = wait_for(outcome, why="an outcome")
        assert settled["state"] == "done", settled
        return settled

    def _post(self, path: str, body: Any, status: int) -> Any:
        answer = self.hub.ask(f"/api/v1/{path}", "POST", body=json.dumps(body).encode(),
                              Content_Type="application/json")
        assert answer.status == status, (answer.status, answer.body)
        return answer.json


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Whole]:
    with a_whole(tmp_path) as whole:
        yield whole


@contextlib.contextmanager
def a_whole(tmp_path: Path) -> Iterator[Whole]:
    # A rented machine's root may see a namespace of its own; only our own children are acted on.
    ceiling = a_ceiling(tmp_path, own_pid_namespace=True)
    with StartedHub(tmp_path / "hub", 0) as hub, contextlib.ExitStack() as stack:
        token = tmp_path / "token"
        token.write_text(hub.token().text)
        token.chmod(0o600)
        log = stack.enter_context((tmp_path / "agent.log").open("wb"))
        agent = subprocess.Popen(
            [sys.executable, "-m", "agent", "--hub", hub.url, "--token-file", str(token),
             "--data", str(tmp_path / "agent"), "--backend", "nvml", "--ceiling", str(ceiling)],
            cwd=ROOT, stderr=log, env=dict(os.environ))
        stack.callback(agent.wait, 10)
        stack.callback(agent.terminate)
        wait_for(lambda: [node for node in hub.get("/api/v1/nodes")["items"]
                          if node["state"] == "live"], why="the node at the hub")
        yield Whole(hub)


def test_paused_resumed_and_ended(whole: Whole, busy: Callable[..., Busy]) -> None:
    paused_resumed_and_ended(whole, busy(256 * MIB), busy(1_024 * MIB))


def paused_resumed_and_ended(whole: Whole, bystander: Busy, task: Busy) -> None:
    time.sleep(YOUNGEST_S + 1)
    whole.act("pause", task.pid)
    assert state_of(task.pid) == "T"
    paused_rounds, rounds = task.rounds, bystander.rounds
    wait_for(lambda: bystander.rounds > rounds + 50, why="the bystander's work")
    assert task.rounds <= paused_rounds + 60  # what was on its way in the pipe
    assert whole.task(task.pid)["mem_used_bytes"] >= task.mem_bytes, "memory stays held"
    whole.act("resume", task.pid)
    paused_rounds = task.rounds
    wait_for(lambda: task.rounds > paused_rounds + 50, why="its work")
    command = whole.act("end", task.pid, grace_s=10.0)
    assert command["verified"]["exited"] is True
    assert command["verified"]["memory_returned"] is True
    assert command["verified"]["bystanders_alive"] is True
    assert task.process.wait(10) < 0
    wait_for(lambda: whole.task(task.pid) is None, why="its leaving the list")
    assert is_alive(bystander.pid)
    rounds = bystander.rounds
    wait_for(lambda: bystander.rounds > rounds, why="the bystander's work")
