"""Machines for the faults: nodes of one simulating process, and agents as they are shipped, on the
C fake of libnvidia-ml."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.backends.simulation.folder import write_jobs
from agent.backends.simulation.jobs import SimulatedJob
from agent.backends.simulation.world import uuid_of
from agent.simulator.command import node_name
from tests.fakes.clock import SteppedClock
from tests.fakes.nvml import FakeGpu, FakeNvml
from tests.faults.test_agent_disk import fill
from tests.faults.toxic import ToxicProxy, Toxics
from tests.integration.hubs import HubProcess

ROOT = Path(__file__).parents[3]
SEED = 1
GPUS = 4
LINKS = 18
# A board at rest, without an alert of any rule.
WELL: Mapping[str, Any] = {
    "util": 0, "mem_util": 0, "mem_total": 80 * 2**30, "mem_used": 2**20, "temp": 40,
    "mem_temp": 45, "power_mw": 90_000, "throttle": 1, "sm_active": 0, "fan": 40, "enc": 0,
    "dec": 0,
    "rows_pending": 0, "rows_failure": 0, "rows_corrected": 0, "rows_uncorrected": 0, "recovery": 0,
    "ecc_corrected_volatile": 0, "ecc_uncorrected_volatile": 0, "ecc_corrected_aggregate": 0,
    "ecc_uncorrected_aggregate": 0, "pcie_replays": 0, "pcie_width": 16, "pcie_width_max": 16,
    **{f"nvlink_{link}": 1 for link in range(LINKS)}}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **more}


class Program:
    """A child that is stopped, ended and started again; its output goes to a file."""

    def __init__(self, log: Path, *command: str, env: Mapping[str, str]) -> None:
        self._log, self._command, self._env = log, command, env
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-m", *self._command], cwd=ROOT,
                                             stderr=log, stdout=log, env=self._env)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(30)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)


class SimulatedNodes:
    """Nodes at rest, in one process; `control.json` causes their faults."""

    def __init__(self, folder: Path, hub: HubProcess, first: int, nodes: int) -> None:
        folder.mkdir(mode=0o700)
        self.names = [node_name(first + at) for at in range(nodes)]
        self._control = folder / "control.json"
        self._faults: dict[str, dict[str, Any]] = {"gpus": {}, "nodes": {}}
        world = folder / "world"
        world.mkdir()
        for name in self.names:
            (world / f"{name}.jobs").write_text("[]")
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{token.text}\n" for token in hub.tokens(nodes)))
        tokens.chmod(0o600)
        self._folder = folder
        self.program = Program(
            folder / "log", "agent.simulator.command", "--hub", hub.url,
            "--token-file", str(tokens), "--first", str(first), "--nodes", str(nodes),
            "--data", str(folder / "data"),
            "--simulate", f"profile=h100,gpus={GPUS},seed={SEED},faults=0,world={folder}",
            env=environment())

    def train(self, name: str, process: int, start_ticks: int) -> None:
        """Write a training over all GPUs of this node, with this process."""
        now = time.time()
        write_jobs(self._folder, name, (SimulatedJob(
            process, start_ticks, "train", SEED, tuple(self.uuid(name, at) for at in range(GPUS)),
            0.6, "alice", "python train.py", now, now - 1_000),))

    def uuid(self, name: str, index: int) -> str:
        return uuid_of(SEED, name, index)

    def keys(self, index: int) -> list[str]:
        """Return no keys: no two faults share such a node."""
        return []

    def tell_gpu(self, name: str, index: int, **values: Any) -> None:
        self._faults["gpus"].setdefault(self.uuid(name, index), {}).update(values)
        self._write()

    def tell_node(self, name: str, **values: Any) -> None:
        self._faults["nodes"].setdefault(name, {}).update(values)
        self._write()

    def forget(self, name: str) -> None:
        """Remove all faults of this node."""
        self._faults["nodes"].pop(name, None)
        for index in range(GPUS):
            self._faults["gpus"].pop(self.uuid(name, index), None)
        self._write()

    def _write(self) -> None:
        beside = self._control.with_suffix(".new")
        beside.write_text(json.dumps(self._faults))
        beside.replace(self._control)

    def close(self) -> None:
        self.program.close()


class DriverNode:
    """An agent on the fake driver, with its own network and clock."""

    def __init__(self, folder: Path, hub: HubProcess, name: str, gpus: int, data: Path,
                 is_split: bool = False) -> None:
        folder.mkdir(mode=0o700)
        self.name = name
        self.nvml = FakeNvml(folder / "nvml.txt", gpus=0, seed=SEED + sum(map(ord, name)))
        for number in range(gpus):
            self.nvml.gpu(**WELL, pci=f"00000000:{number + 1:02X}:00.0")
            if is_split:
                for _ in range(3):
                    self.nvml.mig(self.gpus[number], "1g.10gb", mem_used=0, sm_active=0)
        self.nvml.save()
        self._first = [dict(gpu) for gpu in self.gpus]
        self.disk = data
        self.proxy = ToxicProxy(hub.port, Toxics())
        self.clock = SteppedClock(folder / "clock")
        token = folder / "token"
        token.write_text(hub.token().text)
        token.chmod(0o600)
        self.program = Program(
            folder / "log", "agent", "--hub", self.proxy.url, "--token-file", str(token), "--host",
            name, "--data", str(data / "data"), "--backend", "nvml",
            env=self.clock.env({**environment(), **self.nvml.env()}))

    @property
    def gpus(self) -> list[FakeGpu]:
        return self.nvml.gpus

    def keys(self, index: int) -> list[str]:
        """Return the UUIDs of the board and of its instances."""
        board = self.gpus[index]
        return [board.uuid, *(str(instance["uuid"]) for instance in board.instances)]

    def set(self, index: int, **values: Any) -> None:
        self.gpus[index].update(values)
        self.nvml.save()

    def mend(self, index: int) -> None:
        """Give the board its first readings again; its ECC counters stay."""
        gpu = self.gpus[index].heal()
        counters = {key: gpu[key] for key in gpu if key.startswith("ecc_")}
        gpu.clear()
        gpu.update(self._first[index] | counters)
        self.nvml.save()

    def fill_disk(self) -> None:
        self._filler = fill(self.disk)

    def free_disk(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        self.program.close()
        self.proxy.close()
