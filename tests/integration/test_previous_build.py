"""The programs of earlier commits against today's: their agents at this hub, this agent at their
hub, a minute each with acts on real processes, and their folders in the hands of this hub."""

import getpass
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.children import is_alive
from tests.fakes.nvml import FakeNvml
from tests.gpu.conftest import MIB, Busy
from tests.gpu.test_on_fake import PRETENDS
from tests.gpu.test_whole import Whole, paused_resumed_and_ended
from tests.integration.hubs import REPOSITORY, StartedHub, wait_for

pytestmark = pytest.mark.soak
# Before the first release: the oldest whose folders are still to be read, and one whose hub
# answers what it does not know instead of closing.
OLDEST, PREVIOUS = "54f4ade0", "028ed344"
MINUTE_S = float(os.environ.get("GPUDECK_PREVIOUS_BUILD_S", "60"))
GPUS = 4
Start = Callable[[int], Busy]


class EarlierHub(StartedHub):
    tree: Path

    def _begin(self, arguments: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        return started(self.tree, "dashboard", arguments, self.log)


def started(tree: Path, program: str, arguments: Sequence[str], log: Path
            ) -> "subprocess.Popen[bytes]":
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", program, *arguments], cwd=tree, stdout=file,
                                stderr=file, env={**os.environ, "PYTHONPATH": str(tree)})


@pytest.fixture(name="trees", scope="module")
def _trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {commit: unpacked(commit, tmp_path_factory.mktemp(commit))
            for commit in (OLDEST, PREVIOUS)}


def unpacked(commit: str, tree: Path) -> Path:
    """Unpack a commit as if installed: with its commands, not those of what is installed here."""
    packed = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, capture_output=True)
    if packed.returncode:
        pytest.skip(f"{commit} is not in this clone; fetch its whole history")
    subprocess.run(["tar", "x", "-C", tree], input=packed.stdout, check=True)
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    info = tree / f"gpudeck-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gpudeck\nVersion: "
                                   f"{project['version']}\n")
    (info / "entry_points.txt").write_text("[gpudeck.commands]\n" + "\n".join(
        f"{name} = {where}" for name, where in project["entry-points"]["gpudeck.commands"].items()))
    return tree


