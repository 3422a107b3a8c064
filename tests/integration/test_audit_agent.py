"""A real agent and a real hub keep each other's record honest; a hold reaches the real agent."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.cli.audit import audit as audit_command
from tests.integration.hubs import REPOSITORY, HubProcess, wait_for


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub", constants={
            "dashboard.nodes.audit_heads.EVERY_S": 1.0}) as hub:
        yield hub


@pytest.fixture(name="agent")
def _agent(hub: HubProcess, tmp_path: Path) -> Iterator[Path]:
    """Data folder of a running agent."""
    token = tmp_path / "token"
    token.write_text(hub.token().text)
    with (tmp_path / "agent.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent", "--hub", hub.url, "--backend", "simulated",
             "--simulate", "gpus=2", "--data", str(tmp_path / "agent"), "--token-file", str(token)],
            cwd=REPOSITORY, stderr=log)
        try:
            yield tmp_path / "agent"
        finally:
            process.terminate()
            process.wait(10)


def only_node(hub: HubProcess) -> Any:
    nodes = hub.get("/api/v1/nodes")["items"]
    return nodes[0] if nodes and nodes[0]["reader"] and nodes[0]["state"] == "live" else None


def kept_anchor(agent: Path) -> int:
    if not (agent / "acts.db").exists():
        return 0
    with closing(sqlite3.connect(f"{(agent / 'acts.db').as_uri()}?mode=ro", uri=True)) as db:
        row = db.execute("select value from fact where name like 'anchor %'").fetchone()
    return 0 if row is None else int(row[0].split()[0])


def test_a_hold_reaches_the_agent_and_is_let_go_again(hub: HubProcess, agent: Path) -> None:
    node = wait_for(lambda: only_node(hub), why="the agent")["id"]
    wait_for(lambda: hub.get(f"/api/v1/nodes/{node}")["clock_offset_s"] is not None, why="time")
    hub.ask("/api/v1/hold", "POST", body=f'{{"node":"{node}","reason":"new driver"}}'.encode(),
            Content_Type="application/json")
    holds = wait_for(lambda: only_node(hub)["holds"], why="the hold is in force")
    assert "new driver" in holds[0]
    assert hub.ask(f"/api/v1/hold?node={node}", "DELETE").status == 200
    wait_for(lambda: not only_node(hub)["holds"], why="it is let go")
    assert audit_command(["verify", "--data", str(agent)]) == 0


def test_an_agent_remembers_what_a_hub_would_like_forgotten(hub: HubProcess, agent: Path) -> None:
    wait_for(lambda: only_node(hub), why="the agent")
    seq = wait_for(lambda: kept_anchor(agent), why="the agent keeps a head of the hub's")
    assert hub.get("/api/v1/audit/verify")["broken"] is None
    hub.stop()
    with closing(sqlite3.connect(hub.folder / "state.db")) as db:
        db.execute("delete from audit where seq >= ?", (seq,))
        db.execute("delete from vouched")
        db.commit()
    assert audit_command(["verify", "--data", str(hub.folder)]) == 0  # the chain alone holds
    hub.start()
    broken = wait_for(lambda: hub.get("/api/v1/audit/verify")["broken"], why="it is found out")
    assert "so say 1 of the 1 nodes" in broken["sentence"]
    alarm = hub.get("/api/v1/audit?kind=anchor")["items"]
    assert len(alarm) == 1
