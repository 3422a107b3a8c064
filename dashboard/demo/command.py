"""`gpudeck demo`: a hub and a simulated fleet on this machine, with real processes as tasks."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.quota import Quota
from gpudeck.settings import Setting, count, folder, load, port, text, whole

from . import history_plan as past
from .cost import DemoCostMeter
from .shared import RunningHub, claim, open_hub, write_private
from .supervisor import SupervisedProcess, Supervisor

ADMIN = "demo"
PROFILES = ("h100", "h100-mig", "a100", "l40s", "4090", "mixed")
# Nobody's work is at stake here.
HUB_FLAGS = ("--signer-ends-per-hour", "10000", "--signer-ends-per-node-hour", "10000",
             "--quota-end-after-s", "2", "--rule-proof-h", "1")
REAL_AGENTS = 4  # nodes with an agent process of their own, whose tasks are real processes
# Its clients cannot be paused: a fleet of so few nodes as have real tasks goes without.
MPS_NODE = REAL_AGENTS
NODES_PER_PROCESS = 640
# How many Gpus of the fleet are lost at a time, by the seeded schedule: about one.
LOST_PER_QUARTER_HOUR = 2.0
NODE_ODDS_MAX = 0.25
NODES_MAX = 5_000
# The past is made up second by second: of a large fleet less of it.
PAST_GPU_SECONDS = 3_600_000
HOURS_MAX = 24
GPUS_MAX = 64

TABLE: tuple[Setting, ...] = (
    Setting("nodes", whole, 8, "how many nodes; 0 shows an empty hub"),
    Setting("gpus", count, 8, "Gpus of each node"),
    Setting("profile", text, "h100", f"the boards: {', '.join(PROFILES)}", choices=PROFILES),
    Setting("seed", whole, 1, "another number, another fleet"),
    Setting("port", port, 8050, "port on 127.0.0.1; 0 picks a free one"),
    Setting("data", folder, None, "folder to keep; a temporary one, removed at the end, if none"),
    Setting("faults", text, "on", "on: a Gpu is lost now and then; off: none",
            choices=("on", "off")),
    Setting("history_hours", whole, 2, "hours of history that are made up in the first minute; of "
            "more than 500 Gpus less; 0: none"),
    Setting("second_person", text, "off", "on: as on a real hub, an act on more than 3 jobs waits "
            "for another person, whom Settings can add", choices=("on", "off")),
)


@dataclass(frozen=True, slots=True)
class DemoSettings:
    nodes: int
    gpus: int
    profile: str
    seed: int
    port: int
    data: Path | None
    faults: str
    second_person: str = "off"
    history_hours: int = 2

    @property
    def past_s(self) -> int:
        gpus = max(1, self.nodes * self.gpus)
        return min(self.history_hours * 3_600, PAST_GPU_SECONDS // gpus)


def read(argv: Sequence[str], env: Mapping[str, str]) -> DemoSettings:
    given = DemoSettings(**load("demo", TABLE, argv, env,
                                "A hub and a simulated fleet on this machine, without a GPU."))
    for name, number, most in (("nodes", given.nodes, NODES_MAX), ("gpus", given.gpus, GPUS_MAX),
                               ("history-hours", given.history_hours, HOURS_MAX)):
        if number > most:
            raise CommandError(f"--{name} {number}: at most {most}", ExitCode.USAGE)
    return given


def demo(argv: list[str]) -> int:
    settings = read(argv, os.environ)
    with _data(settings) as data, claim(data, "demo"), _Demo(settings, data) as running:
        running.run()
    return ExitCode.OK


@contextlib.contextmanager
def _data(settings: DemoSettings) -> Iterator[Path]:
    """The folder of this demo: the one named, or a fresh one that goes when we go."""
    if settings.data is not None:
        yield settings.data
        return
    data = Path(tempfile.mkdtemp(prefix="gpudeck-demo-"))
    try:
        yield data
    finally:
        shutil.rmtree(data, ignore_errors=True)


class _Demo:
    def __init__(self, settings: DemoSettings, data: Path) -> None:
        self._settings = settings
        self._data = data
        self._file = data / "demo.json"
        self._clear_the_past()
        self._hub = open_hub("demo", data / "hub", settings.port, ADMIN,
                             (*HUB_FLAGS, "--second-person", settings.second_person),
                             "dashboard.demo.history_maker")
        self._places: dict[Path, Sequence[str | None]] = {}
        (data / "tokens").mkdir(mode=0o700, exist_ok=True)
        self._password = self._hub.add_admin()
        self._hub.begin_with(self._quota())
        self._agents = {name: self._agent(name) for name in self._names(REAL_AGENTS)}
        parts = [self._hub.part, *self._children(), *self._agents.values(), *self._simulated()]
        self._hub.enrol(self._places)
        self._want_a_past()
        self._supervisor = Supervisor(parts)
        self._written: dict[str, Any] | None = None
        self._is_past_told = False
        self._bill = DemoCostMeter(self._pids)

    def __enter__(self) -> "_Demo":
        self._supervisor.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._supervisor.__exit__(*error)
        self._file.unlink(missing_ok=True)
        self._clear_the_past()

    def run(self) -> None:
        self._supervisor.run(self._step)

    def _clear_the_past(self) -> None:
        """Pids of a demo that is over must mislead nobody."""
        self._file.unlink(missing_ok=True)
        for stale in (self._data / "world").glob("*.jobs"):
            stale.unlink()
        for stale in (self._data / "world").glob("*.mps"):
            stale.unlink()
        (self._data / "world" / "tasks.json").unlink(missing_ok=True)

    def _want_a_past(self) -> None:
        """At the first start in this folder: later there is a real one."""
        if self._settings.past_s and self._settings.nodes and past.read(self._hub.data) is None:
            past.save(self._hub.data, past.DemoHistoryPlan(
                seconds=self._settings.past_s, nodes=self._settings.nodes,
                gpus=self._settings.nodes * self._settings.gpus, real=len(self._agents),
                simulate=self._simulate() + ",mps=on" * self._has_mps))

    @property
    def _has_mps(self) -> bool:
        return self._settings.nodes > REAL_AGENTS

    def _names(self, most: int) -> list[str]:
        return [node_name(number) for number in range(1, min(most, self._settings.nodes) + 1)]

    def _simulate(self, node: str | None = None) -> str:
        settings = self._settings
        odds = min(NODE_ODDS_MAX, LOST_PER_QUARTER_HOUR / max(1, settings.nodes))
        words = {"profile": settings.profile, "gpus": settings.gpus, "seed": settings.seed,
                 "faults": odds if settings.faults == "on" else 0, "world": self._data}
        if node == node_name(MPS_NODE) and self._has_mps:
            words["mps"] = "on"
        named = {"node": node, **words} if node else words
        return ",".join(f"{key}={value}" for key, value in named.items())

    def _towards_hub(self, *hosts: str) -> list[str]:
        file = self._data / "tokens" / hosts[0]
        self._places[file] = hosts
        return ["--hub", self._hub.url, "--token-file", str(file)]

    def _log(self, name: str) -> Path:
        logs = self._data / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name}.log"

    def _agent(self, name: str) -> SupervisedProcess:
        return SupervisedProcess(f"agent of {name}", "agent", [
            *self._towards_hub(name), "--host", name, "--backend", "simulated",
            "--simulate", self._simulate(name), "--data", str(self._data / "agents" / name),
            "--ceiling", str(self._ceiling()),
        ], self._log(name))

    def _ceiling(self) -> Path:
        """Here nobody's training is at stake, and its stand-ins are of whoever runs the demo."""
        file = self._data / "ceiling.toml"
        file.write_text("kills_per_hour = 1000\nroot_tasks = true\nrules_may_act = true\n")
        file.chmod(0o600)
        return file

    def _quota(self) -> Quota:
        """Of which somebody uses up more than their share, and which only observes."""
        gpus = max(1, self._settings.nodes * self._settings.gpus // 8)
        return Quota("fair-share", "*", gpus=gpus,
                     because="an eighth of the fleet for each owner; this one only observes")

    def _children(self) -> list[SupervisedProcess]:
        """The process that holds the tasks: not an agent, so that no agent's end is theirs."""
        if not self._agents:
            return []
        # On our own stderr: it also says what is wrong with control.json.
        return [SupervisedProcess("keeper of the tasks", "agent.cli.simulate", [
            "--children", "--nodes", str(len(self._agents)), "--simulate", self._simulate(),
        ], None)]

    def _simulated(self) -> list[SupervisedProcess]:
        numbers = range(REAL_AGENTS + 1, self._settings.nodes + 1)
        groups = [numbers[at : at + NODES_PER_PROCESS]
                  for at in range(0, len(numbers), NODES_PER_PROCESS)]
        return [
            SupervisedProcess(f"simulator of {len(group)} nodes", "agent.cli.simulate", [
                *self._towards_hub(*map(node_name, group)), "--first", str(group[0]),
                "--nodes", str(len(group)), "--simulate", self._simulate(),
                "--data", str(self._data / f"simulated-{at}"),
            ], self._log(f"simulated-{at}"))
            for at, group in enumerate(groups, start=1)
        ]

    def _step(self) -> float:
        if self._written is None:
            return self._wait_for_all()
        self._write_if_changed()
        self._say_of_past()
        if self._is_past_told and (cost := self._bill.line()) is not None:
            print(cost, flush=True)
        return 0.5

    def _say_of_past(self) -> None:
        if self._is_past_told:
            return
        made = past.read(self._hub.data)
        self._is_past_told = made is None or made.is_ready
        if made is not None and made.is_ready:
            print(f"{made.made // 60} minutes of history are there: the time bar goes back to "
                  "before this demo began.", flush=True)
            self._write_if_changed()

    def _pids(self) -> dict[str, list[int]]:
        """By what they do. The keeper's children are the tasks."""
        agents = list(self._agents.values())
        rest = [part for part in self._supervisor.parts
                if part is not self._hub.part and part not in agents]
        return {name: [part.pid for part in parts if part.pid is not None] for name, parts in (
            ("the hub", [self._hub.part]), (f"{len(agents)} agents", agents),
            ("the simulation", rest))}

    def _wait_for_all(self) -> float:
        for part in self._supervisor.parts:
            if part.failures > 1 or (part is self._hub.part and part.failures):
                raise self._supervisor.give_up(part)
        began = time.monotonic()
        nodes = self._hub.nodes()
        took_s = time.monotonic() - began
        live = -1 if nodes is None else sum(
            node["state"] == "live" and node["gpus"] > 0 for node in nodes)
        if (live >= self._settings.nodes and self._tasks() is not None
                and all(map(self._hub.has_values, self._agents))):
            self._write_if_changed()
            _greet(self._settings, self._data, self._hub.fresh(), self._hub.first_gpu())
            print(f"You are the admin {ADMIN!r}; what harms others asks for the password "
                  f"again: {self._password}", flush=True)
        # A list of a thousand nodes costs the hub what it needs for their greetings.
        return max(0.1, 10 * took_s)

    def _tasks(self) -> list[dict[str, Any]] | None:
        """The real processes; None: their keeper has not told yet."""
        if not self._agents:
            return []
        try:
            told: list[dict[str, Any]] = json.loads(
                (self._data / "world" / "tasks.json").read_bytes())
        except FileNotFoundError:
            return None
        return told

    def _write_if_changed(self) -> None:
        hub = self._hub.fresh()
        if hub is None:
            return
        agents = [{"node": name, "pid": part.pid} for name, part in self._agents.items()
                  if part.pid is not None]
        told = {"url": hub.url, "token": self._hub.api_token, "pid": os.getpid(),
                "agents": agents, "tasks": self._tasks() or [],
                "sign_in_url": hub.sign_in_url, "hub_pid": hub.pid,
                "user": ADMIN, "password": self._password, "history": self._history()}
        if told != self._written:
            self._written = told
            write_private(self._file, json.dumps(told, indent=1))

    def _history(self) -> dict[str, Any] | None:
        """How much of the past there is; None: none was wanted."""
        made = past.read(self._hub.data)
        return None if made is None else {"seconds": made.seconds, "is_ready": made.is_ready}


def node_name(number: int) -> str:
    """As `gpudeck simulate` names them."""
    return f"n{number:03}"


def _greet(settings: DemoSettings, data: Path, hub: RunningHub | None, uuid: str | None) -> None:
    """What a person needs, and no more."""
    assert hub is not None, "nodes can only be live on a hub that is there"
    gpus = settings.nodes * settings.gpus
    stop = "Ctrl-C ends it" + ("." if settings.data else " and removes its folder.")
    lines = [
        "", f"gpudeck demo: {settings.nodes} nodes, {gpus} Gpus, all simulated", "",
        f"    {hub.sign_in_url}", "",
        "Open this link (it works once). " + stop,
        f"Set what a Gpu shows by {data / 'control.json'}; pids are in {data / 'demo.json'}.",
    ]
    if uuid is not None:
        entry = json.dumps({"gpus": {uuid: {"util_pct": 93, "state": "ok"}}})
        lines += [
            f"Try:  echo '{entry}' > {data / 'control.json'}",
            "      kill -9 a task, an agent or the hub of demo.json, and watch it come back.",
        ]
    if settings.faults == "on" and settings.nodes:
        lines.append("Now and then a Gpu is lost for some minutes; --faults off leaves that out.")
    print("\n".join(lines), flush=True, file=sys.stdout)
