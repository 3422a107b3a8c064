"""A real hub, `gpudeck agent` as it is shipped, and tasks that are real processes."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.backends.simulation.folder import write_jobs
from agent.backends.simulation.jobs import SimulatedJob
from agent.backends.simulation.world import uuid_of
from agent.journal.store import ActionJournal, ActionStore
from tests.fakes.children import Child, Children, a_ceiling
from tests.integration.hubs import HubProcess, wait_for
from tests.patience import GIVE_UP_S

ROOT = Path(__file__).parents[2]
NODE = "n1"
FINAL = ("done", "not_effective", "unkillable", "expired", "refused", "unknown")
# What a person gets is bounded; here hundreds of acts are meant.
GENEROUS = ("--signer-ends-per-node-hour", "100000", "--signer-ends-per-hour", "100000")


def write_world(folder: Path, children: list[Child]) -> None:
    """Let the simulated driver list these."""
    now = time.time()
    write_jobs(folder, NODE, tuple(
        SimulatedJob(pid=child.pid, start_ticks=child.start_ticks, kind="hog", seed=number,
                     gpus=(uuid_of(1, NODE, 0),), mem_share=0.5 / max(len(children), 1),
                     user=random.choice(("alice", "bohdan")), command="python train.py",
                     started_at=now,
                     working_since=now - 1_000)
        for number, child in enumerate(children)))


@dataclass
class Fleet:
    folder: Path
    hub: HubProcess
    children: Children
    agent: "subprocess.Popen[bytes]"

    def shows(self, children: list[Child], within_s: float = GIVE_UP_S) -> None:
        """Write the world, and wait until the hub lists all of these."""
        write_world(self.folder, children)
        task_ids = {child.task_id for child in children}
        wait_for(lambda: task_ids <= {task["id"] for task in
                                      self.hub.get("/api/v1/tasks?limit=1000")["items"]},
                 within_s, "the tasks at the hub")

    def post(self, path: str, body: Any, status: int) -> Any:
        answer = self.hub.ask(path, "POST", body=json.dumps(body).encode(),
                              Content_Type="application/json")
        assert answer.status == status, (answer.status, answer.body)
        return answer.json

    def preview(self, child: Child, action: str = "end", **params: Any) -> Any:
        preview = self.post("/api/v1/previews", {
            "action": action, "targets": [child.task_id], "params": params}, 201)
        assert not preview["refused"], preview
        return preview

    def order(self, preview: Any) -> Any:
        [command] = self.post("/api/v1/commands", {
            "preview": preview["id"], "reason": "because of a test"}, 202)["items"]
        return command

    def outcome(self, command_id: str, within_s: float = GIVE_UP_S) -> Any:
        def final() -> Any:
            command = self.hub.get(f"/api/v1/commands/{command_id}")
            return command if command["state"] in FINAL else None

        return wait_for(final, within_s, "an outcome")

    def journal(self) -> ActionJournal:
        return ActionJournal(ActionStore(self.folder / "agent" / "acts.db"))


@contextmanager
def an_agent(folder: Path, hub: HubProcess, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    token = folder / "token"
    if not token.exists():
        token.write_text(hub.token().text)
        token.chmod(0o600)
    with (folder / "agent.log").open("ab") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "agent", "--hub", url, "--token-file", str(token),
             "--data", str(folder / "agent"), "--backend", "simulated", "--simulate",
             f"node={NODE},gpus=1,world={folder}", "--ceiling", str(folder / "ceiling.toml")],
            cwd=ROOT, stderr=log, env=dict(os.environ))
    try:
        wait_for(lambda: [node for node in hub.get("/api/v1/nodes")["items"]
                          if node["state"] == "live"], why="the node at the hub")
        yield agent
    finally:
        agent.kill()
        agent.wait(10)


@contextmanager
def a_fleet(folder: Path) -> Iterator[Fleet]:
    with HubProcess(folder / "hub", 0, *GENEROUS) as hub, (
            a_fleet_behind(folder, hub, hub.url)) as fleet:
        yield fleet


@contextmanager
def a_fleet_behind(folder: Path, hub: HubProcess, url: str) -> Iterator[Fleet]:
    """`url`: the address by which the agent reaches the hub."""
    folder.chmod(0o700)
    a_ceiling(folder, kills_per_hour=10**6)
    children = Children()
    try:
        with an_agent(folder, hub, url) as agent:
            yield Fleet(folder, hub, children, agent)
    finally:
        children.close()