@pytest.fixture(name="start")
def _start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start tasks that pretend to compute, on a fake driver, for the agent under test."""
    program, busy = tmp_path / "busy.py", list[Busy]()
    program.write_text(PRETENDS)
    nvml = FakeNvml(tmp_path, gpus=GPUS)
    nvml.gpus[0].update(mem_adds=1, mem_used=100 * MIB)
    nvml.save()
    nvml.use_in_children(monkeypatch)

    def pretend(mem_bytes: int) -> Busy:
        busy.append(Busy(mem_bytes, program=program))
        nvml.gpus[0].process(busy[-1].pid, mem_bytes, sm_pct=40)
        nvml.save()
        return busy[-1]

    yield pretend
    for task in busy:
        task.close()


@dataclass
class Pair:
    """A hub of one tree and an agent of another."""

    hub: StartedHub
    agent: "subprocess.Popen[bytes]"
    log: Path

    def node(self) -> Any:
        return next((node for node in self.hub.get("/api/v1/nodes")["items"]
                     if node["state"] == "live" and node["gpus"] == GPUS), None)

    def hold(self, method: str, content: Any) -> None:
        body = None if content is None else json.dumps(content).encode()
        answer = self.hub.ask("/api/v1/hold", method, body=body, Content_Type="application/json")
        assert answer.status in (200, 201, 202, 204), (answer.status, answer.body)

    def check_history(self, begin: int, end: int) -> None:
        """Check that every second of every GPU is there, but for one or two on a busy machine."""
        for gpu in self.hub.get("/api/v1/gpus")["items"]:
            series = self.hub.get(f"/api/v1/series?gpu={gpu['uuid']}&metric=mem_used_bytes"
                                  f"&start={begin}&end={end}&step=1")
            there = sum(value is not None for value in series["mean"])
            assert there >= (end - begin) * 0.9, (there, end - begin)


def token_of(hub: StartedHub) -> str:
    answer = hub.ask("/api/v1/enrolments", "POST", body=b"{}", Content_Type="application/json")
    assert answer.status == 201, answer.body
    return str(answer.json["token"])


def a_full_minute(hub: StartedHub, tree: Path, tmp_path: Path, start: Start) -> None:
    token, log = tmp_path / "token", tmp_path / "agent.log"
    token.write_text(token_of(hub))
    token.chmod(0o600)
    ceiling = tmp_path / "ceiling.toml"  # of keys that all of them know
    ceiling.write_text("root_tasks = true\nkills_per_hour = 100\nown_pid_namespace = true\n")
    ceiling.chmod(0o600)
    agent = started(tree, "agent", (
        "--hub", hub.url, "--token-file", str(token), "--backend", "nvml", "--data",
        str(tmp_path / "agent"), "--host", "peer", "--ceiling", str(ceiling)), log)
    try:
        acts_for_a_minute(Pair(hub, agent, log), start(256 * MIB), start(1_024 * MIB))
    finally:
        agent.terminate()
        agent.wait(20)
    text = log.read_text()
    assert text.count("connected hub=") == 1, text
    assert "Traceback" not in text + hub.log.read_text()


def acts_for_a_minute(pair: Pair, bystander: Busy, task: Busy) -> None:
    node = wait_for(pair.node, 120, "the agent is live")
    begin = time.time()
    pair.hold("POST", {"node": None, "reason": "the tests"})
    wait_for(lambda: pair.node()["holds"], why="actions are stopped there")
    pair.hold("DELETE", None)
    wait_for(lambda: not pair.node()["holds"], why="and resumed")
    paused_resumed_and_ended(Whole(pair.hub), bystander, task)
    time.sleep(max(0.0, MINUTE_S - (time.time() - begin)))
    Whole(pair.hub).act("pause", bystander.pid)
    Whole(pair.hub).act("resume", bystander.pid)
    assert is_alive(bystander.pid)
    assert pair.node()["id"] == node["id"]
    pair.check_history(int(begin), int(time.time()) - 3)


@pytest.mark.parametrize("commit", [OLDEST, PREVIOUS])
def test_an_earlier_agent_at_this_hub(
    commit: str, trees: dict[str, Path], tmp_path: Path, start: Start
) -> None:
    with StartedHub(tmp_path / "hub") as hub:
        a_full_minute(hub, trees[commit], tmp_path, start)


def test_an_earlier_agent_gets_no_lease_with_memory_that_it_does_not_count(
    trees: dict[str, Path], tmp_path: Path, start: Start
) -> None:
    with StartedHub(tmp_path / "hub", 0, "--pool", "on") as hub:
        token, me = tmp_path / "token", getpass.getuser()
        token.write_text(token_of(hub))
        token.chmod(0o600)
        agent = started(trees[PREVIOUS], "agent", (
            "--hub", hub.url, "--token-file", str(token), "--backend", "nvml", "--data",
            str(tmp_path / "agent"), "--host", "peer", "--pool-socket", str(tmp_path / "pool.sock"),
        ), tmp_path / "agent.log")
        try:
            wait_for(lambda: hub.ask("/api/v1/gpu/status").status == 200, 120)

            def claim(**more: object) -> None:
                body = json.dumps({"owner": me, "gpus": 1, **more}).encode()
                answer = hub.ask("/api/v1/claims", "POST", body=body,
                                 Content_Type="application/json")
                assert answer.status == 201, answer.body

            claim(ram_bytes="1G")
            wait_for(lambda: [row for row in hub.get("/api/v1/claims")["items"]
                              if row["why"].startswith("memory is not counted on peer: ")], 60)
            claim()  # later, and it gets what the other one does not
            [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"], 60)
            assert lease["ram_bytes"] is None
            assert "lease_refused" not in hub.log.read_text()
        finally:
            agent.terminate()
            agent.wait(20)


@pytest.mark.parametrize("commit", [PREVIOUS])
def test_this_agent_at_an_earlier_hub(
    commit: str, trees: dict[str, Path], tmp_path: Path, start: Start
) -> None:
    """docs/upgrade.md says hub first; the other order loses nothing but what is new."""
    EarlierHub.tree = trees[commit]
    with EarlierHub(tmp_path / "hub") as hub:
        a_full_minute(hub, REPOSITORY, tmp_path, start)


@pytest.mark.parametrize("commit", [OLDEST, PREVIOUS])
def test_an_earlier_hub_hands_its_folder_to_this_one(
    commit: str, trees: dict[str, Path], tmp_path: Path
) -> None:
    EarlierHub.tree = trees[commit]
    with EarlierHub(tmp_path / "hub") as earlier:
        answer = earlier.ask("/api/v1/quotas/q1", "PUT", body=json.dumps({
            "subject": "user:alice", "gpus": 2}).encode(), Content_Type="application/json")
        assert answer.status in (200, 201), answer.body
        token_of(earlier)
        earlier.kill()
    with StartedHub(tmp_path / "hub") as hub:
        assert hub.get("/api/v1/quotas/q1")["quota"]["subject"] == "user:alice"
        assert len(hub.get("/api/v1/enrolments")["items"]) == 1
        verdict = hub.get("/api/v1/audit/verify")
        assert verdict.get("broken") is None, verdict
