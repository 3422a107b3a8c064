"""The terminal's side of acts, over real HTTP: what it shows, asks, refuses, follows."""

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.actions.hold_files import holds
from agent.runtime.data_lock import DataFolderLock
from gpudeck.contract.actions import FINAL
from gpudeck.errors import ExitCode
from gpudeck.words.actions import EXIT_OF, short
from tests.demos import soon
from tests.fakes.actions_hub import ActsHub
from tests.terminals import Terminal, TerminalResult, run
from tests.unit.shown_actions import item


@pytest.fixture
def hub() -> Iterator[ActsHub]:
    chance = random.Random(random.random())
    hub = ActsHub([item(chance, bystanders=[]) for _ in range(3)])
    yield hub
    hub.stop()


@pytest.fixture
def at(hub: ActsHub, tmp_path: Path) -> list[str]:
    (tmp_path / "token").write_text(hub.token)
    return ["--hub", hub.url, "--token-file", str(tmp_path / "token")]


def first(hub: ActsHub) -> str:
    return str(next(iter(hub.jobs)))


def test_end_shows_asks_orders_and_follows(hub: ActsHub, at: list[str]) -> None:
    result = run("end", first(hub), "--reason", "idle since noon", "--grace", "5", *at,
                 answers=["y"])
    assert result.code == ExitCode.OK, result
    [request] = hub.posted("previews")
    assert request == {"action": "end", "targets": [first(hub)], "plan": False, "params": {
        "grace_s": 5.0, "checkpoint_signal": None, "checkpoint_wait_s": 0.0}}
    assert hub.posted("commands") == [{"preview": "p0", "reason": "idle since noon"}]
    job = hub.jobs[first(hub)]
    preview, steps = result.out.split("queued", 1)
    assert job["job_id"] in preview
    assert "acting" in steps
    assert result.out.rstrip().endswith("the sentence of done")


@pytest.mark.parametrize("answer", ["", "n", "no", "Y E S"])
def test_anything_but_yes_is_no(hub: ActsHub, at: list[str], answer: str) -> None:
    result = run("end", first(hub), "--reason", "x", *at, answers=[answer])
    assert result.code == ExitCode.FAILED, result
    assert "nothing was done" in result.out
    assert hub.commands == {}


def test_a_reason_is_asked_for(hub: ActsHub, at: list[str]) -> None:
    result = run("pause", first(hub), *at, answers=["", "maintenance", "y"])
    assert result.code == ExitCode.OK, result
    assert [body["reason"] for body in hub.posted("commands")] == ["maintenance"]


def test_ending_several_asks_for_a_name(hub: ActsHub, at: list[str]) -> None:
    assert run("end", *hub.jobs, "--reason", "x", *at, answers=["y"]).code == ExitCode.FAILED
    assert hub.commands == {}
    result = run("end", *hub.jobs, "--reason", "x", *at, answers=[short(first(hub))])
    assert result.code == ExitCode.OK, result
    assert len(hub.commands) == 3


@pytest.mark.parametrize("state", sorted(FINAL))
def test_every_outcome_has_its_exit_code(hub: ActsHub, at: list[str], state: str) -> None:
    hub.states = ("queued", state)
    result = run("pause", first(hub), "--reason", "x", *at, answers=["y"])
    assert result.code == EXIT_OF[state], result  # type: ignore[index]
    assert result.out.rstrip().endswith(f"the sentence of {state}")


@pytest.mark.parametrize("words", [
    ["--reason", "x"], ["--reason", "x", "--yes"], ["--json", "--reason", "x"]])
def test_without_a_terminal_nothing_happens(hub: ActsHub, at: list[str], words: list[str]) -> None:
    result = run("end", first(hub), *words, *at)
    assert result.code == ExitCode.USAGE, result
    assert "--plan-out FILE" in result.err
    assert hub.requests == []


def test_yes_in_the_environment_is_no_yes(hub: ActsHub, at: list[str]) -> None:
    result = run("end", first(hub), *at, env={"GPUDECK_YES": "1", "GPUDECK_REASON": "x",
                                              "GPUDECK_PLAN": "/dev/null"})
    assert result.code == ExitCode.USAGE, result
    assert hub.requests == []


def planned(hub: ActsHub, at: list[str], path: Path, *words: str) -> TerminalResult:
    return run("end", *(words or hub.jobs), "--plan-out", str(path), *at)


