"""The hub is killed and all its agents come back at once: real sockets, the simulator's nodes.

Jitter spreads them (an agent comes only after its own back-off); this is about what the hub does
with those that it gets: none is cut off, none is missing, and requests are answered meanwhile.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.link.protocol import BACK_OFF_MAX_S
from dashboard.actions.hub_key import HubKey
from dashboard.fleet.members import NewEnrolment
from dashboard.nodes.enrolment import create
from dashboard.nodes.store import NodeStore
from dashboard.state import HubState
from tests.integration.hubs import REPOSITORY, HubProcess, wait_for

ANSWER_WITHIN_S = 5.0  # HubProcess.ask gives up then


def many_tokens(hub: HubProcess, count: int) -> str:
    state = HubState.open(hub.folder)
    tokens = create(state.store(NodeStore), HubKey(hub.folder).fingerprint,
                    [NewEnrolment() for _ in range(count)], "the tests")
    state.close()
    return "".join(f"{token.text}\n" for token, _ in tokens)


@contextmanager
def agents(folder: Path, hub: HubProcess, count: int) -> Iterator["subprocess.Popen[bytes]"]:
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(many_tokens(hub, count))
    with (folder / "agents.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent.simulator.command", "--hub", hub.url, "--token-file",
             str(tokens), "--nodes", str(count), "--simulate", "gpus=1,faults=0",
             "--data", str(folder / "agents")], cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def live(hub: HubProcess) -> int:
    """Count live nodes, page by page."""
    count, after = 0, ""
    while True:
        page = hub.get(f"/api/v1/nodes?limit=500{after}")
        count += sum(node["state"] == "live" for node in page["items"])
        if page["next"] is None:
            return int(count)
        after = f"&cursor={page['next']}"


def slowest_s(took_s: list[float], ask: Any) -> Any:
    began = time.monotonic()
    answer = ask()
    took_s.append(time.monotonic() - began)
    return answer


def a_herd_comes_back(folder: Path, count: int, away_s: float, within_s: float) -> None:
    folder.chmod(0o700)
    with HubProcess(folder / "hub") as hub, agents(folder, hub, count) as process:
        wait_for(lambda: live(hub) == count, 90 + count / 4, "all agents the first time")
        hub.kill()
        said_before = len(hub.log.read_text())
        time.sleep(away_s)  # how far apart their next attempts are follows from it
        hub.start()
        began, took_s = time.monotonic(), list[float]()
        wait_for(lambda: slowest_s(took_s, lambda: live(hub)) == count, within_s,
                 "all agents again")
        again_s, cpu_s = time.monotonic() - began, hub.cpu_s()
        assert process.poll() is None
        # No agent that was there is gone again a little later: a Beat comes every few seconds.
        wait_for(lambda: time.monotonic() - began > again_s + 6, 10)
        assert live(hub) == count
        log = hub.log.read_text()[said_before:]
        print(f"{count} agents, hub away for {away_s:.0f} s: all live after {again_s:.1f} s, "
              f"{cpu_s:.1f} s of hub CPU since its start, slowest answer {max(took_s):.2f} s")
        assert max(took_s) < ANSWER_WITHIN_S
        assert not [line for line in log.splitlines() if "closed peer=" in line]


def test_all_agents_come_back_at_once(tmp_path: Path) -> None:
    a_herd_comes_back(tmp_path, 60, 2.0, 120.0)


@pytest.mark.soak
def test_a_thousand_agents_come_back_at_once(tmp_path: Path) -> None:
    a_herd_comes_back(tmp_path, 1_000, 20.0, BACK_OFF_MAX_S + 120.0)
