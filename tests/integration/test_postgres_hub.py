"""A hub whose state is in PostgreSQL, and that goes away: stopped, killed, and back."""

import json
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dashboard.audit.store import AuditStore
from dashboard.cli.hub import hub as hub_command
from dashboard.state import HubState
from gpudeck.audit.chain import verify
from gpudeck.audit.file import AuditFile
from gpudeck.errors import CommandError
from tests.integration.acting import ActingAgent, ordered, previewed, several
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import add_person, signed_in
from tests.postgres import PostgresServer, a_server

TASK = "boot-1-100-5"


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PostgresServer]:
    with a_server() as server:
        yield server


def joined_node(hub: HubProcess, name: str) -> ActingAgent:
    node = ActingAgent(name)
    node.connect(hub)
    node.show(several(2))
    node.beat()
    wait_for(lambda: hub.get(f"/api/v1/nodes/{node.node_id}")["reader"], why="its Beat")
    return node


def end_task(hub: HubProcess, node: ActingAgent, user: Any) -> str:
    [item] = ordered(user, previewed(user, f"{node.node_id}/{TASK}"))["items"]
    return str(item["state"])


def newest(hub: HubProcess, node: ActingAgent) -> float:
    return float(max(gpu["sampled_at"] for gpu in hub.get("/api/v1/gpus")["items"]
                     if gpu["uuid"] in {fact.uuid for fact in node.facts}))


def refusal(hub: HubProcess) -> Any:
    body = json.dumps({"node": None, "reason": "x"}).encode()
    answer = hub.ask("/api/v1/hold", "POST", body=body,
                     Content_Type="application/json", Idempotency_Key=secrets.token_hex(8))
    assert answer.status == 503, answer.body
    return answer.json["detail"]


@pytest.mark.parametrize("harm", ["hangs", "dies"])
def test_while_it_is_away_the_picture_lives_and_nothing_is_done(
    server: PostgresServer, tmp_path: Path, harm: str
) -> None:
    with HubProcess(tmp_path / "hub", 0, "--state", server.database()) as hub:
        assert not (hub.folder / "state.db").exists()
        node = joined_node(hub, "n1")
        add_person(hub, "carol", "operator")
        carol = signed_in(hub, "carol")
        before = previewed(carol, f"{node.node_id}/{TASK}")
        if harm == "hangs":
            server.signal(signal.SIGSTOP)
        else:
            server.stop()
        try:
            wait_for(lambda: hub.ask("/readyz").status == 503, why="it has noticed")
            assert b"database" in hub.ask("/readyz").body
            assert "cannot be recorded are refused" in refusal(hub)
            assert carol.send("/api/v1/commands", {
                "preview": before["id"], "reason": "w"}).status == 503
            told_at = time.time()
            node.show(several(2))
            wait_for(lambda: newest(hub, node) >= told_at - 1, why="it is shown all the same")
            assert hub.ask("/healthz").status == 200
            assert not node.commands, "nothing left"
        finally:
            if harm == "hangs":
                server.signal(signal.SIGCONT)
            else:
                server.start()
        wait_for(lambda: hub.ask("/readyz").status == 200, why="it is back by itself")
        assert end_task(hub, node, carol) in ("sent", "accepted", "acting", "done")
        wait_for(lambda: len(node.commands) == 1, why="once")
        with closing(HubState.open(hub.folder)) as state:
            assert verify(state.store(AuditStore).links()) is None
        assert hub.process.poll() is None


def test_one_hub_at_a_time_and_its_state_is_found_by_its_folder(
    server: PostgresServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = server.database()
    with HubProcess(tmp_path / "hub", 0, "--state", url) as hub:
        add_person(hub, "carol", "operator")  # as `gpudeck user add` does it
        wait_for(lambda: "carol" in [user["name"] for user in
                                     hub.get("/api/v1/users")["items"]], why="seen by the hub")
        with pytest.raises(CommandError, match="another hub is using this database"):
            hub_command(["--data", str(tmp_path / "other"), "--state", url,
                         "--bind", "127.0.0.1:0"])
        with pytest.raises(CommandError, match="in a database"):
            AuditFile(hub.folder)
        assert hub.stop() == 0
        hub.flags = ()
        hub.start()
        assert "carol" in [user["name"] for user in hub.get("/api/v1/users")["items"]]


def test_bad_locations(tmp_path: Path) -> None:
    for location, why in (("mysql://h/d", "postgresql://"), ("postgresql://u:pw@h/d", "secret"),
                          (f"postgresql://nobody@/d?host={tmp_path}", "cannot use the state in")):
        with pytest.raises(CommandError, match=why):
            hub_command(["--data", str(tmp_path / "hub"), "--state", location,
                         "--bind", "127.0.0.1:0"])
    with closing(HubState.open(tmp_path)) as state:
        state.hub_id()
    with pytest.raises(CommandError, match="migrate-state --to"):
        hub_command(["--data", str(tmp_path), "--state", "postgresql://u@h/d",
                     "--bind", "127.0.0.1:0"])
