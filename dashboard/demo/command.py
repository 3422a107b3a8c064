"""`gpudeck demo`: a hub and a simulated fleet on this machine, with real processes as tasks."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpudeck.contract.quota import Quota
from gpudeck.errors import ExitCode
from gpudeck.words.actions import many

from . import history_plan
from .cost import DemoCostMeter
from .fleet import SPEAKER, DemoFleet
from .rules import demo_rules
from .settings import DemoSettings, read
from .shared import RunningHub, claim, open_hub, write_private
from .supervisor import Supervisor

ADMIN = "demo"
UNIX_NAME = "alice"  # she has jobs, and a lease of the pool
OPENS_WITHIN_S = 60.0
# Nobody's real work can be harmed here.
HUB_FLAGS = ("--signer-ends-per-hour", "10000", "--signer-ends-per-node-hour", "10000",
             "--quota-end-after-s", "2", "--rule-proof-h", "1", "--pool", "on",
             "--advice-least-h", "1", "--slurm-nodes", SPEAKER, "--kubernetes-nodes", SPEAKER)


def demo(argv: list[str]) -> int:
    settings = read(argv, os.environ)
    with _data(settings) as data, claim(data, "demo"), DemoRun(settings, data) as running:
        running.run()
    return ExitCode.OK


@contextlib.contextmanager
def _data(settings: DemoSettings) -> Iterator[Path]:
    """Yield the folder of this demo: the configured one, or a temporary one, removed at the end."""
    if settings.data is not None:
        yield settings.data
        return
    data = Path(tempfile.mkdtemp(prefix="gpudeck-demo-"))
    try:
        yield data
    finally:
        shutil.rmtree(data, ignore_errors=True)


class DemoRun:
    def __init__(self, settings: DemoSettings, data: Path) -> None:
        self._settings = settings
        self._data = data
        self._file = data / "demo.json"
        self._remove_stale_files()
        self._hub = open_hub("demo", data / "hub", settings.port, ADMIN,
                             (*HUB_FLAGS, "--second-person", settings.second_person),
                             "dashboard.demo.history_maker")
        self._fleet = DemoFleet(settings, data, self._hub.url)
        self._password = self._hub.add_admin(UNIX_NAME)
        self._hub.seed(self._quota(), demo_rules())
        self._hub.enrol(self._fleet.hosts_of)
        self._plan_history()
        self._supervisor = Supervisor([self._hub.part, *self._fleet.processes])
        self._last_state: dict[str, Any] | None = None
        self._live_mono: float | None = None  # when all live nodes and tasks had arrived
        self._is_history_reported = False
        self._cost = DemoCostMeter(self._pids)

    def __enter__(self) -> "DemoRun":
        self._supervisor.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._supervisor.__exit__(*error)
        self._file.unlink(missing_ok=True)
        self._remove_stale_files()

    def run(self) -> None:
        self._supervisor.run(self._step)

    def _remove_stale_files(self) -> None:
        """Remove files with the pids of an earlier demo, so that they mislead nobody."""
        world = self._data / "world"
        for file in (self._file, *world.glob("*.jobs"), *world.glob("*.mps"),
                     world / "tasks.json"):
            file.unlink(missing_ok=True)

    def _plan_history(self) -> None:
        """Save the plan of the history at the first start in this folder; later there is a real
        history."""
        if (self._settings.past_s and self._settings.nodes
                and history_plan.read(self._hub.data) is None):
            history_plan.save(self._hub.data, history_plan.DemoHistoryPlan(
                seconds=self._settings.past_s, nodes=self._settings.nodes,
                gpus=self._settings.nodes * self._settings.gpus, real=len(self._fleet.agents),
                simulate=self._fleet.history_source))

    def _quota(self) -> Quota:
        """Return a quota that somebody exceeds, and that only observes."""
        gpus = max(1, self._settings.nodes * self._settings.gpus // 8)
        return Quota("fair-share", "*", gpus=gpus,
                     because="an eighth of the fleet for each owner; this one only observes")

    def _step(self) -> float:
        if self._last_state is None:
            return self._wait_for_all()
        self._write_if_changed()
        self._report_history()
        if self._is_history_reported and (cost := self._cost.line()) is not None:
            print(cost, flush=True)
        return 0.5

    def _report_history(self) -> None:
        if self._is_history_reported:
            return
        plan = history_plan.read(self._hub.data)
        self._is_history_reported = plan is None or plan.is_ready
        if plan is not None and plan.is_ready:
            print(f"{plan.made // 60} minutes of history are there: the time bar goes back to "
                  "before this demo began.", flush=True)
            self._write_if_changed()

    def _pids(self) -> dict[str, list[int]]:
        """Return pids by group. The tasks are children of the process that keeps them."""
        agents = list(self._fleet.agents.values())
        rest = [part for part in self._fleet.processes if part not in agents]
        return {name: [part.pid for part in parts if part.pid is not None] for name, parts in (
            ("the hub", [self._hub.part]), (f"{len(agents)} agents", agents),
            ("the simulation", rest))}

    def _wait_for_all(self) -> float:
        for part in self._supervisor.parts:
            if part.failures > 1 or (part is self._hub.part and part.failures):
                raise self._supervisor.give_up(part)
        if self._live_mono is None:
            return self._wait_for_live()
        if self._is_open(time.monotonic() - self._live_mono):
            hub, uuid = self._hub.running(), self._hub.first_gpu()
            self._write_if_changed()  # a reader of this file may end the hub
            _print_welcome(self._settings, self._data, hub, uuid)
            print(f"You are the admin {ADMIN!r}, and {UNIX_NAME!r} on the nodes; disruptive "
                  f"actions ask for the password again: {self._password}", flush=True)
        return 0.1

    def _wait_for_live(self) -> float:
        began = time.monotonic()
        nodes = self._hub.nodes()
        took_s = time.monotonic() - began
        live = -1 if nodes is None else sum(
            node["state"] == "live" and node["gpus"] > 0 for node in nodes)
        if (live >= self._settings.nodes and self._tasks() is not None
                and all(map(self._hub.has_values, self._fleet.agents))):
            self._live_mono = time.monotonic()
            return 0.0
        # Listing a thousand nodes takes time that the hub needs for their handshakes.
        return max(0.1, 10 * took_s)

    def _is_open(self, waited_s: float) -> bool:
        """Tell whether the newest part of the history is there, or has not come in time."""
        plan = history_plan.read(self._hub.data)
        return plan is None or plan.is_open or waited_s >= OPENS_WITHIN_S

    def _tasks(self) -> list[dict[str, Any]] | None:
        """Return the real processes; None: their keeper has not written the list yet."""
        if not self._fleet.agents:
            return []
        try:
            tasks: list[dict[str, Any]] = json.loads(
                (self._data / "world" / "tasks.json").read_bytes())
        except FileNotFoundError:
            return None
        return tasks

    def _write_if_changed(self) -> None:
        hub = self._hub.running()
        if hub is None:
            return
        agents = [{"node": name, "pid": part.pid} for name, part in self._fleet.agents.items()
                  if part.pid is not None]
        state = {"url": hub.url, "token": self._hub.api_token, "pid": os.getpid(),
                 "agents": agents, "tasks": self._tasks() or [],
                 "sign_in_url": hub.sign_in_url, "hub_pid": hub.pid,
                 "user": ADMIN, "password": self._password, "history": self._history()}
        if state != self._last_state:
            self._last_state = state
            write_private(self._file, json.dumps(state, indent=1))

    def _history(self) -> dict[str, Any] | None:
        """Return the length and state of the history; None: none was requested."""
        plan = history_plan.read(self._hub.data)
        return None if plan is None else {"seconds": plan.seconds, "is_ready": plan.is_ready}


def _print_welcome(settings: DemoSettings, data: Path, hub: RunningHub | None, uuid: str | None
                   ) -> None:
    """Print what a visitor needs, and no more."""
    assert hub is not None, "nodes can only be live on an existing hub"
    gpus = settings.nodes * settings.gpus
    stop = "Ctrl-C ends it" + ("." if settings.data else " and removes its folder.")
    lines = [
        "", f"gpudeck demo: {many(settings.nodes, 'node')}, {many(gpus, 'GPU')}, all simulated", "",
        f"    {hub.sign_in_url}", "",
        "Open this link (it works once). " + stop,
        f"Change what a GPU shows with {data / 'control.json'}; pids are in {data / 'demo.json'}.",
    ]
    if uuid is not None:
        entry = json.dumps({"gpus": {uuid: {"util_pct": 93, "state": "ok"}}})
        lines += [
            f"Try:  echo '{entry}' > {data / 'control.json'}",
            "      kill -9 a task, an agent or the hub of demo.json, and watch it restart.",
        ]
    if settings.faults == "on" and settings.nodes:
        lines.append("From time to time a GPU is lost for some minutes; --faults off disables "
                     "that.")
    print("\n".join(lines), flush=True, file=sys.stdout)
