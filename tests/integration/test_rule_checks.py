"""Checks of a rule as it is written: what of its ladder could not be done, and by whom."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dashboard.cli.rules import rules
from gpudeck.contract.rungs import RulesCeiling
from gpudeck.contract.wire import Task, Tasks, Use
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.visitors import add_program

LADDER = [{"do": "tell"}, {"do": "pause", "after": "10m"}, {"do": "end", "after": "10m"}]


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("checks") / "data") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


def add_node(hub: HubProcess, rules: RulesCeiling, *tasks: Task) -> Teller:
    teller = Teller(f"node-{secrets.token_hex(3)}", 1)
    teller.caller.said = replace(teller.caller.said, actions=("notify", "pause", "end"),
                                 rules=rules)
    teller.connect(hub)
    teller.tell(Tasks(True, tasks, tuple(Use(task.id, 0, 1e9, 0.0) for task in tasks)))
    return teller


def task(user: str, **more: Any) -> Task:
    return Task(f"b-{secrets.token_hex(4)}-1", 7, 1, 1e9, user, "python", **more)


def checked(hub: HubProcess, token: str = "api", **more: Any) -> list[tuple[int, int, int, str]]:
    rule = {"id": "idle", "title": "Idle", "of": "task", "scope": "*", "signal": "sm_pct",
            "fire": "<= 1", "for": "5m", "ladder": LADDER} | more
    answer = hub.ask("/api/v1/rule-checks", "POST", token, json.dumps({"rule": rule}).encode(),
                     Content_Type="application/json").json
    assert answer["problems"] == []
    return [(refusal["step"], refusal["refused"], refusal["targets"], refusal["sentence"])
            for refusal in answer["refused"]]


def test_of_whom_a_step_would_be_refused(hub: HubProcess) -> None:
    ann, bob = f"ann{secrets.token_hex(3)}", f"bob{secrets.token_hex(3)}"
    add_node(hub, RulesCeiling(True, False), task(ann), task(ann, kind="mps_client"),
             task(bob, job_id="slurm job 7", manager="slurm job 7"))
    add_node(hub, RulesCeiling(False, False), task(bob))
    wait_for(lambda: len(hub.get("/api/v1/tasks")["items"]) >= 4)
    [only] = wait_for(lambda: len(rows := checked(hub, scope=f"user:{ann}")) == 1 and rows)
    assert only[:3] == (1, 1, 2)
    assert only[3].startswith("step 2 ('pause') would be refused now for 1 of 2 tasks: it is an "
                              "MPS client: ")
    bobs = checked(hub, scope=f"user:{bob}")
    assert [row[:3] for row in bobs] == [(1, 2, 2), (2, 2, 2)]
    assert "for all 2 tasks" in bobs[0][3]
    # Of nobody yet: what the nodes themselves let rules do.
    nodes = checked(hub, scope="user:nobody-yet")
    assert [row[:3] for row in nodes] == [(1, 1, 2), (2, 1, 2)]
    assert "for 1 of 2 nodes: the ceiling of this node does not let rules act" in nodes[0][3]
    assert checked(hub, of="gpu", signal="temp_c", fire=">= 1", scope="*", ladder=[]) == []
    part = add_program(hub, "operator", groups=("elsewhere",))
    assert checked(hub, token=part, scope=f"user:{bob}") == [], "of what one does not see, nothing"


def test_the_terminal_says_it_with_a_hub_and_what_it_can_without(
    hub: HubProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    add_node(hub, RulesCeiling(False, False))
    file, token = tmp_path / "mine.yaml", tmp_path / "token"
    rule = {"id": "idle", "title": "Idle", "of": "task", "scope": "user:nobody-yet",
            "signal": "sm_pct", "fire": "<= 1", "for": "5m", "when_refused": "skip",
            "ladder": [*LADDER, {"do": "end", "after": "10m"}]}
    file.write_text(json.dumps({"rules": [rule]}))
    token.touch(0o600)
    token.write_text(hub.api_token)
    assert rules(["check", str(file)]) == 0
    alone = capsys.readouterr().out
    assert "idle: step 4 ('end') can never be done: it comes after 'end'" in alone
    assert "does not let rules act" not in alone
    assert "1 rules and 0 tests are valid" in alone
    reach = ["--hub", hub.url, "--token-file", str(token)]
    assert rules(["check", str(file), *reach]) == 0
    assert "does not let rules act" in capsys.readouterr().out
    assert rules(["check", str(file), *reach, "--json"]) == 0
    assert {row["who"] for row in json.loads(capsys.readouterr().out)["refused"]} == {"idle"}
    file.write_text(json.dumps({"rules": [rule | {"when_refused": "go on"}]}))
    assert rules(["check", str(file)]) == 1
    assert "when_refused: write stop or skip" in capsys.readouterr().out