def test_a_plan_is_written_and_done(hub: ActsHub, at: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    wrote = planned(hub, at, path)
    assert wrote.code == ExitCode.OK, wrote
    assert hub.commands == {}
    assert path.stat().st_mode & 0o777 == 0o600
    assert planned(hub, at, path).code == ExitCode.USAGE  # it is there already
    result = run("end", "--plan", str(path), "--yes", "--reason", "nightly", *at)
    assert result.code == ExitCode.OK, result
    assert len(hub.commands) == 3
    assert all(body["plan"] for body in hub.posted("previews"))


def test_a_plan_is_not_done_when_anything_changed(hub: ActsHub, at: list[str], tmp_path: Path
                                                  ) -> None:
    path = tmp_path / "plan.json"
    planned(hub, at, path)
    hub.jobs[first(hub)]["processes"][0]["start_ticks"] += 1
    result = run("end", "--plan", str(path), "--yes", "--reason", "nightly", "--json", *at)
    assert result.code == ExitCode.REFUSED, result
    [changed] = result.of("changed")
    assert changed["changes"] == [f"{hub.jobs[first(hub)]['node'][:12]} {first(hub)}: its "
                                  "processes changed"]
    assert hub.commands == {}


def test_a_plan_for_one_act_does_no_other(hub: ActsHub, at: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned(hub, at, path)
    result = run("pause", "--plan", str(path), "--yes", "--reason", "x", *at)
    assert (result.code, "gpudeck end" in result.err) == (ExitCode.USAGE, True), result
    path.write_text(path.read_text().replace('"gpudeck_plan": 1', '"gpudeck_plan": 7'))
    broken = run("end", "--plan", str(path), "--yes", "--reason", "x", *at)
    assert (broken.code, str(path) in broken.err) == (ExitCode.USAGE, True), broken
    assert hub.commands == {}


def test_a_plan_without_yes_still_asks(hub: ActsHub, at: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned(hub, at, path, first(hub))
    words = ["end", "--plan", str(path), "--reason", "x", *at]
    assert run(*words).code == ExitCode.USAGE
    assert run(*words, answers=["n"]).code == ExitCode.FAILED
    assert hub.commands == {}
    assert run(*words, answers=["y"]).code == ExitCode.OK


def test_a_pid_or_a_name_is_no_target(hub: ActsHub, at: list[str]) -> None:
    task = hub.tasks()[0]
    for word in (str(task["pid"]), "alice", "train.py", first(hub)[:8]):
        result = run("end", word, "--reason", "x", *at, answers=["y"])
        assert result.code == ExitCode.USAGE, result
        assert task["id"] in result.err
    assert "there is no task 'nobody'" in run("end", "nobody", *at, answers=[]).err
    assert hub.previews == {}


def test_a_filter_means_tasks_all_of_whose_gpus_match(hub: ActsHub, at: list[str]) -> None:
    jobs = [*hub.jobs.values()]
    jobs[0]["gpus"] = [{"uuid": "GPU-a", "index": 0, "mem_used_bytes": 1.0},
                       {"uuid": "GPU-b", "index": 1, "mem_used_bytes": 1.0}]
    hub.matched = {"GPU-a", *(gpu["uuid"] for gpu in jobs[1]["gpus"])}
    run("pause", "--filter", "util<5", "--reason", "x", *at, answers=["y"])
    assert [body["targets"] for body in hub.posted("previews")] == [jobs[1]["task_ids"]]


def test_a_filter_does_not_choose_between_owners(hub: ActsHub, at: list[str]) -> None:
    jobs = [*hub.jobs.values()]
    jobs[0]["gpus"], jobs[0]["node"], jobs[0]["owner"] = jobs[1]["gpus"], jobs[1]["node"], "bob"
    result = run("end", "--filter", "user:bob", "--reason", "x", *at, answers=["y"])
    assert (result.code, "alice and bob share a GPU" in result.err) == (
        ExitCode.USAGE, True), result
    run("end", "--filter", "user:bob", "--user", "bob", "--reason", "x", *at, answers=["y"])
    assert [body["targets"] for body in hub.posted("previews")] == [jobs[0]["task_ids"]]


def test_all_refused_means_nothing_is_ordered(hub: ActsHub, at: list[str]) -> None:
    hub.jobs[first(hub)]["refusals"] = [{"code": "hold", "sentence": "this node is on hold"}]
    result = run("end", first(hub), "--reason", "x", *at, answers=["y"])
    assert result.code == ExitCode.REFUSED, result
    assert "this node is on hold (hold)" in result.out
    assert hub.commands == {}


def test_it_waits_for_a_second_person(hub: ActsHub, at: list[str]) -> None:
    hub.second_person = True
    result = run("pause", *hub.jobs, "--reason", "x", *at, answers=["y"])
    assert (result.code, "second person" in result.out) == (ExitCode.WAITING, True), result


def test_json_is_one_document_per_line(hub: ActsHub, at: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert planned(hub, at, path, first(hub), "--json").of("planned") == [
        {"event": "planned", "file": str(path), "jobs": 1}]
    result = run("end", "--plan", str(path), "--yes", "--reason", "x", "--json", *at)
    assert [document["event"] for document in result.documents] == [
        "preview", "command", "command", "command", "end"], result
    assert [document["command"]["state"] for document in result.of("command")] == [*hub.states]
    assert result.of("end") == [{"event": "end", "exit_code": 0, "states": {"c0": "done"}}]
    assert set(result.of("preview")[0]["preview"]["items"][0]) >= {
        "task_ids", "node", "owner", "command", "age_s", "gpus", "processes", "bystanders"}


@pytest.mark.parametrize("status", [502, 504])
def test_an_order_without_an_answer_is_asked_for_under_its_key_and_else_unknown(
    hub: ActsHub, at: list[str], status: int
) -> None:
    hub.broken_with = status
    result = run("end", first(hub), "--reason", "x", *at, answers=["y"])
    assert result.code == ExitCode.UNKNOWN, result
    assert "may or may not" in result.err
    assert len(hub.posted("commands")) == 2
    [key] = {*hub.keys["commands"]}
    assert key, "under which a hub does it once"


def test_leaving_takes_nothing_back_and_says_how_to_look(hub: ActsHub, at: list[str]) -> None:
    hub.states, hub.step_s = ("queued", "acting"), 0.05
    terminal = Terminal("end", first(hub), "--reason", "x", *at, answers=["y"])
    assert soon(lambda: any(request[1] == "commands/c0" for request in hub.requests))
    terminal.process.send_signal(signal.SIGINT)
    result = terminal.end()
    assert result.code == 130, result
    assert f"the action continues; nothing was undone. To see its outcome: gpudeck follow c0 " \
           f"--hub {hub.url}" in result.out
    hub.states = ("done",)
    assert run("follow", "c0", *at).code == ExitCode.OK


def test_hold_and_release_of_a_node_and_the_fleet(hub: ActsHub, at: list[str]) -> None:
    node = hub.jobs[first(hub)]["node"]
    hold = run("hold", "--node", node, "--reason", "flaky cooling", "--json", *at)
    assert hold.code == ExitCode.OK, hold
    [row] = json.loads(hold.out)["nodes"]
    assert (row["node"], row["holds"]) == (node, ["the hub: flaky cooling"])
    assert hub.holds == {node: "flaky cooling"}
    assert run("hold", "--fleet", "--reason", "x", *at).code == ExitCode.OK
    assert len(hub.holds) == 3
    assert run("release", "--fleet", *at).code == ExitCode.OK
    assert hub.holds == {}


@pytest.mark.parametrize(("words", "sentence"), [
    ([], "say --node NODE or --fleet"), (["--node", "a", "--fleet"], "say --node NODE or --fleet"),
    (["--node", "nowhere"], "there is no node 'nowhere'"),
    (["--node", "rack-3"], "3 nodes have the name 'rack-3'")])
def test_a_hold_says_where(hub: ActsHub, at: list[str], words: list[str], sentence: str) -> None:
    result = run("hold", *words, *at)
    assert (result.code, sentence in result.err) == (ExitCode.USAGE, True), result
    assert hub.holds == {}


def test_keep(hub: ActsHub, at: list[str]) -> None:
    result = run("keep", first(hub), "--until", "+2h", "--because", "paper", *at)
    assert result.code == ExitCode.OK, result
    [(_, path, body)] = [request for request in hub.requests if request[0] == "PUT"]
    assert (path, body["because"]) == (f"tasks/{first(hub)}/keep", "paper")
    assert run("keep", first(hub), "--remove", *at).code == ExitCode.OK
    for wrong in (["--until", "soon", "--because", "x"], ["--until", "18:00"], [],
                  ["--remove", "--because", "x"]):
        assert run("keep", first(hub), *wrong, *at).code == ExitCode.USAGE


@pytest.fixture
def agents_lock(tmp_path: Path) -> Iterator[Path]:
    """A folder that an agent has, as far as its lock says."""
    data = tmp_path / "agent"
    with DataFolderLock(data):
        yield data


def test_a_hold_of_this_machines_agent(agents_lock: Path) -> None:
    hold = run("hold", "--data", str(agents_lock), "--reason", "flaky\ncooling", "--json")
    assert hold.code == ExitCode.OK, hold
    assert f"the file {agents_lock / 'hold'} says: flaky cooling" in json.loads(hold.out)["holds"]
    assert holds((agents_lock / "hold",)) != ()
    released = run("release", "--data", str(agents_lock))
    assert released.code == ExitCode.OK, released
    assert not (agents_lock / "hold").exists()


def test_a_hold_that_no_agent_reads_is_refused(tmp_path: Path) -> None:
    for data in (tmp_path, tmp_path / "nothing"):
        result = run("hold", "--data", str(data))
        assert result.code == ExitCode.CANNOT_START, result
        assert "nothing would be stopped" in result.err
        assert not (data / "hold").exists()


def test_nodes_of_a_fleet_are_named_through_a_hub(agents_lock: Path) -> None:
    for words in (["--fleet"], ["--node", "rack-3"]):
        result = run("hold", "--data", str(agents_lock), *words)
        assert (result.code, "go with --hub" in result.err) == (ExitCode.USAGE, True), result
