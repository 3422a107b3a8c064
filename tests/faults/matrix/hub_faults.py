"""Faults of a whole hub, or of a part of its fleet: each has its own hub."""

import contextlib
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.clock import SteppedClock
from tests.fakes.webhook import HttpSink
from tests.faults.matrix.faults import Fault, Place, nothing
from tests.faults.matrix.machines import GPUS, SimulatedNodes
from tests.faults.test_agent_disk import fill, small_disk
from tests.integration.hubs import HubProcess, StartedHub

MOST, FEW = 8, 3  # nodes; those of the second process are the ones that fall silent
BEHIND_S = -30
PAUSE_S = 116


class ClockedHub(StartedHub):
    """Hub with its own clock."""

    def __init__(self, folder: Path, clock: SteppedClock) -> None:
        self.clock = clock
        super().__init__(folder)

    def _begin(self, arguments: tuple[str, ...]) -> Any:
        before = dict(os.environ)
        os.environ.update(self.clock.env())
        try:
            return super()._begin(arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)


class WholeHub:
    """A hub, eleven nodes in two processes, and its receiver."""

    def __init__(self, folder: Path, fault: str, stack: contextlib.ExitStack) -> None:
        folder.mkdir()
        self.folder, self._stack = folder, stack
        self.disk, self.is_restarted = folder, False
        if fault == DISK_FULL:
            self.disk = stack.enter_context(small_disk(folder / "disk", "64m"))
        if fault == HUB_BEHIND:
            self.clock = SteppedClock(folder / "clock")
            self.hub: HubProcess = stack.enter_context(ClockedHub(folder / "hub", self.clock))
        else:
            self.hub = stack.enter_context(HubProcess(self.disk / "hub", 0))
        self.sink = stack.enter_context(HttpSink())
        self.many = SimulatedNodes(folder / "many", self.hub, 1, MOST)
        few = FEW if fault == CUT_OFF else 1
        self.few = SimulatedNodes(folder / "few", self.hub, MOST + 1, few)
        self.gpus = GPUS * sum(len(nodes.names) for nodes in (self.many, self.few))

    def is_whole(self) -> bool:
        items = self.hub.get("/api/v1/gpus?limit=1000")["items"]
        return [item["state"] for item in items] == ["ok"] * self.gpus

    def signal(self, number: signal.Signals) -> None:
        self.hub.signal(number)

    def restart(self) -> None:
        self.is_restarted = True
        self.hub.kill()
        self.hub.start()

    def join(self) -> None:
        self.new_nodes = self._stack.enter_context(contextlib.closing(SimulatedNodes(
            self.folder / "joined", self.hub, 2 * MOST, FEW)))

    def fill(self) -> None:
        self._filler = fill(self.disk)

    def free(self) -> None:
        """Free the disk, and do what the alert says to do then."""
        self._filler.unlink()
        self.post("/api/v1/brakes", {"reason": "there is room again"})

    def post(self, path: str, body: Mapping[str, Any]) -> None:
        self.hub.ask(path, "POST", body=json.dumps(body).encode(), Content_Type="application/json")

    def close(self) -> None:
        for nodes in (self.many, self.few):
            nodes.close()


def cut_off(place: Place) -> None:
    place.machine.few.program.signal(signal.SIGSTOP)


def back(place: Place) -> None:
    place.machine.few.program.signal(signal.SIGCONT)


def restart_over_silence(place: Place, after_s: float) -> None:
    """Restart the hub once, after the notification of the silent node."""
    if not place.machine.is_restarted and after_s >= RESTART_AFTER_S:
        place.machine.restart()


RESTART_AFTER_S = 90.0
CUT_OFF = "a quarter of all agents is cut off"
HUB_BEHIND = "a hub's clock is set back by 30 s"
DISK_FULL = "the disk of a hub is full"
HUBS = (
    Fault(CUT_OFF, "hub", cut_off, back, "many-nodes-silent"),
    Fault("a hub is stopped for two minutes (SIGSTOP)", "hub",
          lambda place: place.machine.signal(signal.SIGSTOP),
          lambda place: place.machine.signal(signal.SIGCONT), "", PAUSE_S),
    Fault("three nodes join", "hub", lambda place: place.machine.join(), nothing, "", 120),
    Fault("a hub is restarted", "hub", lambda place: place.machine.restart(), nothing, "", 120),
    Fault("a hub is killed and started again while a node is silent", "hub", cut_off, back,
          "node-silent", 180, is_quick=False, pace=restart_over_silence),
    Fault(HUB_BEHIND, "hub", lambda place: place.machine.clock.set(BEHIND_S),
          lambda place: place.machine.clock.set(0), "hub-clock"),
    Fault(DISK_FULL, "hub", lambda place: place.machine.fill(),
          lambda place: place.machine.free(), "hub-disk"),
)
