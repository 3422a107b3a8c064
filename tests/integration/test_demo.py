"""`gpudeck demo` as a process: what it promises in demo.json, and that it leaves nothing behind."""

import fcntl
import getpass
import json
import os
import random
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.backends.simulation.jobs import USERS
from agent.cli.limits import mps
from tests.demos import Demo, alive, descendants, soon, start


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    with Demo(folder, "--nodes", "6", "--gpus", "8", "--faults", "off") as running:
        yield running


@pytest.fixture(scope="module")
def demo_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("alone"), "--nodes", "1", "--gpus", "1") as running:
        yield running


def test_demo_json_says_what_is_there(demo: Demo) -> None:
    info = demo.info()
    assert info["pid"] == demo.process.pid
    assert {agent["node"] for agent in info["agents"]} == {"n001", "n002", "n003", "n004"}
    pids = {info["hub_pid"], *(agent["pid"] for agent in info["agents"]),
            *(task["pid"] for task in info["tasks"])}
    assert pids <= descendants(info["pid"])
    assert (demo.data / "demo.json").stat().st_mode & 0o777 == 0o600
    assert info["sign_in_url"].startswith(info["url"])
    assert {(node["host"], node["state"]) for node in demo.ask("nodes")} == {
        (f"n{number:03}", "live") for number in range(1, 7)}
    assert len(demo.ask("gpus?limit=1000")) == 48


def test_the_api_knows_the_real_tasks_by_the_same_id(demo: Demo) -> None:
    def agree() -> bool:
        demo_tasks = {(task["id"], task["pid"]) for task in demo.info()["tasks"]}
        api_tasks = {(task["id"], task["pid"]) for task in demo.ask("tasks?limit=1000")}
        return bool(demo_tasks) and demo_tasks <= api_tasks

    assert soon(agree, 6.0)


def test_control_json_is_obeyed(demo: Demo) -> None:
    gpus = demo.ask("gpus?limit=1000")
    near = next(gpu for gpu in gpus if gpu["node"] == gpus[0]["node"])
    far = gpus[-1]
    (demo.data / "control.json").write_text(json.dumps({"gpus": {
        near["uuid"]: {"util_pct": 93}, far["uuid"]: {"state": "lost"}}}))

    def obeyed() -> bool:
        now = {gpu["uuid"]: gpu for gpu in demo.ask("gpus?limit=1000")}
        return bool(now[near["uuid"]]["values"].get("util_pct") == 93
                    and now[far["uuid"]]["state"] == "lost")

    assert soon(obeyed, 3.5)
    (demo.data / "control.json").unlink()
    assert soon(lambda: not obeyed(), 3.5)


def owners(demo: Demo, kind: str) -> set[str]:
    return {entry["owner"] for entry in demo.ask(kind)}


@pytest.mark.parametrize("size", ["demo", "demo_alone"])
def test_a_demo_of_any_size_has_a_pool_with_people_in_it(
        size: str, request: pytest.FixtureRequest) -> None:
    """Somebody waits in it, and where nobody else works somebody holds GPUs, whose tasks are
    theirs; nobody is who runs the demo."""
    running: Demo = request.getfixturevalue(size)

    def people() -> set[str]:
        return owners(running, "claims") | owners(running, "leases")

    assert soon(people, 90.0)
    names = people()
    if size == "demo":
        assert soon(lambda: owners(running, "claims"), 60.0)
        assert soon(lambda: {"alice", "kavya"} <= owners(running, "leases"), 60.0)
        names |= owners(running, "leases")
        uuids = {uuid for lease in running.ask("leases") if lease["owner"] == "alice"
                 for uuid in lease["gpus"]}
        assert soon(lambda: any(
            task["user"] == "alice" and {gpu["uuid"] for gpu in task["gpus"]} == uuids
            for task in running.ask("tasks?limit=1000")), 15.0)
        [person] = running.ask("users")
        assert person["unix_names"] == ["alice"], "My work shows jobs, a lease, and what they use"
    assert names <= set(USERS)
    assert getpass.getuser() not in names


def mps_of(demo: Demo, node: str) -> dict[str, Any]:
    return next(node_mps for node_mps in demo.ask("mps") if node_mps["host"] == node)


