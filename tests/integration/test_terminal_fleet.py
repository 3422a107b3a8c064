"""The terminal through a real hub to a real agent with real children over the C fake."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.free import free
from agent.cli.hold import hold
from gpudeck.client.hub import Client
from gpudeck.errors import CommandError, ExitCode
from tests.boards import OLD_ENOUGH_S, Boards, Child
from tests.demos import ROOT, soon
from tests.screens import DrivenTerminal
from tests.terminals import Terminal, run

from .hubs import HubProcess


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    boards = Boards(tmp_path)
    yield boards
    boards.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def client(hub: HubProcess) -> Client:
    return Client(hub.url, hub.api_token)


@pytest.fixture
def at(hub: HubProcess) -> list[str]:
    return ["--hub", hub.url, "--token-file", str(hub.folder / "api.token")]


@pytest.fixture
def node(hub: HubProcess, boards: Boards, tmp_path: Path) -> Iterator[Path]:
    """The folder of an agent that reports to the hub."""
    (tmp_path / "enrol").write_text(hub.token().text)
    (tmp_path / "enrol").chmod(0o600)
    data = tmp_path / "agent"
    with open(tmp_path / "agent.log", "w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "agent", "--hub", hub.url, "--token-file",
             str(tmp_path / "enrol"), "--backend", "nvml", "--data", str(data), "--ceiling",
             str(boards.ceiling())], cwd=ROOT, env=boards.nvml.env(), stderr=log)
    yield data
    agent.terminate()
    try:
        agent.wait(10)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait(10)


def wait_until_listed(client: Client, *children: Child) -> None:
    """Wait until the hub lists them, the node knows the hub's time, and they are old enough."""
    ids = {child.task_id for child in children}
    assert soon(lambda: ids <= {task["id"] for task in client.tasks()})
    born = max(Path(f"/proc/{child.process.pid}").stat().st_ctime for child in children)
    time.sleep(max(0.0, born + OLD_ENOUGH_S - time.time()))


def test_end_by_plan_hits_the_right_child_and_no_other(
    boards: Boards, client: Client, node: Path, at: list[str], tmp_path: Path
) -> None:
    victim, bystander = boards.child("victim", workers=2), boards.child("bystander")
    wait_until_listed(client, victim, bystander)
    plan = str(tmp_path / "plan.json")
    planned = run("end", victim.task_id, "--grace", "5", "--plan-out", plan, *at)
    assert planned.code == ExitCode.OK, planned
    assert victim.lives
    result = run("end", "--plan", plan, "--yes", "--reason", "nightly", "--json", *at)
    assert result.code == ExitCode.OK, result
    assert victim.all_gone
    assert bystander.lives
    assert not bystander.heard_sigterm
    last = result.of("command")[-1]["command"]
    assert (last["state"], last["verified"]["exited"], last["verified"]["memory_returned"],
            last["verified"]["bystanders_alive"]) == ("done", True, True, True), result
    repeated = run("end", "--plan", plan, "--yes", "--reason", "nightly", *at)
    assert repeated.code != ExitCode.OK, repeated
    assert bystander.lives


def test_end_at_a_terminal_shows_whom_it_hits(
    boards: Boards, client: Client, node: Path, at: list[str]
) -> None:
    victim, bystander = boards.child("victim"), boards.child("bystander")
    wait_until_listed(client, victim, bystander)
    no = run("end", victim.task_id, "--reason", "idle", *at, answers=["n"])
    assert (no.code, victim.lives) == (ExitCode.FAILED, True), no
    for word in (victim.task_id, str(victim.process.pid), bystander.task_id, "SIGTERM"):
        assert word in no.out
    yes = run("end", victim.task_id, "--reason", "idle", *at, answers=["y"])
    assert yes.code == ExitCode.OK, yes
    assert (victim.all_gone, bystander.lives) == (True, True)
    assert client.command(client.commands()[0].id).sentence == yes.out.splitlines()[-1]


def test_a_hold_on_the_node_stops_what_the_hub_has_begun(
    boards: Boards, client: Client, node: Path, at: list[str]
) -> None:
    victim, bystander = boards.child("victim", stubborn=True), boards.child("bystander")
    wait_until_listed(client, victim, bystander)
    terminal = Terminal("end", victim.task_id, "--reason", "x", "--grace", "8", *at, answers=["y"])
    assert soon(lambda: victim.heard_sigterm or terminal.process.poll() is not None)
    assert hold(["--data", str(node), "--reason", "stop it"]) == ExitCode.OK
    result = terminal.end()
    assert result.code == ExitCode.NOT_EFFECTIVE, result
    assert victim.lives
    assert bystander.lives


def test_hold_and_keep_through_the_hub(
    boards: Boards, client: Client, node: Path, at: list[str]
) -> None:
    victim = boards.child("victim")
    wait_until_listed(client, victim)
    keep = run("keep", victim.task_id, "--until", "+2h", "--because", "the paper", *at)
    assert keep.code == ExitCode.OK, keep
    on_hold = run("hold", "--fleet", "--reason", "flaky cooling", "--json", *at)
    assert on_hold.code == ExitCode.OK, on_hold
    [row] = json.loads(on_hold.out)["nodes"]
    assert "flaky cooling" in " ".join(row["holds"])
    attempt = run("end", victim.task_id, "--reason", "x", *at, answers=["y"])
    assert attempt.code == ExitCode.REFUSED, attempt
    assert "the paper" in attempt.out
    assert victim.lives
    released = run("release", "--fleet", *at)
    assert released.code == ExitCode.OK, released
    end = run("end", victim.task_id, "--reason", "x", *at, answers=["y"])
    assert end.code == ExitCode.OK, end
    assert victim.all_gone


def test_top_shows_the_fleet_and_ends_what_is_selected(
    boards: Boards, client: Client, node: Path, at: list[str]
) -> None:
    victim, bystander = boards.child("victim", gib=9, workers=1), boards.child("bystander", gpu=1)
    wait_until_listed(client, victim, bystander)
    [listed] = client.nodes()
    with DrivenTerminal(*at, "--filter", "mem>8%") as top:
        top.shows("1 node ", "9 G", f"{listed['host']}/0"[:16])
        assert "4 G " not in top.text.partition("OWNER")[2]
        top.press("/\x15\r")
        top.shows("4 G")
        top.press("jse")  # sorted anew between the two: the selection is of the job
        assert str(victim.process.pid) in top.shows("why?")
        top.press("a test\n")
        top.shows("[y/N]")
        top.press("y\n")
        top.shows("processes are gone", "press Enter")
        top.press("\n")
        top.wait(lambda: "q quit" in top.lines[-1])
        top.press("q")
        assert top.ends() == ExitCode.OK
    assert (victim.all_gone, bystander.lives, bystander.heard_sigterm) == (True, True, False)


def test_free_through_the_hub_names_the_node(
    boards: Boards, client: Client, node: Path, at: list[str],
    capsys: pytest.CaptureFixture[str]
) -> None:
    boards.nvml.gpus[1]["util"] = 0  # else somebody uses it whom no list of processes shows
    wait_until_listed(client, boards.child("one", gpu=0))
    [listed] = client.nodes()
    assert soon(lambda: free([*at, "--node", listed["host"]]) == ExitCode.OK)
    assert capsys.readouterr().out == "1\n"
    with pytest.raises(CommandError, match="did you mean"):
        free([*at, "--node", f"{listed['host']}x"])
    with pytest.raises(CommandError, match="--node"):
        free(at)
