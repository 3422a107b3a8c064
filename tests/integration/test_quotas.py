"""Quotas on a real demo: real children are warned twice and ended; who is within is not."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.quota import quota
from gpudeck.client.hub import Client, NotThere
from gpudeck.errors import CommandError
from tests.demos import Demo, alive, soon
from widget.hub import connect

# As soon as a demo's hub lets an end follow.
# So many that the fleet bears three acts in ten minutes; the first ones have real tasks.
NODES = 60
REAL = ("n001", "n002", "n003", "n004")
QUICKEST = [{"do": "tell"}, {"do": "end", "after_s": 2}]
QUICK = [{"do": "tell"}, {"do": "tell", "after_s": 1}, {"do": "end", "after_s": 2}]


@pytest.fixture(name="demo", scope="module")
def _demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("quotas") / "demo", "--nodes", str(NODES), "--gpus", "2",
              "--faults", "off") as running:
        client = Client(running.info()["url"], running.info()["token"])
        assert soon(lambda: len(client.nodes()) == NODES)
        for node in client.nodes():
            if node["host"] in REAL:
                client.hub.ask_for("PATCH", f"nodes/{node['id']}", {"group": "real"})
        settled(running)
        yield running


@pytest.fixture(name="client")
def _client(demo: Demo) -> Iterator[Client]:
    """Leave no quota behind after a test, and let rules act again."""
    info = demo.info()
    client = Client(info["url"], info["token"])
    permit(demo, True)
    forget(client)
    yield client
    forget(client)


def forget(client: Client) -> None:
    for row in client.quotas():
        client.remove_quota(row["quota"]["id"])


def permit(demo: Demo, rules: bool, *more: str) -> None:
    file = demo.data / "ceiling.toml"
    file.write_text("\n".join(["kills_per_hour = 1000", "pauses_per_hour = 1000",
                                   "root_tasks = true",
                               f"rules_may_act = {str(rules).lower()}", *more]))


def jobs(demo: Demo) -> dict[str, list[dict[str, Any]]]:
    """Return the tasks that are real children, by owner."""
    real = {task["id"]: task["pid"] for task in demo.info()["tasks"]}
    by_owner: dict[str, list[dict[str, Any]]] = {}
    for task in demo.ask("tasks?limit=1000"):
        if task["id"] in real:
            by_owner.setdefault(task["user"], []).append(task)
    return by_owner


def pids_of(by_owner: dict[str, list[dict[str, Any]]]) -> set[int]:
    return {task["pid"] for tasks in by_owner.values() for task in tasks}


def settled(demo: Demo) -> dict[str, list[dict[str, Any]]]:
    """Wait until what an earlier test has ended is back as other processes."""
    by_owner: dict[str, list[dict[str, Any]]] = {}

    def is_back() -> bool:
        nonlocal by_owner
        by_owner = jobs(demo)
        pids = pids_of(by_owner)
        all_there = {task["pid"] for task in demo.info()["tasks"]}
        return len(by_owner) >= 2 and alive(pids) == pids == all_there

    assert soon(is_back), by_owner
    return by_owner


def one(client: Client, quota_id: str) -> dict[str, Any]:
    view = client.quota(quota_id)
    assert view is not None
    return view


def commands(client: Client, quota_id: str) -> list[tuple[str, str]]:
    """Return the commands of this quota, oldest first."""
    return [(command.action, command.state) for command in reversed(client.commands(limit="100"))
            if quota_id in str(command)]


def test_the_demo_begins_with_one_that_only_observes(demo: Demo) -> None:
    info = demo.info()
    view = one(Client(info["url"], info["token"]), "fair-share")
    assert (view["quota"]["mode"], view["quota"]["gpus"]) == ("observe", NODES * 2 // 8)


def test_it_is_in_force_within_seconds_and_counts_what_is_held(demo: Demo, client: Client) -> None:
    by_owner = jobs(demo)
    quota_id = f"all-{random.randrange(10**6)}"
    created = client.put_quota(quota_id, {"subject": "*", "scope": "group:real", "gpus": 1,
                                          "mem_bytes": "40GiB"})
    assert created["wanted"] == len(REAL)
    assert soon(lambda: one(client, quota_id)["in_force"] == len(REAL))
    assert soon(lambda: one(client, quota_id)["balances"])
    view = one(client, quota_id)
    gpus_held = {row["holder"]: row["used"] for row in view["balances"] if row["limit"] == "gpus"}
    assert gpus_held == {user: len({(task["node"], use["uuid"]) for task in tasks
                                    for use in task["gpus"]}) for user, tasks in by_owner.items()}
    assert all("seen here" in node["proof"] for node in view["nodes"])
    client.put_quota(quota_id, {"subject": "*", "scope": "group:real", "gpus": 2})
    versions = client.hub.ask_for("GET", f"quotas/{quota_id}/versions")["items"]
    assert [version["quota"]["gpus"] for version in versions] == [2, 1]
    assert soon(lambda: one(client, quota_id)["applied"] == len(REAL))


def test_what_is_wrong_is_refused_and_loses_nothing(demo: Demo, client: Client) -> None:
    client.put_quota("first", {"subject": "*", "gpus": 3})
    with pytest.raises(CommandError, match="not a size"):
        client.put_quota("first", {"subject": "*", "mem_bytes": "2.5X"})
    with pytest.raises(CommandError, match="first limits the same"):
        client.put_quota("second", {"subject": "*", "gpus": 4})
    assert one(client, "first")["quota"]["gpus"] == 3
    assert client.quota("second") is None
    with pytest.raises(NotThere):
        client.remove_quota("second")
    check = client.check_quota({"id": "x", "subject": "*", "scope": "group:real", "gpus": 0})
    assert {row["holder"] for row in check["over"]} == {*jobs(demo)}
    assert [row["field"] for row in client.check_quota({"id": "x", "subject": "me"})["problems"]
            ] == ["subject"]


def test_from_the_terminal_and_a_notebook(
        demo: Demo, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = demo.info()
    file = tmp_path / "token"
    file.write_text(info["token"])
    file.chmod(0o600)

    def run(*words: str) -> str:
        assert quota([*words, "--hub", info["url"], "--token-file", str(file)]) == 0
        return capsys.readouterr().out

    output = run("check", "typed", "--subject", "*", "--scope", "group:real", "--gpus", "0")
    assert output.count("over: ") == len(jobs(demo))
    assert client.quota("typed") is None
    run("set", "typed", "--subject", "*", "--scope", "group:real", "--gpus", "1", "--mem", "2TiB")
    run("set", "typed", "--mem", "none", "--because", "few are there")
    stored = one(client, "typed")["quota"]
    assert (stored["gpus"], stored["mem_bytes"], stored["because"]) == (1, None, "few are there")
    assert soon(lambda: "holds" in run("list"))
    frame = connect(info["url"], info["token"]).quotas()
    assert {*frame["holder"]} == {*jobs(demo)}
    assert {*frame["limit"]} == {"gpus"}
    with pytest.raises(CommandError, match="not a size"):
        run("set", "typed", "--mem", "2.5X")
    run("set", "typed", "--tell-again-after", "5m")
    run("set", "typed", "--end-after", "7m")
    assert [rung["after_s"] for rung in one(client, "typed")["quota"]["ladder"]] == [0, 300, 420]
    client.put_quota("typed", {"subject": "*", "ladder": [{"do": "tell"}]})
    with pytest.raises(CommandError, match="a custom ladder"):
        run("set", "typed", "--end-after", "8m")
    assert "limits nobody now" in run("remove", "typed")
    assert client.quota("typed") is None


def test_who_is_said_to_go_goes_and_who_is_within_stays(demo: Demo, client: Client) -> None:
    """Run before the one that ends several: the fleet bears three acts, shared by all tests."""
    by_owner = settled(demo)
    gpus = {(task["node"], use["uuid"]) for tasks in by_owner.values() for task in tasks
            for use in task["gpus"]}
    quota = {"subject": "*", "scope": "group:real", "count": "together", "gpus": len(gpus) - 1}
    client.put_quota("sum", quota | {"mode": "observe"})
    assert soon(lambda: one(client, "sum")["over"]), one(client, "sum")
    [offender] = one(client, "sum")["balances"][0]["offenders"]
    their_pids = {task["pid"] for tasks in by_owner.values() for task in tasks
                  if task["id"] in offender["task_ids"]}
    other_pids = pids_of(by_owner) - their_pids
    client.put_quota("sum", quota | {"mode": "act", "ladder": QUICKEST})
    assert soon(lambda: alive(their_pids) != their_pids), commands(client, "sum")
    client.remove_quota("sum")
    assert alive(other_pids) == other_pids, [
        (command.action, command.state, command.task_id, command.reason)
        for command in client.commands(limit="50")]


def test_where_rules_may_not_act_it_says_so_and_ends_nothing(demo: Demo, client: Client) -> None:
    permit(demo, False)
    pids = pids_of(settled(demo))
    quota_id = f"no-{random.randrange(10**6)}"
    client.put_quota(quota_id, {"subject": "*", "scope": "group:real", "gpus": 0, "mode": "act",
                                "ladder": QUICKEST})

    def is_said() -> bool:
        nodes = one(client, quota_id)["nodes"]
        return bool(nodes) and all(node["is_applied"] and not node["is_in_force"]
                                   and "rules_may_act" in node["proof"] for node in nodes)

    assert soon(is_said), one(client, quota_id)["nodes"]
    assert soon(lambda: sum(action == "notify" for action, _ in commands(client, quota_id)) >= 2
                ), commands(client, quota_id)
    time.sleep(3)  # longer than it takes from the word to the end
    assert not any(action == "end" and state == "done"
                   for action, state in commands(client, quota_id))
    assert alive(pids) == pids


def test_star_tells_tells_again_ends_and_spares_the_protected(demo: Demo, client: Client) -> None:
    by_owner = settled(demo)
    spared = random.choice(sorted(by_owner))
    permit(demo, True, f'protected_users = ["{spared}"]')
    their_pids = {task["pid"] for task in by_owner[spared]}
    other_pids = pids_of(by_owner) - their_pids
    # Theirs first: after one end a small fleet bears no other for ten minutes, and none is tried.
    client.put_quota("theirs", {"subject": f"user:{spared}", "scope": "group:real", "gpus": 0,
                                "mode": "act", "ladder": QUICK, "because": "they are asked to go"})
    assert soon(lambda: any("protects the tasks of" in str(record) for record in client.audit(
        kind="ladder", limit="50")["items"])), "the end of the protected was tried, and refused"
    client.remove_quota("theirs")
    quota_id = f"star-{random.randrange(10**6)}"
    client.put_quota(quota_id, {"subject": "*", "scope": "group:real", "gpus": 0, "mode": "act",
                                "ladder": QUICK, "because": "the night is for others"})
    assert soon(lambda: ("end", "done") in commands(client, quota_id)), commands(
        client, quota_id)
    assert alive(other_pids) != other_pids
    ladders = [offender["ladder"] for balance in one(client, quota_id)["balances"]
               for offender in balance["offenders"]]
    assert any("notified twice" in ladder or "protects" in ladder for ladder in ladders), ladders
    client.remove_quota(quota_id)
    acts = [act for act in reversed(client.commands(limit="200")) if quota_id in str(act)]
    end = next(act for act in acts if (act.action, act.state) == ("end", "done"))
    of_it = [act.action for act in acts if act.task_id == end.task_id]
    assert of_it == ["notify", "notify", "end"]
    assert all("the night is for others" in act.reason for act in acts)
    assert alive(their_pids) == their_pids


def killed(demo: Demo, client: Client) -> None:
    """Kill the hub and wait until it is back, with the quota `stays`."""
    client.put_quota("stays", {"subject": "*", "scope": "group:real", "gpus": 1})
    assert soon(lambda: one(client, "stays")["in_force"] == len(REAL))
    generation = one(client, "stays")["generation"]
    demo.kill_hub()

    def is_back() -> bool:
        try:
            view = client.quota("stays")
        except CommandError:
            return False
        return view is not None and view["in_force"] == len(REAL)

    assert soon(lambda: not is_back(), 5)
    assert soon(is_back)
    assert one(client, "stays")["generation"] == generation


def test_a_hub_that_is_killed_comes_back_with_them(demo: Demo, client: Client) -> None:
    killed(demo, client)


@pytest.mark.soak
def test_after_a_hub_was_killed_nobody_is_told_again(demo: Demo, client: Client) -> None:
    """A short form is tests/unit/dashboard/automation/test_restarts.py."""
    warned = random.choice(sorted(settled(demo)))
    client.put_quota("told", {"subject": f"user:{warned}", "scope": "group:real", "mode": "warn",
                              "max_age_s": 0.5, "ladder": [
                                  {"do": "tell"}, {"do": "tell", "after_s": 600}]})

    def notified_tasks() -> list[str]:
        return [str(command.task_id) for command in client.commands(limit="100", state="all")
                if command.action == "notify" and "; told gives" in command.reason]

    def is_told_once() -> bool:
        ladders = [offender["ladder"] for balance in one(client, "told")["balances"]
                   for offender in balance["offenders"]]
        return bool(ladders) and all("notified once" in ladder for ladder in ladders)

    assert soon(is_told_once)
    time.sleep(3)  # it is on the disk a second later; within that, telling is at least once
    before = {*notified_tasks()}
    killed(demo, client)
    assert soon(is_told_once)
    assert sorted(before) == sorted(task_id for task_id in notified_tasks() if task_id in before)