def order_and_wait(demo: Demo, action: str, target: str, **params: Any) -> dict[str, Any]:
    """Preview and order an action; return the item with what was verified."""
    look = demo.post("previews", {"action": action, "targets": [target], "params": params})
    [item] = look["items"]
    assert item["refusals"] == []
    [command] = demo.post("commands", {"preview": look["id"], "reason": "a test"})["items"]
    assert soon(lambda: demo.get(f"/api/v1/commands/{command['id']}")["state"] == "done")
    return {**item, "verified": demo.get(f"/api/v1/commands/{command['id']}")["verified"]}


def test_mps_of_one_node_without_a_gpu(demo: Demo) -> None:
    """Set, in force, for new clients only; one taken out ends, and nobody else."""
    assert soon(lambda: mps_of(demo, "n004")["daemons"])
    assert all(mps_of(demo, host)["daemons"] == [] for host in ("n001", "n005"))
    [daemon] = mps_of(demo, "n004")["daemons"]
    [server] = daemon["servers"]
    clients = {client["task_id"]: client for client in server["clients"]}
    before = demo.info()["tasks"]
    assert clients.keys() == {task["id"] for task in before if task["node"] == "n004"}
    node, pct = mps_of(demo, "n004")["node"], random.randint(2, 99)
    outcome = order_and_wait(demo, "set_mps", node, setting={
        "type": "mps_percent", "pipes": daemon["pipes"], "pct": pct})
    assert any("New clients only" in warning for warning in outcome["warnings"])
    assert (outcome["verified"]["applied"], outcome["verified"]["in_force"]) == (True, True)
    assert soon(lambda: mps_of(demo, "n004")["daemons"][0]["default_pct"] == pct, 5.0)
    [server] = mps_of(demo, "n004")["daemons"][0]["servers"]
    assert {client["pct"] for client in server["clients"]} == {100.0}
    victim = next(task for task in before if task["id"] in clients and task["job"] == task["id"])
    assert order_and_wait(demo, "terminate_client", victim["id"])["verified"]["in_force"]
    assert soon(lambda: not alive({victim["pid"]}), 5.0)
    assert soon(lambda: victim not in demo.info()["tasks"], 5.0)
    rest = {task["pid"] for task in before} - {victim["pid"]}
    assert alive(rest) == rest


