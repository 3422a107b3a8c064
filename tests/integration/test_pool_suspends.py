"""A pre-emption suspends work that allows it: its GPUs go to somebody else and come back to it, and
no GPU ever has two leases. Real hub, two real agents on the C fake of the driver, real commands."""

import getpass
import sys
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
ME = getpass.getuser()
AGENT = ("-m", "tests.fakes.roomy_agent")
ACTIONS = ["notify", "end", "suspend", "restore"]


class SuspendingNode:
    """A node of two GPUs whose tasks can be suspended, and its agent."""

    def __init__(self, hub: HubProcess, folder: Path, actions: list[str]) -> None:
        folder.mkdir()
        ceiling = a_ceiling(folder, rules_may_act=True, own_pid_namespace=True, actions=actions)
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
        # Saved by Python, what is suspended would be listed again.
        with self.bed.nvml.path.open("a") as file:
            file.writelines(f"{gpu.process(int(pid), 4 * GIB).lines[-1]}\n"
                            for gpu in self.bed.nvml.gpus if gpu.uuid in uuids)
        wait_for(lambda: int(pid) in {task["pid"] for task in self.tasks()})
        return run, int(pid)

    def tasks(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.hub.get("/api/v1/tasks?limit=100")["items"]
        return items

    def close(self) -> None:
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


def acts(hub: HubProcess) -> list[str]:
    items = hub.get("/api/v1/commands?limit=100")["items"]
    return [command["action"] for command in items][::-1]


def test_it_is_suspended_and_comes_back_whoever_is_killed_meanwhile(
        hub: HubProcess, tmp_path: Path) -> None:
    node, other = (SuspendingNode(hub, tmp_path / name, ACTIONS) for name in ("n1", "n2"))
    bystander, bystander_pid = other.run("--gpus", "2", "--priority", "0", "--preemptible",
                                         "--suspendable")
    run, pid = node.run("--gpus", "2", "--priority", "1", "--preemptible", "--suspendable")
    [lease_id] = [lease["id"] for lease in hub.get("/api/v1/leases")["items"]
                  if lease["host"] == "n1"]
    urgent, _ = node.run("--gpus", "1", "--priority", "4")
    assert (state_of(pid), node.program.state(pid)) == ("T", "checkpointed")
    [claim] = [claim for claim in hub.get("/api/v1/claims")["items"] if claim["id"] == lease_id]
    assert "to restore its suspended work" in claim["asks"]
    assert "comes back to the GPUs that it had: 1 of 2 is free" in claim["why"]
    [waits] = node.bed.status()["waiting"]
    assert (waits["claim_id"], waits["why"]) == (lease_id, claim["why"])
    assert [task["state"] for task in node.tasks() if task["pid"] == pid] == ["suspended"]

    node.kill()
    node.start()
    hub.kill()
    hub.start()
    wait_for(lambda: lease_id in {claim["id"] for claim in hub.get("/api/v1/claims")["items"]})
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
    for suspending_node in (node, other):
        suspending_node.close()
