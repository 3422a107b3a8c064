"""A pre-emption suspends work that allows it: its GPUs go to somebody else and come back to it, and
no GPU ever has two leases. Real hub, two real agents on the C fake of the driver, real commands."""

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.children import a_ceiling, state_of
from tests.fakes.cuda_checkpoint import FakeCudaCheckpoint
from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.pools import PoolBed, records
from tests.integration.test_pool_order import HOLDS, ask

GIB = 2**30
VICTIM = ("--gpus", "2", "--priority", "1", "--preemptible", "--suspendable")
AGENT = ("-m", "tests.fakes.roomy_agent")
ACTIONS = ["notify", "end", "suspend", "restore"]


class SuspendingNode:
    """A node of two GPUs whose tasks can be suspended, and its agent."""

    def __init__(self, hub: HubProcess, folder: Path) -> None:
        folder.mkdir()
        ceiling = a_ceiling(folder, rules_may_act=True, own_pid_namespace=True, actions=ACTIONS)
        self.hub, self.folder = hub, folder
        self.bed = PoolBed(hub, folder, "--ceiling", str(ceiling), "--host", folder.name)
        self.bed.nvml.driver = "580.95.05"
        del self.bed.nvml.gpus[2:]
        for gpu in self.bed.nvml.gpus:
            gpu["mem_used"], gpu["mem_adds"] = 0, 1
        self.bed.nvml.save()
        self.program = FakeCudaCheckpoint(folder, self.bed.nvml.path)
        self.bed.env["PATH"] = self.program.path
        self._agent = ExitStack()
        self.pids: list[int] = []
        self.start()

    def start(self) -> None:
        self.process: Any = self._agent.enter_context(self.bed.agent(AGENT))

    def kill(self) -> None:
        """Kill the agent with SIGKILL."""
        self.process.kill()
        self.process.wait(10)
        self._agent.close()

    def run(self, *words: str) -> tuple[Any, int]:
        """Start a run of which the driver lists its command on its GPUs."""
        run = self.bed.start("run", *words, "--", sys.executable, "-c", HOLDS)
        assert run.stdout is not None
        pid, uuids = run.stdout.readline().split()
        self.pids.append(int(pid))
        # Saved by Python, what is suspended would be listed again.
        with self.bed.nvml.path.open("a") as file:
            file.writelines(f"{gpu.process(int(pid), 4 * GIB).lines[-1]}\n"
                            for gpu in self.bed.nvml.gpus if gpu.uuid in uuids)
        wait_for(lambda: int(pid) in {task["pid"] for task in self.tasks()})
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.ticks(int(pid)) / 100
        time.sleep(max(0.0, 5.5 - age_s))  # nothing is done to a younger one
        return run, int(pid)

    def ticks(self, pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])

    def task_id(self, pid: int) -> str:
        return next(str(task["id"]) for task in self.tasks() if task["pid"] == pid)

    def preview(self, action: str, pid: int) -> Any:
        return ask(self.hub, "POST", "previews", {"action": action, "targets": [self.task_id(pid)]})

    def tasks(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.hub.get("/api/v1/tasks?limit=100")["items"]
        return items

    def close(self) -> None:
        for pid in self.pids:  # a stopped one would heed nothing else
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.bed.close()
        self._agent.close()

    def most_on_a_gpu(self) -> int:
        """Return how many leases a GPU had at most at a time, as the node has recorded it."""
        gpus_of: dict[str, list[str]] = {}
        most = 0
        for record in records(self.folder / "data" / "acts.db"):
            match record.get("pool"):
                case "granted" | "returned":
                    gpus_of[record["lease"]] = record["uuids"]
                case "suspended" | "released" | "preempted" | "waiting" | "lost":
                    gpus_of.pop(record["lease"], None)
            most = max([most, *Counter(
                uuid for uuids in gpus_of.values() for uuid in uuids).values()])
        return most


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        ask(hub, "PUT", "pool/policy", {"is_preemptive": True, "least_run_s": 0, "grace_s": 1})
        yield hub


def leases(hub: HubProcess) -> dict[str, str]:
    return {lease["id"]: lease["state"] for lease in hub.get("/api/v1/leases")["items"]}


def claims(hub: HubProcess) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = hub.get("/api/v1/claims")["items"]
    return items


def acts(hub: HubProcess) -> list[str]:
    items = hub.get("/api/v1/commands?limit=100")["items"]
    return [command["action"] for command in items][::-1]


@pytest.fixture(name="nodes")
def _nodes(hub: HubProcess, tmp_path: Path) -> Iterator[list[SuspendingNode]]:
    nodes = [SuspendingNode(hub, tmp_path / name) for name in ("n1", "n2")]
    yield nodes
    for node in nodes:
        node.close()


def lease_at(hub: HubProcess, host: str) -> str:
    [lease_id] = [lease["id"] for lease in hub.get("/api/v1/leases")["items"]
                  if lease["host"] == host]
    return str(lease_id)


def test_it_is_suspended_and_comes_back_whoever_is_killed_meanwhile(
        hub: HubProcess, nodes: list[SuspendingNode]) -> None:
    node, other = nodes
    bystander, bystander_pid = other.run(*VICTIM)
    run, pid = node.run(*VICTIM)
    lease_id = lease_at(hub, "n1")
    urgent, _ = node.run("--gpus", "1", "--priority", "4")
    assert (state_of(pid), node.program.state(pid)) == ("T", "checkpointed")
    [claim] = [claim for claim in claims(hub) if claim["id"] == lease_id]
    assert "to restore its suspended work" in claim["asks"]
    assert "comes back to the GPUs that it had: 1 of 2 is free" in claim["why"]
    [waits] = node.bed.status()["waiting"]
    assert (waits["claim_id"], waits["why"]) == (lease_id, claim["why"])
    assert [task["state"] for task in node.tasks() if task["pid"] == pid] == ["suspended"]
    by_hand = node.preview("restore", pid)
    assert "waits in the queue for its GPUs" in str(by_hand)

    node.kill()
    node.start()
    hub.kill()
    hub.start()
    wait_for(lambda: lease_id in {claim["id"] for claim in claims(hub)})
    assert state_of(pid) == "T", "the other one has its GPU"
    urgent.terminate()
    wait_for(lambda: state_of(pid) == "S")
    wait_for(lambda: leases(hub).get(lease_id) == "active")
    assert node.program.state(pid) == "running"
    assert (run.poll(), bystander.poll(), state_of(bystander_pid)) == (None, None, "S")
    assert [action for action in acts(hub) if action != "notify"] == ["suspend", "restore"]
    assert (node.most_on_a_gpu(), other.most_on_a_gpu()) == (1, 1)
    run.terminate()
    assert "its work is suspended, and somebody else gets its GPUs" in run.communicate(30)[1]
    wait_for(lambda: lease_id not in leases(hub))


def test_an_agent_that_dies_while_it_suspends_gives_its_gpus_to_nobody(
        hub: HubProcess, nodes: list[SuspendingNode]) -> None:
    node = nodes[0]
    _, pid = node.run(*VICTIM)
    lease_id = lease_at(hub, "n1")
    node.program.do("checkpoint", "hang")
    urgent = node.bed.start("run", "--gpus", "1", "--priority", "4", "--", sys.executable, "-c",
                            HOLDS)
    wait_for(lambda: any("--action checkpoint" in call for call in node.program.calls))
    node.kill()
    node.program.work()
    node.start()
    wait_for(lambda: any(lease["id"] == lease_id and lease["state"] == "draining"
                         for lease in hub.get("/api/v1/leases")["items"]))
    assert node.program.state(pid) == "locked", "it is on its GPUs, and nobody else is"
    wait_for(lambda: ("suspend", "unknown") in [
        (command["action"], command["state"])
        for command in hub.get("/api/v1/commands?limit=100")["items"]])
    assert (urgent.poll(), node.most_on_a_gpu()) == (None, 1)
    preview = node.preview("restore", pid)
    ask(hub, "POST", "commands", {"preview": preview["id"], "reason": "a test"})
    wait_for(lambda: state_of(pid) == "S")


def test_an_agent_that_dies_while_it_restores_restores_it_again(
        hub: HubProcess, nodes: list[SuspendingNode]) -> None:
    node = nodes[0]
    _, pid = node.run(*VICTIM)
    lease_id = lease_at(hub, "n1")
    urgent, _ = node.run("--gpus", "1", "--priority", "4")
    node.program.do("restore", "hang")
    urgent.terminate()
    wait_for(lambda: any("--action restore" in call for call in node.program.calls))
    node.kill()
    node.program.work()
    node.start()
    wait_for(lambda: leases(hub).get(lease_id) == "active" and state_of(pid) == "S", 150)
    assert (node.program.state(pid), node.most_on_a_gpu()) == ("running", 1)


def test_what_cannot_be_suspended_is_ended(hub: HubProcess, nodes: list[SuspendingNode]) -> None:
    node = nodes[0]
    run, pid = node.run(*VICTIM)
    node.program.refuse("checkpoint", "out of memory")
    _, urgent_pid = node.run("--gpus", "2", "--priority", "4")
    assert run.wait(30) == 128 + 15
    assert [action for action in acts(hub) if action != "notify"] == ["suspend", "end"]
    assert (node.program.state(pid), node.most_on_a_gpu()) == ("running", 1)
    assert state_of(urgent_pid) == "S"