def test_the_tuner_looks_through_the_hub(demo: Demo, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    """Live, where it may set it too, and over what the hub has kept."""
    monkeypatch.setenv("GPUDECK_TOKEN", demo.info()["token"])
    monkeypatch.setenv("GPUDECK_HUB", demo.url)

    def server() -> dict[str, Any]:
        view: dict[str, Any] = mps_of(demo, "n004")["daemons"][0]["servers"][0]
        return view

    def tune(*words: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert mps(["tune", "--node", "n004", "--json", *words]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    once = ("--every", "1", "--rounds", "1")
    assert soon(lambda: len(server()["clients"]) > 1), "jobs come and go"
    before = server()["pct"]
    [look] = tune(*once)
    assert (look["clients"], look["now_pct"]) == (len(server()["clients"]), before)
    assert look["clients"] > 1
    assert look["load_pct"] is not None
    assert server()["pct"] == before, "a dry run sets nothing"
    look, *_ = tune(*once, "--apply", "--yes", "--reason", "a test")
    assert look["pct"] is not None
    assert soon(lambda: server()["pct"] == look["pct"] != before, 5.0)
    [past] = tune("--rehearse", "--start", "10m")
    assert past["minutes"] in (9, 10)
    assert 0 < past["unknown_minutes"] <= past["minutes"], "the demo is younger than that"
    assert len(past["items"]) == past["minutes"] - past["unknown_minutes"]


def test_killed_hub_agent_and_task_come_back(demo: Demo) -> None:
    before = demo.info()
    agent, task = before["agents"][1], before["tasks"][0]
    assert task["job"] == task["id"]  # a rank would take the others with it
    for pid in (before["hub_pid"], agent["pid"], task["pid"]):
        os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        info = demo.info()
        pids = {row["pid"] for row in info["agents"]}
        return (info["hub_pid"] not in (None, before["hub_pid"]) and agent["pid"] not in pids
                and len(pids) == 4)

    assert soon(back)
    assert demo.info()["url"] == before["url"]
    bystanders = {row["pid"] for row in before["agents"] + before["tasks"]} - {
        agent["pid"], task["pid"]}
    assert alive(bystanders) == bystanders

    def live() -> bool:
        try:
            return [node["state"] for node in demo.ask("nodes")].count("live") == 6
        except OSError:
            return False

    assert soon(live)


def test_a_hung_reader_shows_on_its_node_alone(demo: Demo) -> None:
    """n002 has a reader child that really blocks; n006 is one of many in a process."""
    (demo.data / "control.json").write_text(json.dumps(
        {"nodes": {"n002": {"reader": "hang"}, "n006": {"reader": "hang"}}}))

    def states() -> dict[str, str]:
        # One that has just come back has said nothing yet.
        return {node["host"]: (node["reader"] or {"state": None})["state"]
                for node in demo.ask("nodes")}

    assert soon(lambda: list(states().values()).count("hung") == 2)
    assert states() == {"n001": "ok", "n002": "hung", "n003": "ok", "n004": "ok", "n005": "ok",
                        "n006": "hung"}


def test_it_ends_within_five_seconds_and_leaves_nothing(demo: Demo) -> None:
    """A reader still hangs, as the test before has left it."""
    took_s, remaining = demo.end()
    assert demo.process.returncode == 0
    assert took_s < 5
    assert not remaining
    assert not (demo.data / "demo.json").exists()


def test_killed_it_takes_all_with_it(tmp_path: Path) -> None:
    running = Demo(tmp_path, "--nodes", "2", "--gpus", "2")
    _, remaining = running.end(signal.SIGKILL)
    assert not remaining


def test_an_empty_hub_in_a_folder_that_goes(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = start("demo", "--nodes", "0", "--port", "0", env=environment)
    assert soon(lambda: list(tmp_path.glob("gpudeck-demo-*/demo.json")))
    [file] = tmp_path.glob("gpudeck-demo-*/demo.json")
    assert json.loads(file.read_text())["tasks"] == []
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "/sign-in?code=" in out
    assert err == ""
    assert not list(tmp_path.iterdir())


def test_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        assert_refused(3, "choose another with --port", "--data", str(tmp_path / "d"), "--port",
                       str(sock.getsockname()[1]))


def test_a_hub_that_cannot_start_is_said_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir(mode=0o700)
    with open(tmp_path / "hub" / "lock", "w", opener=private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        err = assert_refused(3, "the hub does not start", "--data", str(tmp_path), "--port", "0")
    assert "another hub is running" in err


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def test_a_folder_that_others_can_read_is_refused_before_the_hub_starts(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub").chmod(0o755)
    (tmp_path / "hub" / "theirs").touch()
    err = assert_refused(3, "can be read by others", "--data", str(tmp_path), "--port", "0")
    assert "chmod 700" in err


def test_a_second_demo_in_one_folder(demo_alone: Demo) -> None:
    assert_refused(3, "another `gpudeck demo` uses", "--data", str(demo_alone.data), "--port", "0")


def test_a_broken_control_json_is_said(demo_alone: Demo) -> None:
    (demo_alone.data / "control.json").write_text('{"gpus": ')
    assert soon(lambda: "control.json: not understood" in demo_alone.log.read_text(), 5)
    time.sleep(1.0)  # it is looked at every half second, and said once
    demo_alone.end()
    assert demo_alone.log.read_text().count("control.json: not understood") == 1


def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_refused(3, "choose another folder with --data", "--data", str(tmp_path / "file" / "d"))


def test_up_without_a_gpu_says_why(tmp_path: Path) -> None:
    """A machine with a GPU has nothing to say."""
    process = start("up", "--data", str(tmp_path / "up"), "--port", "0")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        link = next(line.strip() for line in process.stdout if "/sign-in?code=" in line)
        assert link.startswith("http://127.0.0.1:")
        token = (tmp_path / "up" / "hub" / "api.token").read_text().strip()
        url = link.partition("/sign-in")[0]

        def reader() -> str:
            request = urllib.request.Request(f"{url}/api/v1/nodes",
                                             headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                items = json.loads(answer.read())["items"]
            return str(items[0]["reader"]["state"]) if items and items[0]["reader"] else "starting"

        assert soon(lambda: reader() != "starting")
        if reader() != "ok":
            assert "no GPUs:" in process.stderr.readline()
        pids = descendants(process.pid)
        assert len(pids) >= 2
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0
    assert not alive(pids)


@pytest.mark.parametrize("words", [
    ["--profile", "v100"], ["--nodes", "-1"], ["--nodes", "99999"], ["--faults", "maybe"],
    ["--gpus", "0"], ["--speed", "9"],
])
def test_a_bad_flag(words: list[str]) -> None:
    assert_refused(2, words[0], *words)


def assert_refused(code: int, words: str, *arguments: str, program: str = "demo") -> str:
    process = start(program, *arguments)
    out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert words in err
    assert "Traceback" not in err
    assert out == ""
    return err
