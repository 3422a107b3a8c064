"""Processes that simulate the nodes of a demo: agents for some, simulators of many for the rest."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from gpudeck.contract.action_table import SHOWN_ACTIONS

from .settings import DemoSettings
from .supervisor import SupervisedProcess

REAL_AGENTS = 4  # nodes with their own agent process, whose tasks are real processes
# MPS clients cannot be paused: a fleet of only nodes with real tasks has no MPS.
MPS_NODE = REAL_AGENTS
NODES_PER_PROCESS = 640
SOCKET_PATH_MOST = 107  # bytes (unix(7))
POOL_NODES = (5, 6)  # if the fleet is large enough
# Fleet sizes in which the pool's node has other tasks too: it is the only one, or the one with the
# stuck job.
SHARING_SIZES = (1, REAL_AGENTS)
POOL_UNUSED_S = 60  # so that a visitor sees an unused lease returned
# The schedulers are simulated as well, and take no requests.
CLUSTER_MOST = 16
OWN_ACTIONS = [action for action in SHOWN_ACTIONS
               if not action.startswith(("slurm_", "kubernetes_"))]
# GPUs lost in the whole fleet, one after the other, by the seeded schedule.
LOST_PER_QUARTER_HOUR = 1.0
NODE_ODDS_MAX = 0.25


class DemoFleet:
    def __init__(self, settings: DemoSettings, data: Path, hub_url: str) -> None:
        self._settings = settings
        self._data = data
        self._hub_url = hub_url
        self.hosts_of: dict[Path, Sequence[str | None]] = {}  # hosts by their tokens' file
        (data / "tokens").mkdir(mode=0o700, exist_ok=True)
        self._pool = self._pool_numbers()
        # Nodes whose tasks are real processes.
        self._real = [number for number in range(1, min(REAL_AGENTS, settings.nodes) + 1)
                      if number not in self._pool or settings.nodes in SHARING_SIZES]
        self.agents = {name: self._agent(name, *self._pool_flags(number))
                       for number in self._real for name in [node_name(number)]}
        self.processes = [*self._children(), *self.agents.values(), *self._pool_parts(),
                          *self._simulators()]

    @property
    def history_source(self) -> str:
        """Options of `gpudeck simulate` for the history of all these nodes."""
        return self._simulate() + ",mps=on" * self._has_mps

    @property
    def _has_mps(self) -> bool:
        return self._settings.nodes > REAL_AGENTS

    def _simulate(self, node: str | None = None) -> str:
        settings = self._settings
        odds = min(NODE_ODDS_MAX, LOST_PER_QUARTER_HOUR / max(1, settings.nodes))
        words = {"profile": settings.profile, "gpus": settings.gpus, "seed": settings.seed,
                 "faults": odds if settings.faults == "on" else 0, "world": self._data}
        if node == node_name(MPS_NODE) and self._has_mps:
            words["mps"] = "on"
        if node == SPEAKER:
            words["cluster"] = self._cluster()
        options = {"node": node, **words} if node else words
        return ",".join(f"{key}={value}" for key, value in options.items())

    def _cluster(self) -> str:
        """Return the schedulers' nodes, without those of the pool: a GPU has one scheduler."""
        last = min(self._settings.nodes, CLUSTER_MOST)
        if not self._pool:
            return f"1-{last}"
        first, after = min(self._pool), max(self._pool) + 1
        return "+".join(f"{a}-{b}" for a, b in ((1, first - 1), (after, last)) if a <= b)

    def _hub_options(self, *hosts: str) -> list[str]:
        file = self._data / "tokens" / hosts[0]
        self.hosts_of[file] = hosts
        return ["--hub", self._hub_url, "--token-file", str(file)]

    def _log(self, name: str) -> Path:
        logs = self._data / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name}.log"

    def _agent(self, name: str, *more: str) -> SupervisedProcess:
        return SupervisedProcess(f"agent of {name}", "agent", [
            *self._hub_options(name), "--host", name, "--backend", "simulated",
            "--simulate", self._simulate(name), "--data", str(self._data / "agents" / name),
            "--ceiling", str(self._ceiling()), *more,
        ], self._log(name))

    def _socket(self, name: str) -> Path:
        return self._data / "pool" / f"{name}.sock"

    def _pool_numbers(self) -> tuple[int, ...]:
        """Return the pool's nodes; none where the folder's path is too long for a socket."""
        numbers = pool_numbers(self._settings.nodes)
        longest = max((len(os.fsencode(self._socket(node_name(number)))) for number in numbers),
                      default=0)
        return numbers if longest <= SOCKET_PATH_MOST else ()

    def _pool_flags(self, number: int) -> tuple[str, ...]:
        return () if number not in self._pool else (
            "--pool-socket", str(self._socket(node_name(number))),
            "--pool-unused-s", str(POOL_UNUSED_S))

    def _pool_parts(self) -> list[SupervisedProcess]:
        """Return the agents of the pool's own nodes, and the process of the pool's users."""
        if not self._pool:
            return []
        world = self._data / "world"
        for folder in (self._data / "pool", world):
            folder.mkdir(exist_ok=True)
        own = [number for number in self._pool if number not in self._real]
        for number in own:
            (world / f"{node_name(number)}.jobs").write_text("[]")
        agents = [self._agent(node_name(number), *self._pool_flags(number)) for number in own]
        return [*agents, SupervisedProcess("users of the pool", "dashboard.demo.pool_users", [
            "--sockets", str(self._data / "pool"), "--world", str(world),
            "--nodes", str(len(self._pool)), *(["--alone"] if own else []),
            "--hub", self._hub_url, "--token-file", str(self._data / "hub" / "api.token"),
        ], self._log("pool-users"))]

    def _ceiling(self) -> Path:
        """Write a permissive ceiling: the stand-in processes belong to the user who runs the demo,
        so nobody's training can be harmed."""
        file = self._data / "ceiling.toml"
        file.write_text("kills_per_hour = 1000\npauses_per_hour = 1000\nroot_tasks = true\n"
                        "rules_may_act = true\n"
                        f"actions = {json.dumps(OWN_ACTIONS)}\n")
        file.chmod(0o600)
        return file

    def _children(self) -> list[SupervisedProcess]:
        """Return the keeper of the tasks. It is not an agent, so that tasks survive any agent."""
        if not self.agents:
            return []
        # It logs to our stderr, because it also reports mistakes in control.json.
        return [SupervisedProcess("keeper of the tasks", "agent.simulator.command", [
            "--children", "--nodes", str(len(self._real)), "--simulate", self._simulate(),
        ], None)]

    def _simulators(self) -> list[SupervisedProcess]:
        numbers = range(max((REAL_AGENTS, *self._pool)) + 1, self._settings.nodes + 1)
        groups = [numbers[at : at + NODES_PER_PROCESS]
                  for at in range(0, len(numbers), NODES_PER_PROCESS)]
        return [
            SupervisedProcess(f"simulator of {len(group)} nodes", "agent.simulator.command", [
                *self._hub_options(*map(node_name, group)), "--first", str(group[0]),
                "--nodes", str(len(group)), "--simulate", self._simulate(),
                "--data", str(self._data / f"simulated-{at}"),
            ], self._log(f"simulated-{at}"))
            for at, group in enumerate(groups, start=1)
        ]


def pool_numbers(nodes: int) -> tuple[int, ...]:
    """Return the numbers of the pool's nodes; others work there only in fleets of SHARING_SIZES."""
    if nodes > max(POOL_NODES):
        return POOL_NODES
    return (min(nodes, POOL_NODES[0]),) if nodes else ()


def node_name(number: int) -> str:
    """Return a node's host name, formed as by `gpudeck simulate`."""
    return f"n{number:03}"


SPEAKER = node_name(1)  # the node that reports for the schedulers
