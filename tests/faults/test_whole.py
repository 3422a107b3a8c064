"""Commands of a hub that end real processes, and the records of both sides."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpudeck.audit.chain import verify
from gpudeck.contract.actions import YOUNGEST_S
from tests.fakes.children import STUBBORN, TREE, Child, is_alive, state_of
from tests.faults.fleet import Fleet, a_fleet
from tests.integration.hubs import wait_for

# A worker in another session, below a process that has left: it is only init's child then.
DOUBLE_FORK = """
import os, signal
r, w = os.pipe()
middle = os.fork()
if middle == 0:
    os.setsid()
    worker = os.fork()
    if worker == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    os.write(w, str(worker).encode())
    while True:
        signal.pause()
print("ready", middle, int(os.read(r, 16)), flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with a_fleet(tmp_path_factory.mktemp("whole")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def tasks(fleet: Fleet) -> dict[str, Child]:
    start = fleet.children.start
    tasks = {"neighbour": start(), "stubborn": start(STUBBORN), "tree": start(TREE),
             "daemons": start(DOUBLE_FORK), "stopped": start(), "paused agent": start(STUBBORN)}
    fleet.shows(list(tasks.values()))
    time.sleep(YOUNGEST_S)
    return tasks


def check(fleet: Fleet, tasks: dict[str, Child], child: Child, outcome: Any) -> None:
    """Check that a command is done, that all records agree, and that the neighbour lives on."""
    assert outcome["state"] == "done", outcome
    assert outcome["verified"]["exited"] is True
    assert outcome["verified"]["bystanders_alive"] is True
    assert outcome["sentence"].startswith("Ended: its processes are gone.")
    assert not any(is_alive(pid) for pid in (child.pid, *(child.workers if child.words else ())))
    assert tasks["neighbour"].is_alive()
    rows = fleet.hub.get(f"/api/v1/audit?kind=command&task={child.task_id}&limit=50")["items"]
    assert {"requested", "accepted", "acting", "done"} <= {row["outcome"] for row in rows}
    assert {row["command_id"] for row in rows} == {outcome["id"]}
    assert fleet.hub.get("/api/v1/audit/verify")["broken"] is None
    links = list(fleet.journal().audit.links())
    assert verify(links) is None
    of_it = [link.body for link in links if outcome["id"] in link.body]
    assert sum('"intent":true' in body for body in of_it) == 1
    assert sum('"state":"done"' in body for body in of_it) == 1


@pytest.mark.parametrize("name", ["stubborn", "tree", "daemons"])
def test_it_ends_whole(fleet: Fleet, tasks: dict[str, Child], name: str) -> None:
    child = tasks[name]
    preview = fleet.preview(child, grace_s=1.0)
    pids = {process["pid"] for process in preview["items"][0]["processes"]}
    assert pids == {child.pid, *(child.workers if child.words else ())}
    check(fleet, tasks, child, fleet.outcome(fleet.order(preview)["id"]))


def test_a_stopped_task_goes_on_to_end(fleet: Fleet, tasks: dict[str, Child]) -> None:
    child = tasks["stopped"]
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: state_of(child.pid) == "T")
    outcome = fleet.outcome(fleet.order(fleet.preview(child, grace_s=30.0))["id"])
    check(fleet, tasks, child, outcome)
    assert child.process.wait(5) == -signal.SIGTERM


def test_an_agent_that_stands_still_during_the_grace(
    fleet: Fleet, tasks: dict[str, Child]
) -> None:
    child = tasks["paused agent"]
    command = fleet.order(fleet.preview(child, grace_s=2.0))
    wait_for(lambda: fleet.hub.get(f"/api/v1/commands/{command['id']}")["state"] == "acting")
    fleet.agent.send_signal(signal.SIGSTOP)
    try:
        time.sleep(3.0)  # longer than the grace: what is due then is done after all, and once
        assert child.is_alive()
    finally:
        fleet.agent.send_signal(signal.SIGCONT)
    check(fleet, tasks, child, fleet.outcome(command["id"]))
